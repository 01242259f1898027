"""Dead letters on a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    console = Console(highlight=False)
    if as_json:
        console.file.write(json.dumps([asdict(group) for group in found], indent=1) + "\n")
        return
    table = Table(box=None)
    for heading in ("count", "replayed", "refused by", "reason", "records from", "to", "example"):
        number = heading in ("count", "replayed")
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for group in found:
        table.add_row(
            f"{group.count:,}",
            f"{group.replayed:,}",
            Text(group.sink),
            Text(group.reason),
            (group.first or "-")[:19],
            (group.last or "-")[:19],
            Text(group.example),
        )
    console.print(table)
    total = sum(group.count for group in found)
    console.print(f"{total:,} dead letters, {sum(g.replayed for g in found):,} sent again.")


def show_letters(
    letters: Iterable[DeadLetter], replayed: Mapping[str, str], *, as_json: bool
) -> None:
    """A line for each: as JSON lines, or identity, origin, who and why, with tabs between."""
    console = Console(highlight=False)
    for letter in letters:
        to = letter.sent_to(replayed)
        if as_json:
            console.file.write(json.dumps(values_of(letter, to)) + "\n")
            continue
        parts = (letter.identity, origin_of(letter), letter.sink, letter.error, to or "-")
        console.file.write("\t".join(" ".join(part.split()) for part in parts) + "\n")


def show_letter(letter: DeadLetter, to: str | None, *, as_json: bool) -> None:
    console = Console(highlight=False)
    if as_json:
        console.file.write(json.dumps(values_of(letter, to), indent=1) + "\n")
        return
    for name, value in (
        ("letter", letter.identity),
        ("record", origin_of(letter)),
        ("of", letter.timestamp or "-"),
        ("refused by", letter.sink),
        ("reason", letter.error),
        ("sent again", f"to {to}" if to is not None else "no"),
        ("key", shown(letter.key)),
        ("value", shown(letter.value)),
        ("row", letter.row_json or "-"),
    ):
        console.print(Text(f"{name:<11} {value}"), soft_wrap=True)


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
