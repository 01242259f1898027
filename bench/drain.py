"""Draining a topic: every contender in every round, in turn; small and large loads, so that
start-up falls out.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from dataclasses import dataclass

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


def bench(kafka: LocalKafka, rounds: int, scale: float = 1.0) -> None:
    for name, (small, large) in PAIRS.items():
        pair = (
            Load(int(small.records * scale), small.bytes),
            Load(int(large.records * scale), large.bytes),
        )
        for load in pair:
            report.console.print(f"writing {load.records:,} records of {load.bytes} bytes ...")
            fill(kafka, load)
        cells: dict[str, list[Cell]] = defaultdict(list)
        for number in range(rounds):
            # Rotating the order keeps any advantage of going first or last out of the medians.
            order = CONTENDERS[number % 3 :] + CONTENDERS[: number % 3]
            for contender in order:
                cell = Cell(*(once(kafka, contender, load, number) for load in pair))
                cells[contender].append(cell)
                rate, cpu_us = cell.steady(pair)
                report.console.print(
                    f"{name} round {number + 1}/{rounds} {contender:22} {cell.small.wall_s:6.2f} s "
                    f"{cell.large.wall_s:6.2f} s   steady {rate / 1000:7.0f} k/s {cpu_us:5.2f} us "
                    "CPU a record"
                )
        show(name, pair, cells)


def once(kafka: LocalKafka, contender: str, load: Load, number: int) -> Run:
    target = f"out-{load.topic}-{CONTENDERS.index(contender)}-{number}"
    kafka.create_topic(target, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as checkpoint:
        result = run([contender, kafka.bootstrap_servers, load.topic, target, checkpoint])
    kafka.delete_topic(target)
    return result


def show(name: str, pair: tuple[Load, Load], cells: dict[str, list[Cell]]) -> None:
    base = [c.steady(pair) for c in cells[CONTENDERS[2]]]
    rows = []
    for contender in CONTENDERS:
        mine = cells[contender]
        steady = [c.steady(pair) for c in mine]
        rows.append(
            [
                contender,
                report.spread([c.small.wall_s for c in mine]),
                report.spread([c.large.wall_s for c in mine]),
                report.spread([c.small.cpu_s for c in mine]),
                report.spread([c.large.cpu_s for c in mine]),
                report.spread([rate / 1000 for rate, _ in steady], 0),
                report.ratios([rate for rate, _ in steady], [rate for rate, _ in base]),
                report.spread([cpu for _, cpu in steady]),
                report.ratios([cpu for _, cpu in steady], [cpu for _, cpu in base]),
            ]
        )
    report.table(
        f"{name} values, {pair[0].records:,} and {pair[1].records:,} records, 4 partitions, "
        "local[2]: median (min to max)",
        [
            "contender",
            "wall s, small",
            "wall s, large",
            "CPU s, small",
            "CPU s, large",
            "steady k/s",
            "ratio to Spark's",
            "CPU us a record",
            "ratio to Spark's",
        ],
        rows,
    )
