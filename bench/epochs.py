"""What an epoch costs beyond Spark's own share, at 1, 4 and 16 partitions, early and after a
thousand epochs.

The coordinator, the participant, the log and the writers are the real ones on a real broker; only
Spark is left out, so that a thousand epochs take minutes. The tasks of an epoch run one after
another here, so ``prepare`` is given for one task.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from bench import report
from exactum.events import EpochCompleted, Event
from exactum.files.slot_log import SlotLog
from exactum.kafka.sink import KafkaSink
from exactum.local import LocalKafka
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder
from exactum.storage.folder import Folder

PARTITIONS = (1, 4, 16)
PHASES = ("verify", "decide", "commit", "sweep")
COSTS = ("prepare, one task", *PHASES, "driver's sum")
ROWS = pa.record_batch({"value": pa.array([b"x" * 100] * 100)})
RETAINED = 100
PAUSE_S = 0.06
"""Spark's own share between two epochs is 70 ms and more; without it producers could not be
ready ahead of need.
"""


def bench(kafka: LocalKafka, epochs: int = 1_000) -> None:
    rows = []
    for partitions in PARTITIONS:
        report.console.print(f"{epochs} epochs of {partitions} tasks ...")
        prepare_ms, completed = measure(kafka, partitions, epochs)
        for label, chosen in (
            ("10 to 60", slice(10, 60)),
            (f"last 50 of {epochs}", slice(epochs - 50, epochs)),
        ):
            rows.append([str(partitions), label, *costs(prepare_ms, completed, chosen)])
    report.table(
        "what an epoch costs beyond Spark's share, ms: median (min to max)",
        ["partitions", "epochs", *COSTS],
        rows,
    )


def costs(
    prepare_ms: Sequence[float], completed: Sequence[EpochCompleted], chosen: slice
) -> list[str]:
    """The cells under ``COSTS`` for these epochs."""
    mine = completed[chosen]
    cells = [report.spread([e.phase_ms[p] for e in mine], 1) for p in PHASES]
    total = report.spread([sum(e.phase_ms[p] for p in PHASES) for e in mine], 1)
    return [report.spread(prepare_ms[chosen], 1), *cells, total]


def measure(
    kafka: LocalKafka, partitions: int, epochs: int
) -> tuple[list[float], list[EpochCompleted]]:
    """(mean time of one task's begin, write and flush; the completed events), epoch by epoch."""
    topic = f"epochs-{partitions}-{epochs}"
    kafka.create_topic(topic, partitions=partitions)
    sink = KafkaSink(topic, bootstrap_servers=kafka.bootstrap_servers)
    run = QueryRun(topic, new_incarnation(), Guarantee.EXACTLY_ONCE)
    opened = sink.open(run, sink.name)
    completed: list[EpochCompleted] = []
    prepare_ms: list[float] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochCompleted):
            completed.append(event)

    def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
        began_s = time.perf_counter()
        prepared = []
        for number in range(partitions):
            writer = opened.writers.open(order, TaskName(number, 0, 0))
            writer.write(ROWS)
            prepared.append(writer.prepare())
        prepare_ms.append((time.perf_counter() - began_s) * 1000 / partitions)
        return [p for p in prepared if p is not None]

    with tempfile.TemporaryDirectory() as folder:
        log = SlotLog(Folder(Path(folder)), run.query_id)
        coordinator = Coordinator(run, [opened.participant], log, on_event=note)
        for batch_id in range(epochs):
            coordinator.run(batch_id, SourceOffsets((), (str(batch_id),)), write)
            coordinator.prune(batch_id - RETAINED)
            time.sleep(PAUSE_S)
        coordinator.close()
    return prepare_ms, completed
