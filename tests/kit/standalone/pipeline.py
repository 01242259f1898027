"""The user's application, run by spark-submit: Kafka in, a shuffle, a function of the user's, Kafka
out, exactly once.

Its one argument is a JSON object: ``folder``, ``bootstrap_servers``, ``source``, ``output``,
``round``.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from exactum.events import Event

SHUFFLE_PARTITIONS = 3
HOLD_TIMEOUT_S = 400.0  # this file goes to the cluster alone


def imported_from(_: Iterator[int]) -> Iterator[tuple[str, str]]:
    """The host of this task, and the file that exactum comes from there."""
    import time

    import exactum

    time.sleep(0.5)  # so that one executor cannot do the work of all
    yield executor()[1], exactum.__file__


def executor() -> tuple[int, str]:
    """Pid and host of the executor that this Python worker belongs to: its daemon's parent."""
    import os
    from pathlib import Path

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
            hold(trap)
        return value.upper()

    def hold(trap: Path) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        pid, host = executor()
        visit = {
            "partition": context.partitionId(),
            "attempt": context.attemptNumber(),
            "pid": pid,
            "host": host,
        }
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

    return function


def main(argument: str) -> None:
    play: dict[str, Any] = json.loads(argument)
    folder = Path(play["folder"])
    spark = SparkSession.builder.appName("standalone").getOrCreate()
    found = spark.sparkContext.parallelize(range(4), 4).mapPartitions(imported_from).collect()
    (folder / "imported.tmp").write_text(
        json.dumps({"executors": found, "driver": exactum.__file__})
    )
    (folder / "imported.tmp").rename(folder / "imported")

    def on_event(event: Event) -> None:
        with (folder / "events").open("a") as file:
            file.write(
                json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}) + "\n"
            )

    numbers = exactum.read_kafka(
        spark,
        play["source"],
        bootstrap_servers=play["bootstrap_servers"],
        # A round of the test's is a batch: Spark waits until all of it is there.
        minOffsetsPerTrigger=play["round"],
    ).selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    plan = numbers._jdf.queryExecution().analyzed().toString()
    assert "exactum.ColumnarKafka" in plan, plan
    shuffled = numbers.repartition(SHUFFLE_PARTITIONS, "key")
    shouted = shuffled.select(
        "key", udf(upper(str(folder / "traps")), "string", useArrow=False)("value").alias("value")
    )
    once = exactum.exactly_once(
        exactum.KafkaSink(play["output"], bootstrap_servers=play["bootstrap_servers"]),
        on_event=on_event,
    )
    query = once.start(shouted.writeStream, checkpoint=folder / "checkpoint")
    while not query.awaitTermination(0.2):
        if (folder / "stop").exists():
            query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
