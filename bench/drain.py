"""Draining a topic: every contender in every round, in turn; small and large loads, so that
start-up falls out.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import report
from bench.contender import CONTENDERS
from bench.load import PARTITIONS, Load, fill
from bench.process import Run, run
from exactum.local import LocalKafka

PAIRS = {
    "100 B": (Load(500_000, 100), Load(4_000_000, 100)),
    "1 KB": (Load(100_000, 1000), Load(800_000, 1000)),
}


@dataclass(frozen=True)
class Cell:
    """One contender in one round: its run on the small and on the large load."""

    small: Run
    large: Run

    def steady(self, pair: tuple[Load, Load]) -> tuple[float, float]:
        """(records per second, microseconds of CPU per record) of what the large load has more."""
        more = pair[1].records - pair[0].records
        return (
            more / (self.large.wall_s - self.small.wall_s),
            (self.large.cpu_s - self.small.cpu_s) * 1e6 / more,
        )


@dataclass(frozen=True)
class Contender:
    """One of ``bench.contender``, of this checkout or of another one."""

    name: str
    checkout: Path | None = None

    def __str__(self) -> str:
        return self.name if self.checkout is None else f"{self.name}, {self.checkout.name}"


def bench(kafka: LocalKafka, rounds: int, scale: float = 1.0, against: Path | None = None) -> None:
    """``against``: another checkout, built with ``make setup``, whose exactum takes part."""
    contenders = [Contender(name) for name in CONTENDERS]
    if against is not None:
        contenders += [Contender(name, against) for name in CONTENDERS[:2]]
    for name, (small, large) in PAIRS.items():
        pair = (
            Load(int(small.records * scale), small.bytes),
            Load(int(large.records * scale), large.bytes),
        )
        for load in pair:
            report.console.print(f"writing {load.records:,} records of {load.bytes} bytes ...")
            fill(kafka, load)
        cells: dict[Contender, list[Cell]] = defaultdict(list)
        for number in range(rounds):
            # Rotating the order keeps any advantage of going first or last out of the medians.
            first = number % len(contenders)
            for contender in contenders[first:] + contenders[:first]:
                target = f"{number}-{contenders.index(contender)}"
                cell = Cell(*(once(kafka, contender, load, target) for load in pair))
                cells[contender].append(cell)
                rate, cpu_us = cell.steady(pair)
                report.console.print(
                    f"{name} round {number + 1}/{rounds} {contender!s:22} "
                    f"{cell.small.wall_s:6.2f} s {cell.large.wall_s:6.2f} s   steady "
                    f"{rate / 1000:7.0f} k/s {cpu_us:5.2f} us CPU a record"
                )
        theirs = Contender(CONTENDERS[2])
        show(name, pair, contenders, cells, theirs)
        if against is not None:
            for ours in contenders[:2]:
                other = Contender(ours.name, against)
                show(f"{name}, against {against.name}", pair, (ours, other), cells, other)


def once(kafka: LocalKafka, contender: Contender, load: Load, target: str) -> Run:
    target = f"out-{load.topic}-{target}"
    kafka.create_topic(target, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as checkpoint:
        arguments = [contender.name, kafka.bootstrap_servers, load.topic, target, checkpoint]
        result = run(arguments, checkout=contender.checkout)
    kafka.delete_topic(target)
    return result


def show(
    name: str,
    pair: tuple[Load, Load],
    contenders: Sequence[Contender],
    cells: dict[Contender, list[Cell]],
    base: Contender,
) -> None:
    """The table of these contenders, with ratios to ``base``."""
    bases = [c.steady(pair) for c in cells[base]]
    rows = []
    for contender in contenders:
        mine = cells[contender]
        steady = [c.steady(pair) for c in mine]
        rows.append(
            [
                str(contender),
                report.spread([c.small.wall_s for c in mine]),
                report.spread([c.large.wall_s for c in mine]),
                report.spread([c.small.cpu_s for c in mine]),
                report.spread([c.large.cpu_s for c in mine]),
                report.spread([rate / 1000 for rate, _ in steady], 0),
                report.ratios([rate for rate, _ in steady], [rate for rate, _ in bases]),
                report.spread([cpu for _, cpu in steady]),
                report.ratios([cpu for _, cpu in steady], [cpu for _, cpu in bases]),
            ]
        )
    report.table(
        f"{name}: {pair[0].records:,} and {pair[1].records:,} records, 4 partitions, "
        "local[2]: median (min to max)",
        [
            "contender",
            "wall s, small",
            "wall s, large",
            "CPU s, small",
            "CPU s, large",
            "steady k/s",
            f"ratio to {base}",
            "CPU us a record",
            f"ratio to {base}",
        ],
        rows,
    )
