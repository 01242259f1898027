"""Dead letters in groups, in lines, and whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import click

from exactum.ops import render
from exactum.protocol.dead_letter import DeadLetter

_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\d.,]*")
"""What makes two reasons of one kind differ."""
REASON_MAX = 160
GROUPS_MAX = 1_000
OTHERS = "(further reasons)"
SHOWN_MAX = 2_000


@dataclass
class DeadLetterGroup:
    """Letters of one kind. ``example`` is the identity of the first."""

    sink: str
    reason: str
    count: int = 0
    replayed: int = 0
    first: str | None = None
    last: str | None = None
    example: str = ""


def reason_of(error: str) -> str:
    """The reason without what is of one row alone."""
    text = " ".join(_OWN.sub("…", error).split())
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def groups(
    dead_letters: Iterable[DeadLetter], replayed: Mapping[str, str]
) -> list[DeadLetterGroup]:
    """By sink and reason, the largest first."""
    found: dict[tuple[str, str], DeadLetterGroup] = {}
    for dead_letter in dead_letters:
        key = dead_letter.sink, reason_of(dead_letter.error)
        if key not in found and len(found) >= GROUPS_MAX:
            key = dead_letter.sink, OTHERS
        group = found.setdefault(key, DeadLetterGroup(*key, example=dead_letter.identity))
        group.count += 1
        group.replayed += dead_letter.sent_to(replayed) is not None
        if dead_letter.timestamp is not None:
            group.first = min(group.first or dead_letter.timestamp, dead_letter.timestamp)
            group.last = max(group.last or dead_letter.timestamp, dead_letter.timestamp)
    return sorted(found.values(), key=lambda group: -group.count)


def show_groups(found: list[DeadLetterGroup], *, as_json: bool) -> None:
    if as_json:
        render.show_json(found)
        return
    render.show_table(
        ("count", "replayed", "refused by", "reason", "records from", "to", "example"),
        [
            (
                group.count,
                group.replayed,
                group.sink,
                group.reason,
                (group.first or "-")[:19],
                (group.last or "-")[:19],
                group.example,
            )
            for group in found
        ],
    )
    total = sum(group.count for group in found)
    click.echo(f"{total:,} dead letters, {sum(g.replayed for g in found):,} sent again.")


def show_dead_letters(
    dead_letters: Iterable[DeadLetter], replayed: Mapping[str, str], *, as_json: bool
) -> None:
    """A line for each: as JSON lines, or identity, origin, who and why, with tabs between."""
    for dead_letter in dead_letters:
        to = dead_letter.sent_to(replayed)
        if as_json:
            render.show_json(values_of(dead_letter, to), indent=None)
            continue
        parts = (
            dead_letter.identity,
            origin_of(dead_letter),
            dead_letter.sink,
            dead_letter.error,
            to or "-",
        )
        click.echo("\t".join(" ".join(part.split()) for part in parts))


def show_dead_letter(dead_letter: DeadLetter, to: str | None, *, as_json: bool) -> None:
    if as_json:
        render.show_json(values_of(dead_letter, to))
        return
    render.show_values(
        [
            ("letter", dead_letter.identity),
            ("record", origin_of(dead_letter)),
            ("of", dead_letter.timestamp or "-"),
            ("refused by", dead_letter.sink),
            ("reason", dead_letter.error),
            ("sent again", f"to {to}" if to is not None else "no"),
            ("key", shown(dead_letter.key)),
            ("value", shown(dead_letter.value)),
            ("row", dead_letter.row_json or "-"),
        ]
    )


def origin_of(dead_letter: DeadLetter) -> str:
    if dead_letter.origin is None:
        return "-"
    topic, index, offset = dead_letter.origin
    return f"{topic}-{index}@{offset}"


def values_of(dead_letter: DeadLetter, to: str | None) -> dict[str, object]:
    """For JSON: key and value as hexadecimal digits, and the topic that it was sent to again."""
    values: dict[str, object] = asdict(dead_letter)
    for name in ("key", "value"):
        data = getattr(dead_letter, name)
        values[name] = None if data is None else data.hex()
    return {**values, "replayed_to": to}


def shown(data: bytes | None) -> str:
    """Bytes as text where they are UTF-8, else as hexadecimal digits; long ones are cut."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"(hex) {data.hex()}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}… ({len(data):,} bytes)"
