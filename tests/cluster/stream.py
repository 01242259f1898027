"""The query under test, run as a process of its own: Kafka in, upper case, Kafka out, exactly once.

Its one argument is a JSON object with the fields of ``Stream``. It runs until the file ``stop`` appears in
its folder, reads what is there by then, and ends. A query that fails is started again as a supervisor
would, if the error's disposition allows it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.errors import Disposition
from exactum.events import Event

POLL_S = 0.1
HOLD_TIMEOUT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Stream:
    """``local_session``: make the session by exactum's own function with these settings, else take the
    submitted one. ``holds``: a value that begins with ``hold`` stops the first task that meets it.
    """

    folder: str
    bootstrap_servers: str
    source: str
    output: str
    local_session: Mapping[str, Any] | None = None
    sink: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    holds: bool = False


def start(spark: SparkSession, stream: Stream) -> tuple[StreamingQuery, Any]:
    folder = Path(stream.folder)

    def on_event(event: Event) -> None:
        with (folder / "events").open("a") as file:
            file.write(json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}) + "\n")

    frame = exactum.read_kafka(spark, stream.source, bootstrap_servers=stream.bootstrap_servers, **stream.read)
    frame = frame.selectExpr("key", "CAST(value AS STRING) AS value")
    if stream.holds:
        frame = frame.select("key", udf(held(stream.folder), "string")("value").alias("value"))
    exact = exactum.exactly_once(
        exactum.KafkaSink(stream.output, bootstrap_servers=stream.bootstrap_servers, **stream.sink),
        on_event=on_event,
    )
    query = (
        frame.selectExpr("key", "upper(value) AS value")
        .writeStream.foreachBatch(exact)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    return query, exact


def held(folder: str) -> Any:
    """A function that returns its argument; one of a kind it holds up, once over all tasks and processes.

    The file that it makes for it names the process, so that the test can find the executor.
    """

    def pass_on(value: str | None) -> str | None:
        if value is None or not value.startswith("hold"):
            return value
        mark = f"{folder}/held-{value}"
        try:
            file = os.open(f"{mark}-claimed", os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return value
        os.close(file)
        with open(f"{mark}.writing", "w") as note:
            note.write(str(os.getpid()))
        os.rename(f"{mark}.writing", mark)
        time.sleep(HOLD_TIMEOUT_S)
        return value

    return pass_on


def places(spark: SparkSession) -> list[tuple[str, str]]:
    """(host, file) of the exactum that each executor's Python imports."""

    def place(_: int) -> tuple[str, str]:
        import exactum as shipped

        time.sleep(0.5)  # so that every executor gets some of the tasks
        return os.environ["SPARK_LOCAL_HOSTNAME"], shipped.__file__

    return sorted(set(spark.sparkContext.parallelize(range(8), 8).map(place).collect()))


def run(stream: Stream, spark: SparkSession) -> None:
    folder = Path(stream.folder)
    while True:
        query, exact = start(spark, stream)
        (folder / "started").touch()
        try:
            while not query.awaitTermination(POLL_S):
                if (folder / "stop").exists():
                    query.processAllAvailable()
                    query.stop()
            return
        except Exception as error:
            failure = exact.error or error
            with (folder / "failures").open("a") as file:
                file.write(f"{type(failure).__name__}: {failure}\n")
            if exact.error is None or exact.error.disposition not in (Disposition.RETRY, Disposition.ABORT):
                raise


def main(argument: str) -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("exactum").setLevel(logging.DEBUG)
    stream = Stream(**json.loads(argument))
    if stream.local_session is not None:
        spark = exactum.local_session("cluster", **stream.local_session)
    else:
        spark = SparkSession.builder.getOrCreate()
        Path(stream.folder, "places").write_text(json.dumps({"driver": exactum.__file__, "executors": places(spark)}))
    run(stream, spark)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
