"""The page: what was played and how it went, a table for each sink family, every cell linked to its
line.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from chaos.cell_run import Outcome
from chaos.matrix import FAMILIES, FAULTS, POINTS, Cell, Family, cells
from exactum.local.broker import KAFKA_VERSION

STOP_CHARACTERS = 160
HEAD = """# The fault matrix: what was played

Written by `python -m chaos` from the outcomes of its cells; [chaos.md](chaos.md) says what a cell
is, how the verdict comes about and how to play one again. Every cell that was not played says so.
"""
LEGEND = """`ok`: exact, and the query carried on by itself (or was started again where the fault
ends it). `ok+2`: exact; the query stopped twice with an error that says so, and was started again.
`RED`: not exact, or it stopped as it must not. `not run`: it can happen and was not played. A small
letter: it cannot happen; the reason is below the table. Rows are faults, columns are points of an
epoch.
"""


def page(outcomes: Mapping[str, Outcome], unplayed: Mapping[str, str]) -> str:
    """The whole page, in Markdown. ``unplayed``: why cells that can happen are never played, by
    name.
    """
    every = list(cells())
    alone = [o for o in _played(every, outcomes) if o.verdict == "green" and not o.stops]
    count = Counter(_kind(cell, outcomes) for cell in every)
    lines = [
        HEAD,
        "| cells | |",
        "|---|---|",
        f"| played, green | {count['green']} |",
        f"| of them without an error on the way | {len(alone)} |",
        f"| played, red | {count['red']} |",
        f"| can happen, not run | {count['not run']} |",
        f"| cannot happen | {count['impossible']} |",
        f"| all | {len(every)} |",
        "",
        *_circumstances(outcomes),
        "",
        LEGEND,
        "| point | what it is |",
        "|---|---|",
        *[f"| {point.name} | {point.title} |" for point in POINTS],
        "",
        "| fault | what it is |",
        "|---|---|",
        *[f"| {fault.name} | {fault.title} |" for fault in FAULTS],
        "",
        *_red(every, outcomes),
    ]
    for family in FAMILIES:
        lines += _table(family, outcomes, unplayed)
    for family in FAMILIES:
        lines += _lines(family, outcomes)
    return "\n".join(lines) + "\n"


def _kind(cell: Cell, outcomes: Mapping[str, Outcome]) -> str:
    if cell.impossible:
        return "impossible"
    verdict = outcomes[cell.name].verdict if cell.name in outcomes else "void"
    return "not run" if verdict == "void" else verdict


def _played(every: list[Cell], outcomes: Mapping[str, Outcome]) -> list[Outcome]:
    there = [outcomes[cell.name] for cell in every if cell.name in outcomes and not cell.impossible]
    return [outcome for outcome in there if outcome.verdict != "void"]


def _circumstances(outcomes: Mapping[str, Outcome]) -> list[str]:
    days = sorted({outcome.at[:10] for outcome in outcomes.values()})
    seeds = sorted({outcome.seed for outcome in outcomes.values()})
    total_s = sum(outcome.seconds for outcome in outcomes.values())
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        f"Played on {', '.join(days) or 'no day'}, seed {', '.join(map(str, seeds)) or '-'}, "
        f"{total_s / 60:.0f} min of cells, on {os.cpu_count()} cores and {memory_gib:.0f} GiB "
        f"(Linux {platform.machine()}), with Python {platform.python_version()}, PySpark "
        f"{importlib.metadata.version('pyspark')}, Kafka {KAFKA_VERSION}, "
        f"{_version('PostgreSQL', 'postgres')}, {_version('MariaDB', 'mariadbd')}, exactum "
        f"{importlib.metadata.version('exactum')}. Commits of the code, and cells played of each: "
        f"{_commits(outcomes)}."
    ]


def _version(title: str, program: str) -> str:
    found = [program, *map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}")))]
    for path in reversed(found):
        try:
            text = subprocess.run(
                [path, "--version"], check=True, capture_output=True, text=True
            ).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        found_version = re.search(r"\d+\.\d+(\.\d+)?", text)
        return f"{title} {found_version[0] if found_version else text.strip()}"
    return f"{title} (not found)"


def _commits(outcomes: Mapping[str, Outcome]) -> str:
    """The commits of the code that was played, each with its number of cells, the most first."""
    count = Counter(outcome.commit or "no commit on record" for outcome in outcomes.values())
    return ", ".join(f"{commit} ({number})" for commit, number in count.most_common()) or "-"


def _red(every: list[Cell], outcomes: Mapping[str, Outcome]) -> list[str]:
    red = [outcome for outcome in _played(every, outcomes) if outcome.verdict == "red"]
    if not red:
        return ["No cell that was played is red.", ""]
    return [
        "## Red cells",
        "",
        *[f"- [{o.cell}](#{_anchor(o.cell)}): {_text(o.note, 400)}" for o in red],
        "",
    ]


def _table(
    family: Family, outcomes: Mapping[str, Outcome], unplayed: Mapping[str, str]
) -> list[str]:
    reasons: dict[str, str] = {}
    rows = []
    for fault in FAULTS:
        squares = []
        for point in POINTS:
            cell = Cell(family.name, point.name, fault.name)
            outcome = outcomes.get(cell.name)
            reason = cell.impossible or unplayed[cell.name]
            if outcome is not None and outcome.verdict != "void" and not cell.impossible:
                squares.append(f"[{_verdict(outcome)}](#{_anchor(cell.name)})")
            elif reason:
                letter = reasons.setdefault(reason, _letter(len(reasons)))
                squares.append(letter if cell.impossible else f"not run {letter}")
            else:
                squares.append("not run")
        rows.append(f"| {fault.name} | " + " | ".join(squares) + " |")
    return [
        f"## {family.title}",
        "",
        "| | " + " | ".join(point.name for point in POINTS) + " |",
        "|---" * (len(POINTS) + 1) + "|",
        *rows,
        "",
        *[f"{letter}: {reason}.  " for reason, letter in reasons.items()],
        "",
    ]


def _lines(family: Family, outcomes: Mapping[str, Outcome]) -> list[str]:
    mine = _played([cell for cell in cells() if cell.family == family.name], outcomes)
    if not mine:
        return []
    lines = [f"## {family.title}: the cells played", ""]
    for outcome in mine:
        at = f", {outcome.commit}" if outcome.commit else ""
        parts = [f"{_verdict(outcome)}, seed {outcome.seed}, {outcome.seconds:.0f} s{at}"]
        parts += (
            [_text(outcome.note, 400 if outcome.verdict == "red" else STOP_CHARACTERS)]
            if outcome.note
            else []
        )
        parts += [f"it stopped with {_text(stop, STOP_CHARACTERS)}" for stop in outcome.stops]
        lines.append(f'- <a id="{_anchor(outcome.cell)}"></a>`{outcome.cell}`: {"; ".join(parts)}')
    return [*lines, ""]


def _verdict(outcome: Outcome) -> str:
    if outcome.verdict == "red":
        return "RED"
    return f"ok+{len(outcome.stops)}" if outcome.stops else "ok"


def _anchor(cell: str) -> str:
    return cell.replace(":", "-")


def _letter(number: int) -> str:
    return chr(ord("a") + number)


def _text(text: str, characters: int) -> str:
    """One line, without what Markdown would take for its own."""
    flat = (
        " ".join(text.split())
        .replace("|", "/")
        .replace("<", "(")
        .replace(">", ")")
        .replace("`", "'")
    )
    return flat if len(flat) <= characters else f"{flat[:characters]} ..."
