"""The user's query on the cluster, run by ``tests.kit.crash.job`` below spark-submit: a shuffle, and a
function of the user's that may be held. Executors are sent what they need of this file: they have
exactum and its clients, and nothing of the tests.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from tests.kit.crash.queries import Query, Spec, kafka_sinks
from tests.kit.source.in_columns import in_columns

SHUFFLE_PARTITIONS = 3
HOLD_TIMEOUT_S = 400.0


def shuffled(spark: SparkSession, spec: Spec) -> Query:
    register_pickle_by_value(sys.modules[__name__])
    numbers = exactum.read_kafka(
        spark,
        spec["source"],
        bootstrap_servers=spec["bootstrap_servers"],
        # A round of the test's is a batch: Spark waits until all of it is there.
        minOffsetsPerTrigger=spec["round"],
    )
    texts = in_columns(numbers).selectExpr(
        "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"
    )
    function = udf(upper(spec["traps"]), "string", useArrow=False)
    rows = texts.repartition(SHUFFLE_PARTITIONS, "key")
    return Query(rows.select("key", function("value").alias("value")), kafka_sinks(spec))


def executor() -> tuple[int, str]:
    """Pid and host of the executor that this Python worker belongs to: its daemon's parent."""
    import os

    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    pid = int(daemon.rpartition(")")[2].split()[1])
    command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return pid, command[command.index("--hostname") + 1]


def upper(traps: str) -> Callable[[str], str]:
    """The user's function. Where a file in ``traps`` has the record's name, the task stops there
    for a while: the first one that comes until it is killed, later ones until there is a file
    ``<name>.go``.
    """

    def function(value: str) -> str:
        trap = Path(traps, value)
        if trap.exists():
            held(trap)
        return value.upper()

    return function


def held(trap: Path) -> None:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    pid, host = executor()
    visit = [context.partitionId(), context.attemptNumber(), pid, host]
    number = 1
    while True:
        try:
            with Path(f"{trap}.{number}").open("x") as file:
                file.write(json.dumps(visit) + "\n")
            break
        except FileExistsError:
            number += 1
    deadline = time.monotonic() + HOLD_TIMEOUT_S
    while number == 1 or not Path(f"{trap}.go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{trap}: visitor {number} was held for {HOLD_TIMEOUT_S:.0f} s")
        time.sleep(0.02)
