"""Micro-batches of few records at so many partitions: what the driver takes and what the tasks
take, on this machine alone (``local[*]``) and on a standalone cluster of ten workers on it.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import epochs, report
from bench.load import fill
from bench.process import run
from bench.scale.job import SEEN
from bench.scale.point import BatchSeen, Point
from bench.scale.task_times import covered_ms, task_spans
from exactum.local import LocalKafka
from tests.kit.standalone.machines import JVM_OPTIONS, Machines

BATCHES = {1: (30, 10), 4: (30, 10), 16: (30, 10), 64: (14, 4), 256: (8, 3)}
"""Of each number of partitions: how many micro-batches, and how many of them do not count."""
WARM_UP = Point(4, planned=False, batches=50, skipped=50)
"""At the start of a life, while the JVM is cold, before a whole round that does not count."""
WORKERS = 10
HOSTS = tuple(f"127.0.0.{number}" for number in range(2, 2 + WORKERS))
PHASES = ("write", *epochs.PHASES)
CLUSTER = {
    "spark.cores.max": WORKERS,
    "spark.executor.cores": 1,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(JVM_OPTIONS),
    "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
Seen = dict[Point, list[BatchSeen]]


def points(widths: Sequence[int]) -> list[Point]:
    """Each width in exactum's tasks, and where these are fewer also in Spark's."""
    return [
        Point(width, planned, *BATCHES[width])
        for width in widths
        for planned in ((False, True) if width > 1 else (False,))
    ]


def local(kafka: LocalKafka, widths: Sequence[int], rounds: int) -> None:
    slots = os.cpu_count() or 1
    seen = life(kafka, "local[*]", points(widths), rounds, {})
    tell(f"micro-batches on this machine, local[*], {slots} slots", seen, slots)


def cluster(kafka: LocalKafka, widths: Sequence[int], rounds: int) -> None:
    """Each worker is a host of its own to Spark, and all share this machine's cores."""
    with tempfile.TemporaryDirectory() as folder, Machines(Path(folder), HOSTS) as machines:
        chosen = [Point(p.partitions, p.planned, 20, 5) for p in points(widths)]
        seen = life(kafka, machines.url, chosen, rounds, dict(CLUSTER))
    tell(f"micro-batches on a standalone cluster, {WORKERS} workers of a slot each", seen, WORKERS)


def life(
    kafka: LocalKafka,
    master: str,
    chosen: Sequence[Point],
    rounds: int,
    settings: Mapping[str, Any],
) -> Seen:
    """A driver that runs the points in turn, in every other round from the last to the first. The
    first round does not count: the JVM compiles for minutes.
    """
    order = [WARM_UP]
    for number in range(rounds + 1):
        order += reversed(chosen) if number % 2 else chosen
    for load, partitions in {(point.load, point.partitions) for point in order}:
        fill(kafka, load, partitions)
        kafka.create_topic(f"{load.topic}-out", partitions=partitions)
    with tempfile.TemporaryDirectory() as folder:
        job = {
            "master": master,
            "servers": kafka.bootstrap_servers,
            "folder": folder,
            "points": [asdict(point) for point in order],
            "settings": settings,
        }
        run([json.dumps(job)], timeout_s=1_800, module="bench.scale.job")
        told = json.loads(Path(folder, SEEN).read_text())
        (log,) = Path(folder, "log").iterdir()
        spans = task_spans(log)
    seen: Seen = defaultdict(list)
    uncounted = 1 + len(chosen)
    for point, of_query in zip(order[uncounted:], told[uncounted:], strict=True):
        seen[point] += batches_of(of_query, spans)[point.skipped :]
    return seen


def batches_of(of_query: Mapping[str, Any], spans: Mapping[Any, Any]) -> list[BatchSeen]:
    """The micro-batches of one query of which all three have told: Spark, exactum and the log."""
    found = []
    for epoch in of_query["epochs"]:
        batch_id = epoch["batch_id"]
        of_spark = of_query["progress"].get(str(batch_id))
        tasks = spans.get((of_query["query_id"], batch_id))
        if of_spark is None or tasks is None:
            continue
        found.append(
            BatchSeen(
                duration_ms=of_spark["triggerExecution"],
                with_tasks_ms=covered_ms(tasks),
                tasks=len(tasks),
                task_ms=statistics.mean(end - begin for begin, end in tasks),
                phases=epoch["phase_ms"],
                spark=of_spark,
            )
        )
    return found


def tell(title: str, seen: Seen, slots: int) -> None:
    rows = []
    for point, batches in seen.items():
        in_sum = [sum(b.phases[p] for p in PHASES[1:]) for b in batches]
        rows.append(
            [
                str(point.partitions),
                point.way,
                report.spread([b.tasks for b in batches], 0),
                report.spread([b.duration_ms for b in batches], 0),
                report.spread([b.with_tasks_ms for b in batches], 0),
                report.spread([b.driver_ms for b in batches], 0),
                report.spread(in_sum, 1),
                report.spread([b.task_ms for b in batches], 0),
                str(len(batches)),
            ]
        )
    report.table(
        f"{title}; ms: median (min to max)",
        [
            "partitions",
            "tasks",
            "number",
            "duration",
            "a task runs",
            "none runs: driver",
            "of it exactum's sum",
            "one task",
            "batches",
        ],
        rows,
    )
    report.table(
        "where the driver's time goes, ms: medians",
        [
            "partitions",
            "tasks",
            *PHASES,
            "latestOffset",
            "queryPlanning",
            "walCommit",
            "commitOffsets",
            "getBatch",
        ],
        [
            [
                str(point.partitions),
                point.way,
                *(f"{statistics.median(b.phases[p] for b in batches):.1f}" for p in PHASES),
                *(
                    f"{statistics.median(b.spark.get(p, 0) for b in batches):.0f}"
                    for p in (
                        "latestOffset",
                        "queryPlanning",
                        "walCommit",
                        "commitOffsets",
                        "getBatch",
                    )
                ),
            ]
            for point, batches in seen.items()
        ],
    )
