"""Dead letters in groups, in lines, and whole."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import click

from exactum.ops import render
from exactum.ops.dead_letters.letter import DeadLetter

_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\d.,]*")
"""What makes two reasons of one kind differ."""
REASON_MAX = 160
GROUPS_MAX = 1_000
OTHERS = "(further reasons)"
SHOWN_MAX = 2_000


@dataclass
class LetterGroup:
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


def groups(letters: Iterable[DeadLetter], replayed: Mapping[str, str]) -> list[LetterGroup]:
    """By sink and reason, the largest first."""
    found: dict[tuple[str, str], LetterGroup] = {}
    for letter in letters:
        key = letter.sink, reason_of(letter.error)
        if key not in found and len(found) >= GROUPS_MAX:
            key = letter.sink, OTHERS
        group = found.setdefault(key, LetterGroup(*key, example=letter.identity))
        group.count += 1
        group.replayed += letter.sent_to(replayed) is not None
        if letter.timestamp is not None:
            group.first = min(group.first or letter.timestamp, letter.timestamp)
            group.last = max(group.last or letter.timestamp, letter.timestamp)
    return sorted(found.values(), key=lambda group: -group.count)


def show_groups(found: list[LetterGroup], *, as_json: bool) -> None:
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


def show_letters(
    letters: Iterable[DeadLetter], replayed: Mapping[str, str], *, as_json: bool
) -> None:
    """A line for each: as JSON lines, or identity, origin, who and why, with tabs between."""
    for letter in letters:
        to = letter.sent_to(replayed)
        if as_json:
            render.show_json(values_of(letter, to), indent=None)
            continue
        parts = (letter.identity, origin_of(letter), letter.sink, letter.error, to or "-")
        click.echo("\t".join(" ".join(part.split()) for part in parts))


def show_letter(letter: DeadLetter, to: str | None, *, as_json: bool) -> None:
    if as_json:
        render.show_json(values_of(letter, to))
        return
    render.show_values(
        [
            ("letter", letter.identity),
            ("record", origin_of(letter)),
            ("of", letter.timestamp or "-"),
            ("refused by", letter.sink),
            ("reason", letter.error),
            ("sent again", f"to {to}" if to is not None else "no"),
            ("key", shown(letter.key)),
            ("value", shown(letter.value)),
            ("row", letter.row_json or "-"),
        ]
    )


def origin_of(letter: DeadLetter) -> str:
    if letter.origin is None:
        return "-"
    topic, index, offset = letter.origin
    return f"{topic}-{index}@{offset}"


def values_of(letter: DeadLetter, to: str | None) -> dict[str, object]:
    """For JSON: key and value as hexadecimal digits, and the topic that it was sent to again."""
    values: dict[str, object] = asdict(letter)
    for name in ("key", "value"):
        data = getattr(letter, name)
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
