"""What the executors of a Spark cluster see: one small job, before the first start of the query."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from exactum._version import __version__
from exactum.errors import ExactumError
from exactum.ops.doctor.executor_task import DRIVER_FILE, ExecutorSeen, ExecutorTask
from exactum.ops.doctor.finding import DoctorFinding, error, of_failure, ok, warning
from exactum.ops.doctor.folder_probe import work_folder
from exactum.ops.doctor.kafka_cluster import ClusterSubject, connected

AREA = "executors"
TIMEOUT_S = 300.0
"""A cluster may have to start its executors first."""
TASKS_PER_CORE = 2


def findings(
    master: str | None,
    folders: Sequence[Path],
    clusters: Sequence[ClusterSubject],
    databases: Sequence[str],
) -> Iterator[DoctorFinding]:
    """``folders``: that tasks write to; ``databases``: host:port of those that they connect to."""
    addresses = [*databases]
    for cluster in clusters:
        with contextlib.suppress(ExactumError), closing(connected(cluster)) as asked:
            addresses += [node.address for node in asked.nodes()]  # what fails is told there
    with contextlib.ExitStack() as stack:
        works = []
        for folder in folders:
            try:
                work, _ = stack.enter_context(work_folder(folder))
                (work / DRIVER_FILE).write_bytes(secrets.token_bytes(8))
                works.append(str(work))
            except OSError as failure:
                yield of_failure(AREA, failure)
        task = ExecutorTask(tuple(works), tuple(dict.fromkeys(addresses)))
        seen = _run(master, task)
        yield from judged(seen, task)


def _run(master: str | None, task: ExecutorTask) -> list[ExecutorSeen]:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    was_running = SparkContext._active_spark_context is not None
    builder = SparkSession.builder.appName("exactum doctor").config("spark.ui.enabled", "false")
    if master is not None:
        builder = builder.master(master)
    session = builder.getOrCreate()

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        yield from task.of_batches(batches)

    try:
        context = session.sparkContext
        if not was_running:
            context.setLogLevel("ERROR")
        count = max(1, context.defaultParallelism * TASKS_PER_CORE)
        rows = session.range(0, count, 1, count).mapInArrow(look, "seen string").collect()
        return [ExecutorSeen.of(row.seen) for row in rows]
    finally:
        if not was_running:
            session.stop()


def judged(seen: Sequence[ExecutorSeen], task: ExecutorTask) -> Iterator[DoctorFinding]:
    """What the answers of the tasks say, with what the driver sees of what they wrote."""
    hosts = sorted({each.host for each in seen})
    before = True
    for host in hosts:
        own = [each for each in seen if each.host == host]
        for found in _of_host(host, own):
            before = False
            yield found
    if before:
        what = [f"{len(seen)} tasks on {', '.join(hosts)} answered"]
        if task.folders:
            what.append(f"see the {len(task.folders)} folders that the driver sees")
        if task.addresses:
            what.append(f"reach {', '.join(task.addresses)}")
        yield ok(AREA, " and ".join([", ".join(what[:-1]), what[-1]] if what[1:] else what) + ".")


def _of_host(host: str, seen: Sequence[ExecutorSeen]) -> Iterator[DoctorFinding]:
    for folder, why in {k: v for each in seen for k, v in each.unseen.items()}.items():
        place = os.path.dirname(folder)
        yield error(
            AREA,
            f"{host} does not see what the driver has written into {place}, or may not write "
            f"there: {why}",
            "Tasks write what the driver has to find, under the same path.",
            f"Mount one shared file system at {place} on every machine, for the same user.",
        )
    lost = sorted({name for each in seen for name in each.written if not os.path.exists(name)})
    for place in sorted({os.path.dirname(os.path.dirname(name)) for name in lost}):
        yield error(
            AREA,
            f"The driver does not see what {host} has written into {place}.",
            "Tasks write what the driver has to find, under the same path.",
            f"Mount one shared file system at {place} on every machine.",
        )
    for address, why in {k: v for each in seen for k, v in each.unreached.items()}.items():
        yield error(
            AREA,
            f"{host} cannot reach {address}: {why}",
            "Tasks connect to brokers and databases by the same names as the driver.",
            "Open the way, or give a name that works on every machine.",
        )
    for version in sorted({each.exactum for each in seen} - {__version__}):
        yield error(
            AREA,
            f"{host} has exactum {version}, and the driver {__version__}.",
            "Tasks and driver speak to each other in the form of one version.",
            "Install the same version everywhere.",
        )
    for version in sorted({each.python for each in seen}):
        if version.rpartition(".")[0] != platform.python_version().rpartition(".")[0]:
            yield warning(
                AREA,
                f"{host} runs Python {version}, and the driver {platform.python_version()}.",
                "PySpark refuses tasks of another minor version.",
                "Let PYSPARK_PYTHON name the same Python everywhere.",
            )
