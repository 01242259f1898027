"""What each tuning gains: with and without it, in turn, in one run.

A tuning that a driver can go without for a while is switched every ten epochs of one driver's
life; the others have lives with and without, one after the other.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise

from bench import report
from bench.load import Load, fill
from bench.process import Run, run
from bench.tuned_job import BLOCK, Job
from bench.tuning import TUNINGS, Tuning
from exactum.local import LocalKafka

EPOCHS, OFFSETS = 120, 400
SKIPPED = 20
"""Epochs at the start of a life, while the JVM is cold."""
LOADS = {
    "epoch": Load(EPOCHS * OFFSETS, 100),
    "drain": Load(2_000_000, 100),
    "start": Load(1_000, 100),
}
PARTITIONS = {"epoch": 4, "drain": 1, "start": 4}
"""One for the drain: with as many tasks as cores there is nothing left to overlap."""


def bench(kafka: LocalKafka, rounds: int, only: Sequence[str] = ()) -> None:
    chosen = [each for each in TUNINGS if not only or each.name in only]
    for of in sorted({each.of for each in chosen}):
        fill(kafka, LOADS[of], PARTITIONS[of])
    rows = []
    for tuning in chosen:
        with_ms: list[float] = []
        without_ms: list[float] = []
        for number in range(rounds):
            measure = switched if tuning.switchable else in_lives
            there, out = measure(kafka, tuning, number)
            with_ms += there
            without_ms += out
            report.console.print(f"{tuning.name} round {number + 1}/{rounds}: {there} {out}")
        gained = [b - a for a, b in zip(with_ms, without_ms, strict=True)]
        rows.append(
            [
                tuning.name,
                tuning.room,
                tuning.of,
                report.spread(with_ms, 0),
                report.spread(without_ms, 0),
                report.ratios(without_ms, with_ms),
                report.spread(gained, 1),
            ]
        )
    report.table(
        "what each tuning gains, ms: median (min to max)",
        ["tuning", "room", "of", "with", "without", "ratio", "gain"],
        rows,
    )


def switched(kafka: LocalKafka, tuning: Tuning, number: int) -> tuple[list[float], list[float]]:
    """The medians of the blocks with it and of those without, of one life, in pairs."""
    lasted_ms = epochs_ms(life(kafka, tuning, number, switched=True, there=True))
    blocks = [
        statistics.median(lasted_ms[first : first + BLOCK - 1])
        for first in range(SKIPPED, len(lasted_ms) - BLOCK + 1, BLOCK)
    ]
    pairs = len(blocks) // 2
    # The first block of a life, and so every even one, has the tuning.
    return blocks[0 : 2 * pairs : 2], blocks[1 : 2 * pairs : 2]


def in_lives(kafka: LocalKafka, tuning: Tuning, number: int) -> tuple[list[float], list[float]]:
    """One figure of a life with it and one of a life without; who goes first changes."""
    found = {}
    for there in (True, False) if number % 2 else (False, True):
        run = life(kafka, tuning, number, switched=False, there=there)
        if tuning.of == "epoch":
            found[there] = statistics.median(epochs_ms(run)[SKIPPED:])
        else:
            found[there] = run.wall_s * 1000
    return [found[True]], [found[False]]


def epochs_ms(run: Run) -> list[float]:
    """From the end of one epoch to the end of the next: Spark's share is in it."""
    ends_s = run.output["completed_s"]
    return [(b - a) * 1000 for a, b in pairwise(ends_s)]


def life(kafka: LocalKafka, tuning: Tuning, number: int, *, switched: bool, there: bool) -> Run:
    target = f"tuned-{TUNINGS.index(tuning)}-{number}-{there}"
    for name in (target, f"{target}-2") if tuning.views else (target,):
        kafka.create_topic(name, partitions=PARTITIONS[tuning.of])
    with tempfile.TemporaryDirectory() as checkpoint:
        job = Job(
            servers=kafka.bootstrap_servers,
            source=LOADS[tuning.of].topic,
            target=target,
            checkpoint=checkpoint,
            tuning=tuning.name,
            switched=switched,
            there=there,
            offsets_per_trigger=OFFSETS if tuning.of == "epoch" else 0,
        )
        return run([json.dumps(asdict(job))], module="bench.tuned_job")
