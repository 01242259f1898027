"""What was played, as Markdown: how many cells of each fault and sink family were exact."""

from __future__ import annotations

import importlib.metadata
import os
from collections import Counter
from collections.abc import Mapping

from chaos.cell_run import Outcome
from chaos.matrix import FAMILIES, FAULTS, Cell, Family, Fault, cells
from exactum.local.broker import KAFKA_VERSION


def table(outcomes: Mapping[str, Outcome]) -> str:
    """A sentence of totals, one on the circumstances, and the table. ``outcomes``: by cell."""
    every = list(cells())
    possible = [cell for cell in every if not cell.impossible]
    count = Counter(_verdict(cell, outcomes) for cell in possible)
    stopped = sum(
        outcome.verdict == "green" and bool(outcome.stops) for outcome in outcomes.values()
    )
    lines = [
        f"{count['green']} cells exact (in {stopped} the query stopped and was started again), "
        f"{count['red']} red, {count['void']} not played; {len(every) - len(possible)} of "
        f"{len(every)} cannot happen.",
        "",
        _circumstances(outcomes),
        "",
        "| fault | " + " | ".join(family.name for family in FAMILIES) + " |",
        "|---" * (len(FAMILIES) + 1) + "|",
    ]
    for fault in FAULTS:
        squares = [_square(family, fault, possible, outcomes) for family in FAMILIES]
        lines.append(f"| {fault.name} | {' | '.join(squares)} |")
    return "\n".join(lines) + "\n"


def _verdict(cell: Cell, outcomes: Mapping[str, Outcome]) -> str:
    return outcomes[cell.name].verdict if cell.name in outcomes else "void"


def _square(
    family: Family, fault: Fault, possible: list[Cell], outcomes: Mapping[str, Outcome]
) -> str:
    """``15``: all were exact. ``13/15, 1 red``: so many of so many. ``-``: it cannot happen."""
    mine = [cell for cell in possible if (cell.family, cell.fault) == (family.name, fault.name)]
    if not mine:
        return "-"
    count = Counter(_verdict(cell, outcomes) for cell in mine)
    exact = str(count["green"]) if count["green"] == len(mine) else f"{count['green']}/{len(mine)}"
    return f"{exact}, {count['red']} red" if count["red"] else exact


def _circumstances(outcomes: Mapping[str, Outcome]) -> str:
    days = sorted({outcome.at[:10] for outcome in outcomes.values()})
    seeds = sorted({outcome.seed for outcome in outcomes.values()})
    minutes = sum(outcome.seconds for outcome in outcomes.values()) / 60
    return (
        f"Played {' to '.join(dict.fromkeys([*days[:1], *days[-1:]])) or 'on no day'}, "
        f"seeds {', '.join(map(str, seeds)) or '-'}, {minutes:.0f} min of cells, on "
        f"{os.cpu_count()} cores, with PySpark {importlib.metadata.version('pyspark')} and Kafka "
        f"{KAFKA_VERSION}."
    )
