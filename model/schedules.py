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
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from model.broken import BROKEN, Broken
from model.process import SPARKS_OWN
from model.simulation import SimulationReport, Violation, checked, play, schedules

CHUNK = 2_500
"""Schedules that one process plays in a row; chunk n of a seed is the same whoever plays it."""
HUNT_MAX = 300_000
"""Schedules after which a broken protocol counts as unnoticed."""
QUIET = ("OlderRuns", "Epoch", "Leftovers", "ended: ran to the end", "ended: Crash")
"""Begin the names of what happens without any disturbance."""

WHAT: tuple[tuple[str, str], ...] = (
    ("incarnations and finishers that died", "ended: Crash"),
    ("transactions that expired", "transactions expired"),
    ("of them found expired after the decision", "TransactionsExpired"),
    ("salvages that were recorded", "TransactionsSalvaged"),
    ("decided epochs reported as lost (HeuristicOutcome)", "ended: HeuristicOutcome"),
    ("calls refused", "refused"),
    ("replies lost", "reply lost"),
    ("calls sent twice", "sent twice"),
    ("late tasks", "late tasks"),
    ("starts that fenced older runs", "OlderRunsFenced"),
    ("incarnations that met a foreign record", "IncarnationFenced"),
    ("incarnations that ended as Fenced", "ended: Fenced"),
    ("incarnations stopped by Spark's own check", "ended: SparkStopped"),
    ("incarnations that began below the floor", "ended: CheckpointRefused"),
    ("attempts abandoned", "EpochAbandoned"),
    ("epochs decided", "EpochDecided"),
    ("epochs redelivered", "EpochRedelivered"),
    ("batches finished by a finisher", "batches finished by a finisher"),
    ("transactions aborted by an operator", "aborted by an operator"),
    ("sweeps that aborted something", "LeftoversSwept"),
)


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
        self.in_runs.update({name.partition(":")[0] for name in happened if ":" in name})
        self.disturbed += any(not name.startswith(QUIET) for name in happened)
        self.traces.append(outcome.trace)

    def merge(self, other: Tally) -> None:
        self.runs += other.runs
        self.disturbed += other.disturbed
        self.times.update(other.times)
        self.in_runs.update(other.in_runs)
        self.traces.extend(other.traces)

    def count(self, name: str) -> tuple[int, int]:
        """How often what is called ``name``, or begins with it and a colon, and in how many
        runs.
        """
        times = sum(n for key, n in self.times.items() if key == name or key.startswith(f"{name}:"))
        return times, self.in_runs[name]


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
    console.print(_what_happened(total))
    console.print(_by_call(total))
    console.print(
        f"{total.runs:,} schedules, {len(set(total.traces)):,} different runs, {total.disturbed:,} "
        f"of them disturbed; {took_s:,.0f} s, {total.runs / took_s:,.0f} a second. No promise was "
        "broken."
    )
    return True


def _tallies(console: Console, seed: int, runs: int, processes: int) -> Iterator[Tally]:
    work = [(seed, i, min(CHUNK, runs - i * CHUNK)) for i in range(-(-runs // CHUNK))]
    columns = (
        TextColumn("schedules"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    # Forked, so that equal runs have equal traces in all processes; from a process that has no
    # threads and no clients, for to fork one that has them, and to collect their garbage, ends in a
    # segmentation fault.
    with (
        multiprocessing.get_context("forkserver").Pool(processes, _be_quiet) as pool,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=runs)
        done, began_s = 0, time.monotonic()
        for tally in pool.imap_unordered(play_chunk, work):
            done += tally.runs
            progress.update(task, completed=done)
            if not console.is_terminal and done * 20 // runs > (done - tally.runs) * 20 // runs:
                rate = done / (time.monotonic() - began_s)
                console.print(f"{done:,} schedules, {rate:,.0f} a second")
            yield tally


def _be_quiet() -> None:
    """What the coordinator warns of is what the schedules do to it."""
    logging.getLogger("exactum").setLevel(logging.CRITICAL)


def _what_happened(total: Tally) -> Table:
    table = Table("what happened", "times", "in schedules", "of all")
    for column in table.columns[1:]:
        column.justify = "right"
    for text, name in WHAT:
        times, runs = total.count(name)
        table.add_row(text, f"{times:,}", f"{runs:,}", f"{runs / total.runs:.1%}")
    return table


def _by_call(total: Tally) -> Table:
    kinds = ("death before", "refused", "reply lost", "sent twice")
    table = Table("call", *kinds)
    for column in table.columns[1:]:
        column.justify = "right"
    labels = sorted({name.partition(": ")[2] for name in total.times if name.startswith(kinds)})
    for label in sorted(labels, key=lambda text: text in SPARKS_OWN):
        whose = f"{label} (Spark's)" if label in SPARKS_OWN else label
        table.add_row(whose, *(f"{total.times[f'{kind}: {label}']:,}" for kind in kinds))
    return table


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
