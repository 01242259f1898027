"""The real coordinator under random schedules, by the million, and the broken ones under the same
schedules.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from model.broken import BROKEN, Broken
from model.simulation import SimulationReport, Violation, checked, play, schedules

CHUNK = 2_500
"""Schedules that one process plays in a row; chunk n of a seed is the same whoever plays it."""
HUNT_MAX = 300_000
"""Schedules after which a broken protocol counts as unnoticed."""
QUIET = ("OlderRuns", "Epoch", "Leftovers", "ended: ran to the end", "ended: Crash")
"""Begin the names of what happens without any disturbance."""


@dataclass
class Tally:
    """What happened in many runs: how often, and in how many of the runs."""

    runs: int = 0
    disturbed: int = 0
    times: Counter[str] = field(default_factory=Counter)
    in_runs: Counter[str] = field(default_factory=Counter)
    traces: array[int] = field(default_factory=lambda: array("q"))

    def add(self, outcome: SimulationReport) -> None:
        self.runs += 1
        happened = +outcome.happened
        self.times.update(happened)
        self.in_runs.update(happened.keys())
        self.disturbed += any(not name.startswith(QUIET) for name in happened)
        self.traces.append(outcome.trace)

    def merge(self, other: Tally) -> None:
        self.runs += other.runs
        self.disturbed += other.disturbed
        self.times.update(other.times)
        self.in_runs.update(other.in_runs)
        self.traces.extend(other.traces)


def play_chunk(work: tuple[int, int, int]) -> Tally:
    """Play chunk ``number`` of a seed. Raises Violation."""
    seed, number, runs = work
    tally = Tally()
    for schedule in schedules(chunk_seed(seed, number), runs):
        tally.add(checked(play(schedule)))
    return tally


def chunk_seed(seed: int, number: int) -> int:
    return seed * 1_000_003 + number


def run(console: Console, seed: int, runs: int, processes: int) -> bool:
    """Play ``runs`` schedules in ``processes`` processes and print what happened. True if every
    promise was kept.
    """
    console.print(
        f"{runs:,} random schedules of the real coordinator, seed {seed}, {processes} processes"
    )
    began_s, total = time.monotonic(), Tally()
    try:
        for tally in _tallies(console, seed, runs, processes):
            total.merge(tally)
    except Violation as violation:
        console.print(
            f"BROKEN after {total.runs:,} schedules. To see it again:\n{violation}", markup=False
        )
        return False
    except KeyboardInterrupt:
        console.print(f"Interrupted after {total.runs:,} schedules.")
        if not total.runs:
            return True
    took_s = time.monotonic() - began_s
    table = Table("what happened", "times", "in schedules", "of all")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, times in sorted(total.times.items()):
        share = total.in_runs[name]
        table.add_row(name, f"{times:,}", f"{share:,}", f"{share / total.runs:.1%}")
    console.print(table)
    console.print(
        f"{total.runs:,} schedules, {len(set(total.traces)):,} different runs, {total.disturbed:,} "
        f"of them disturbed; {took_s:,.0f} s, {total.runs / took_s:,.0f} a second. No promise was "
        "broken."
    )
    return True


def _tallies(console: Console, seed: int, runs: int, processes: int) -> Iterator[Tally]:
    work = [(seed, i, min(CHUNK, runs - i * CHUNK)) for i in range(-(-runs // CHUNK))]
    # Forked, so that equal runs have equal traces in all processes; from a process that has no
    # threads and no clients, for to fork one that has them, and to collect their garbage, ends in a
    # segmentation fault.
    with multiprocessing.get_context("forkserver").Pool(processes, _be_quiet) as pool:
        done, began_s = 0, time.monotonic()
        for tally in pool.imap_unordered(play_chunk, work):
            done += tally.runs
            if done * 20 // runs > (done - tally.runs) * 20 // runs:
                rate = done / (time.monotonic() - began_s)
                console.print(f"{done:,} schedules, {rate:,.0f} a second")
            yield tally


def _be_quiet() -> None:
    """What the coordinator warns of is what the schedules do to it."""
    logging.getLogger("exactum").setLevel(logging.CRITICAL)


# ---- broken on purpose ---------------------------------------------------------------------------


def hunt(console: Console, seed: int, processes: int) -> bool:
    """Play the same schedules with every broken protocol until each is caught. True if all of them
    are.
    """
    table = Table("broken on purpose", "caught after", "by", "schedule")
    table.columns[1].justify = "right"
    with multiprocessing.get_context("fork").Pool(processes, _be_quiet) as pool:
        found = pool.starmap(
            _caught_after, [(seed, number) for number in range(len(BROKEN))], chunksize=1
        )
    for broken, caught in zip(BROKEN, found, strict=True):
        after, schedule, words = caught or (0, "", f"NOT CAUGHT in {HUNT_MAX:,} schedules")
        table.add_row(broken.name, f"{after:,}" if caught else "-", words, schedule)
    console.print(table)
    return all(found)


def _caught_after(seed: int, number: int) -> tuple[int, str, str] | None:
    return caught_after(BROKEN[number], seed)


def caught_after(broken: Broken, seed: int) -> tuple[int, str, str] | None:
    """The number of the schedule that caught it, that schedule, and what the oracle said."""
    played = 0
    for chunk in range(HUNT_MAX // CHUNK):
        for schedule in schedules(chunk_seed(seed, chunk), CHUNK):
            played += 1
            outcome = play(schedule, broken.system)
            if outcome.violations:
                return played, str(schedule), outcome.violations[0]
    return None


def default_processes() -> int:
    return os.cpu_count() or 1
