"""A driver that copies a topic, epoch by epoch, in one way after the other. A process of its own.

Usage: python -m bench.live.job JSON, the fields of ``Job``. Prints a line of JSON for each life of
a query.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, SparkSession

import exactum
from bench.live.task import LiveTask
from bench.process import CLOCK_TICKS_PER_S, stat, tree
from exactum.checkpoint.partition_offsets import from_json
from exactum.events import EpochCompleted, Event
from exactum.protocol.model import SourceOffsets
from exactum.protocol.sink import WriteOrder
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.jvm.packed_job import PackedJob
from exactum.spark.run import epoch_runner, small_epoch
from exactum.spark.write import packing, write_job
from exactum.spark.write.packed_records import Layout

COLUMNAR, FEW, TASKS, LANES = "columnar", "few", "tasks", "lanes"
WAYS = (COLUMNAR, FEW, TASKS, LANES)
"""Today's; today's in as many tasks as there are lanes; a task for each partition, in whatever
worker Spark gives it; two lanes, each with half of the partitions and a worker of its own. In the
last two consumers live on and read ahead.
"""
LANES_COUNT = 2
LANE = "EXACTUM_LANE"
"""Workers of jobs with another environment are others: so a lane has its own."""


@dataclass(frozen=True)
class Job:
    """``per_epoch``: records of all partitions."""

    servers: str
    source: str
    targets: list[str]
    ways: list[str]
    broker: int
    folder: str
    per_epoch: int


@dataclass
class Live:
    """The prototype in the place of ``Packing`` and of packed write jobs."""

    session: SparkSession
    job: Job
    way: str

    def __post_init__(self) -> None:
        self._ranges: list[tuple[str, int, int, int]] = []
        self._jobs: list[PackedJob] = []

    def sizes(self, offsets: SourceOffsets) -> list[int]:
        """``partition_sizes``, and the ranges kept for the job that is to come."""
        before = from_json(offsets.start[0]) if offsets.start else {}  # the topic begins at 0
        self._ranges = [
            (topic, number, before.get((topic, number), 0), end)
            for (topic, number), end in sorted(from_json(offsets.end[0]).items())
            if end > before.get((topic, number), 0)
        ]
        return small_epoch.partition_sizes(offsets)

    def of(self, frame: DataFrame) -> packing.PackedFrame:
        """Every frame is the copied topic's."""
        columns = tuple((number, False, name) for number, name in enumerate(frame.columns))
        return packing.PackedFrame(frame.sparkSession, None, Layout((), columns, "UTC"))

    def run_packed(
        self, job: write_job.WriteJob, packed: packing.PackedFrame, order: WriteOrder, _: Tasks
    ) -> write_job.Written:
        if not self._jobs:
            columns = tuple(name for _, _, name in packed.layout.columns)
            task = LiveTask(job._task, self.job.servers, columns)
            for lane in range(LANES_COUNT if self.way == LANES else 1):
                if self.way == LANES:
                    self.session.sparkContext.environment[LANE] = str(lane)
                self._jobs.append(PackedJob(self.session, task))
            self.session.sparkContext.environment.pop(LANE, None)
        with write_job.errors_of_jobs():
            write_job._tell(self.session, order)
            return job._written(self._texts())

    def _texts(self) -> list[str]:
        context: Any = self.session.sparkContext
        applied = []
        for number, job in enumerate(self._jobs):
            mine = self._ranges[number :: len(self._jobs)]
            shares = [mine] if self.way == LANES else [[one] for one in mine]
            texts = [bytearray(json.dumps(share).encode()) for share in shares]
            applied.append(job._applied(context._jsc.parallelize(texts, len(texts))))
        whole = applied[0]
        for other in applied[1:]:
            whole = whole.union(other)
        lines = str(self._jobs[0]._batches.lines(whole.collectAsync().get()))
        return lines.split("\n") if lines else []


@contextmanager
def taken(live: Live) -> Iterator[None]:
    """Queries that start within are written in the prototype's way."""

    def run_packed(
        job: write_job.WriteJob, packed: packing.PackedFrame, order: WriteOrder, tasks: Tasks
    ) -> write_job.Written:
        return live.run_packed(job, packed, order, tasks)

    with (
        mock.patch.object(epoch_runner, "partition_sizes", live.sizes),
        mock.patch.object(packing.Packing, "of", lambda _, frame: live.of(frame)),
        mock.patch.object(write_job.WriteJob, "run_packed", run_packed),
    ):
        yield


@contextmanager
def in_few_tasks() -> Iterator[None]:
    """Queries that start within are written in today's way, in ``LANES_COUNT`` tasks."""
    few = Tasks(LANES_COUNT)
    with mock.patch.object(epoch_runner.EpochRunner, "_tasks", return_value=few):
        yield


def spent_s(pid: int, *, whole: bool) -> float:
    """User and system time of a process, or of its tree with those of it that have ended."""
    total = 0
    for one in [each for each, _ in tree(pid)] if whole else [pid]:
        fields = stat(one)
        if fields is not None:
            total += sum(map(int, fields[11:15] if whole else fields[11:13]))
    return total / CLOCK_TICKS_PER_S


def copied(spark: SparkSession, job: Job, way: str, target: str) -> dict[str, Any]:
    """One life of a query: when each epoch stood, and what had been spent by then."""
    told: list[tuple[float, float, float]] = []

    def note(event: Event) -> None:
        if isinstance(event, EpochCompleted):
            told.append(
                (
                    time.perf_counter(),
                    spent_s(os.getpid(), whole=True),
                    spent_s(job.broker, whole=False),
                )
            )

    frame = exactum.read_kafka(
        spark, job.source, bootstrap_servers=job.servers, maxOffsetsPerTrigger=job.per_epoch
    )
    sink = exactum.KafkaSink(target, bootstrap_servers=job.servers)
    began_s = time.perf_counter()
    query = (
        frame.selectExpr("key", "value")
        .writeStream.option("checkpointLocation", str(Path(job.folder, target)))
        .foreachBatch(exactum.exactly_once(sink, on_event=note))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    whole_s = time.perf_counter() - began_s
    return {"way": way, "target": target, "told": told, "query_s": whole_s}


def around(spark: SparkSession, job: Job, way: str) -> AbstractContextManager[None]:
    """Within, a query is written in this way."""
    if way == COLUMNAR:
        return nullcontext()
    return in_few_tasks() if way == FEW else taken(Live(spark, job, way))


def main(job: Job) -> None:
    spark = exactum.local_session("live", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    for way, target in zip(job.ways, job.targets, strict=True):
        with around(spark, job, way):
            found = copied(spark, job, way, target)
        print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
