"""Tables of a lakehouse: large loads, small micro-batches one after the other, and what a commit
costs in a table that has many files or many versions already.

    python -m bench.tables [--rounds 3] [--scale 1] [--live 1 1000 100000]
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

import exactum
from bench import report, targets
from bench.loader import DELTA, DELTA_BY_HAND, SPARK_DELTA
from bench.process import run
from exactum.events import EpochCompleted, Event
from exactum.files.slot_log import SlotLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from exactum.storage.folder import Folder

CONTENDERS = (DELTA, DELTA_BY_HAND, SPARK_DELTA)
BATCHES = 40
ROWS_PER_BATCH = 1_000
WARM_UP = 10
"""Micro-batches at the beginning that are not counted: everybody starts cold."""
EPOCHS = 30
COLUMNS = (("a", "bigint"), ("b", "bigint"), ("c", "string"))


def rows(first: int, count: int = ROWS_PER_BATCH) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"a": numbers, "b": numbers, "c": [f"text-{n:014d}" for n in numbers]})


def small_batches(rounds: int) -> None:
    """How long a micro-batch of a thousand rows takes, one of them after the other."""
    took_ms: dict[str, list[float]] = defaultdict(list)
    worst_ms: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder, "in")
        given.mkdir()
        for number in range(BATCHES):
            pq.write_table(rows(number * ROWS_PER_BATCH), given / f"{number}.parquet")
        for number in range(rounds):
            turn = number % len(CONTENDERS)
            for contender in CONTENDERS[turn:] + CONTENDERS[:turn]:
                table = Path(folder, "out")
                shutil.rmtree(table, ignore_errors=True)
                with tempfile.TemporaryDirectory() as checkpoint:
                    arguments = [contender, "delta", str(table), str(given), checkpoint, "1"]
                    result = run(arguments, module="bench.loader")
                if (found := DeltaTable(table).count()) != BATCHES * ROWS_PER_BATCH:
                    raise RuntimeError(f"{contender}: {found:,} rows")
                batches_ms = sorted(result.output["batches_ms"][WARM_UP:BATCHES])
                took_ms[contender].append(batches_ms[len(batches_ms) // 2])
                worst_ms[contender].append(batches_ms[-1])
                report.console.print(
                    f"round {number + 1}/{rounds} {contender:20} {took_ms[contender][-1]:,.0f} ms"
                )
    report.table(
        f"a micro-batch of {ROWS_PER_BATCH:,} rows into a Delta table: median (min to max)",
        ["contender", "p50 ms", f"ratio to {CONTENDERS[-1]}", "slowest ms"],
        [
            [
                contender,
                report.spread(took_ms[contender], 0),
                report.ratios(took_ms[contender], took_ms[CONTENDERS[-1]]),
                report.spread(worst_ms[contender], 0),
            ]
            for contender in CONTENDERS
        ],
    )


def commit(live: int, versions: int) -> tuple[list[float], int]:
    """The commits' times, in ms, in a table with so many live files in so many versions; and this
    process's peak memory, in MiB.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        made(path, live, versions)
        sink = exactum.DeltaSink(path)
        query = QueryRun("bench", new_incarnation(), Guarantee.EXACTLY_ONCE)
        opened = sink.open(query, sink.name, COLUMNS)
        took_ms: list[float] = []

        def note(event: Event) -> None:
            if isinstance(event, EpochCompleted):
                took_ms.append(event.phase_ms["commit"])

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            writer = opened.writers.open(order, TaskName(0, 0, 0))
            writer.write(rows(0, 100).to_batches()[0])
            prepared = writer.prepare()
            return [] if prepared is None else [prepared]

        log = SlotLog(Folder(Path(folder, "log")), query.query_id)
        coordinator = Coordinator(query, [opened.participant], log, on_event=note)
        for batch_id in range(EPOCHS):
            coordinator.run(batch_id, SourceOffsets((), (str(batch_id),)), write)
        coordinator.close()
        return took_ms, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def made(path: Path, live: int, versions: int) -> None:
    """A Delta table that names so many files, added in so many commits. The files are not there."""
    table = DeltaTable.create(path, Schema.from_arrow(rows(0, 1).schema))
    each = max(live // versions, 1)
    now_ms = int(time.time() * 1000)
    for first in range(0, live, each):
        added = [
            AddAction(f"f{number}.parquet", 1000, {}, now_ms, True, '{"numRecords": 1}')
            for number in range(first, min(first + each, live))
        ]
        table.create_write_transaction(added, "append", table.schema())
        table.update_incremental()


def commits(lives: Sequence[int]) -> None:
    """Each in a process of its own, for its memory."""
    drawn = []
    for live in lives:
        for versions in sorted({1, min(live, 1_000)}):
            command = [sys.executable, "-m", "bench.tables", "--commit", str(live), str(versions)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            *times, peak_mib = [float(word) for word in said.split()]
            early, late = times[1 : EPOCHS // 2], times[EPOCHS // 2 :]
            drawn.append(
                [
                    f"{live:,}",
                    f"{versions:,}",
                    report.spread(early, 1),
                    report.spread(late, 1),
                    f"{peak_mib:,.0f}",
                ]
            )
    report.table(
        "DeltaSink's commit of 100 rows: median (min to max)",
        ["live files", "versions", "ms, epochs 1 to 14", "ms, epochs 15 to 29", "peak MiB"],
        drawn,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of the small micro-batches (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the large loads (1)")
    parser.add_argument("--live", type=int, nargs="*", default=[1, 1_000, 100_000])
    parser.add_argument("--commit", type=int, nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.commit is not None:
        times, peak_mib = commit(*chosen.commit)
        print(*times, peak_mib)
        return
    report.console.print(report.machine())
    commits(chosen.live)
    if chosen.rounds:
        targets.bench(chosen.rounds, chosen.scale, ("delta", "iceberg"))
        small_batches(chosen.rounds)


if __name__ == "__main__":
    main()
