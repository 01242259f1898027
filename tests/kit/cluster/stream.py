"""The query under test, run as a process of its own: Kafka in, upper case, Kafka out, exactly once.

Its one argument is a JSON object with the fields of ``Stream``. It runs until the file ``stop``
appears in its folder, reads what is there by then, and ends. A query that fails is started again as
a supervisor would, if the error's disposition allows it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum.errors import Disposition, ExactumError
from exactum.events import Event

POLL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Stream:
    """One query. ``session`` is what ``local_session`` is given, ``read`` and ``sink`` go to
    both ends.
    """

    folder: str
    bootstrap_servers: str
    source: str
    output: str
    session: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    sink: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    read: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def source(spark: SparkSession, stream: Stream) -> DataFrame:
    common = {"bootstrap_servers": stream.bootstrap_servers, **stream.read}
    frame = exactum.read_kafka(spark, stream.source, **common)
    # Not upper(): its first use in a JVM builds tables for all of Unicode, a second of CPU.
    return frame.selectExpr("key", "CAST(value AS STRING) AS value").selectExpr(
        "key", "concat('N', substring(value, 2)) AS value"
    )


def start(spark: SparkSession, stream: Stream) -> tuple[StreamingQuery, Any]:
    folder = Path(stream.folder)

    def on_event(event: Event) -> None:
        with (folder / "events").open("a") as file:
            file.write(
                json.dumps({"event": type(event).__name__, **dataclasses.asdict(event)}) + "\n"
            )

    exact = exactum.exactly_once(
        exactum.KafkaSink(stream.output, bootstrap_servers=stream.bootstrap_servers, **stream.sink),
        on_event=on_event,
    )
    return exact.start(source(spark, stream).writeStream, checkpoint=folder / "checkpoint")


def run(stream: Stream, spark: SparkSession) -> None:
    folder = Path(stream.folder)
    while True:
        try:
            query = start(spark, stream)
            (folder / "started").touch()
            while not query.awaitTermination(POLL_S):
                if (folder / "stop").exists():
                    query.processAllAvailable()
                    query.stop()
            return
        except Exception as error:
            (folder / "started").touch()
            with (folder / "failures").open("a") as file:
                file.write(f"{type(error).__name__}: {error}\n")
            disposition = error.disposition if isinstance(error, ExactumError) else None
            if disposition not in (Disposition.RETRY, Disposition.ABORT):
                raise


def main(argument: str) -> None:
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("exactum").setLevel(logging.DEBUG)
    stream = Stream(**json.loads(argument))
    spark = exactum.local_session("cluster", **stream.session)
    run(stream, spark)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
