"""How every command prints: a table on a terminal, lines in a pipe, JSON for programs; and the
status that it exits with.
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Any

import click
import msgspec

from exactum.monitor.job import JobState
from exactum.monitor.verdict import Judgement, Verdict, judge
from exactum.problem import Level, Problem

GREEN, YELLOW, RED, CYAN, MAGENTA = "green", "yellow", "red", "cyan", "magenta"
COLOURS = {Level.OK: GREEN, Level.WARNING: YELLOW, Level.ERROR: RED, Level.UNKNOWN: MAGENTA}


class ExitStatus(IntEnum):
    """What a command ends with."""

    FINE = 0
    NEEDS_PERSON = 1  # something is wrong, or waits for somebody
    CANNOT_TELL = 2  # refused, or nothing is known to be wrong and not all could be looked at


def worst(found: Iterable[ExitStatus]) -> ExitStatus:
    """What is wrong comes before what is not known."""
    kinds = set(found)
    order = (ExitStatus.NEEDS_PERSON, ExitStatus.CANNOT_TELL)
    return next((each for each in order if each in kinds), ExitStatus.FINE)


def status_of(problems: Iterable[Problem]) -> ExitStatus:
    """Warnings are no reason to fail."""
    kinds = {Level.ERROR: ExitStatus.NEEDS_PERSON, Level.UNKNOWN: ExitStatus.CANNOT_TELL}
    return worst(kinds.get(each.level, ExitStatus.FINE) for each in problems)


def status_of_job(judgement: Judgement) -> ExitStatus:
    """What a query's verdict is for a probe."""
    if judgement.verdict is Verdict.UNKNOWN:
        return ExitStatus.CANNOT_TELL
    return ExitStatus.FINE if judgement.verdict.is_working else ExitStatus.NEEDS_PERSON


def job_value(job: JobState) -> dict[str, Any]:
    """A query's state and its verdict, as JSON has them: for ``--json`` and for the page."""
    own = judge(job)
    status = status_of_job(own)
    value = {"name": job.name, **plain(own), "status": status, **plain(job)}
    return {name: _finite(each) for name, each in value.items()}


def _finite(value: Any) -> Any:
    """JSON has no other numbers: whatever a history may hold, a program can read it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Cell:
    """A text of a table, in a colour."""

    text: str
    colour: str


def plain(value: Any) -> Any:
    """Dataclasses and enums as JSON has them."""
    return msgspec.to_builtins(value, enc_hook=str)


def show_json(value: Any, *, indent: int | None = 1) -> None:
    """ASCII, so that no text of a query's stops it."""
    click.echo(json.dumps(plain(value), indent=indent))


def show_refusal(text: object) -> None:
    """On stderr, as the reason why a command ends."""
    click.secho(f"exactum: {text}", fg="red", err=True)


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show_table(
    headings: Sequence[str], rows: Iterable[Sequence[str | int | Cell]], *, lines: bool = False
) -> None:
    """On a terminal a table; in a pipe a line for each row, with tabs between.

    ``lines``: between the rows of the table, too.
    """
    if not is_terminal():
        for row in (headings, *rows):
            click.echo("\t".join(" ".join(_text(cell).split()) for cell in row))
        return
    from rich.console import Console  # takes a moment to import
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=lines)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(
            *(
                Text(
                    _text(cell),
                    f"bold {cell.colour}" if isinstance(cell, Cell) else "",
                    justify="right" if isinstance(cell, int) else None,
                )
                for cell in row
            )
        )
    Console(highlight=False).print(table)


def _text(cell: str | int | Cell) -> str:
    return f"{cell:,}" if isinstance(cell, int) else cell.text if isinstance(cell, Cell) else cell


def show_values(values: Iterable[tuple[str, object]]) -> None:
    """Names and values below one another. What is None is left out; a value of many lines goes on
    below itself.
    """
    shown = [(name, value) for name, value in values if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        for number, line in enumerate(str(value).splitlines() or [""]):
            click.echo(f"  {'' if number else name:<{width}}  {line}".rstrip())


def show_problems(problems: Sequence[Problem]) -> None:
    """All that a command has found, what is well as well, and how many of each level."""
    if is_terminal():
        show_table(("where", "level", "found", "what to do"), _rows_of(problems), lines=True)
    else:
        for each in problems:
            click.echo(f"{each.level.value:<7} {' '.join(each.lines)}")
    counts = Counter(each.level for each in problems)
    said = [f"{counts[level]} {level.value}" for level in Level if counts[level]]
    click.echo(", ".join(said) or "nothing was looked at")


def _rows_of(problems: Sequence[Problem]) -> Iterator[tuple[str | Cell, ...]]:
    for (where, level), group in groupby(problems, lambda each: (each.where, each.level)):
        word = Cell(level.value, COLOURS[level])
        if level is Level.OK:  # what is well takes little room
            yield where, word, "\n".join(each.what for each in group), ""
            continue
        for each in group:
            yield where, word, f"{each.what}\n{each.why}" if each.why else each.what, each.do


def show_not_seen(problems: Iterable[Problem]) -> None:
    """What could not be looked at, on standard error."""
    for each in problems:
        click.secho(f"{each.where} {each.what}: {each.why}", fg=RED, err=True)
