"""A small streaming query that warms up what a real one needs, and that nobody sees.

It reads made-up rows and the first records of a topic, goes through the write job and into nothing.
That loads and compiles what the real query needs, and starts Python workers.

It runs in a session of its own: Spark keeps the list of queries, their names, their listeners and
what ended last (``spark.streams.awaitAnyTermination``) for each session. What such a session takes
over from the application's settings (listeners by class, the UI's list) is taken out of it again.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm.frames import unheard_session
from exactum.spark.startup import warm_up
from exactum.spark.write import write_job

BATCHES = 6
TIMEOUT_S = 30.0
QUERY_NAME = "exactum-standby"
RECORDS_MAX = 100


@contextmanager
def hidden_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session beside ``spark`` whose queries and jobs no listener of it hears of. What it makes
    stays usable.

    PySpark lets ``rdd.toDF()`` use the session that was made last; on leaving that is the one it
    was.
    """
    of_rdd = vars(RDD).get("toDF")
    try:
        session = unheard_session(spark)
        session.conf.set("spark.sql.streaming.metricsEnabled", "false")
        yield session
    finally:
        if of_rdd is not None:
            RDD.toDF = of_rdd  # type: ignore[method-assign]


def play(session: SparkSession, source: Mapping[str, str], over: threading.Event) -> None:
    """A few micro-batches with records of ``source`` (Spark's options of it), until they are done
    or it is ``over``.
    """
    enough = threading.Event()

    def batch(rows: DataFrame, batch_id: int) -> None:
        write_job.map_in_arrow(rows, warm_up.Touch()).collect()
        if batch_id + 1 >= BATCHES or over.is_set():
            enough.set()

    with tempfile.TemporaryDirectory(
        prefix="exactum-standby-", ignore_cleanup_errors=True
    ) as folder:
        writer = _frame(session, source).writeStream.foreachBatch(batch).queryName(QUERY_NAME)
        # A bare path would lie where the session's file system is: in HDFS, say.
        query = writer.option("checkpointLocation", Path(folder).as_uri()).start()
        enough.wait(TIMEOUT_S)
        query.stop()


def _frame(spark: SparkSession, source: Mapping[str, str]) -> DataFrame:
    """Made-up rows, with the first records of the source, if there is one."""
    made_up = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .selectExpr(
            "lower(CAST(value AS STRING)) AS key", "upper(CAST(value AS STRING)) AS value"
        )  # Unicode's tables
    )
    if not source:
        return made_up
    given = {
        n: v for n, v in source.items() if not n.startswith("exactum") and n != "kafka.group.id"
    }
    reader = spark.readStream.format("kafka")
    for name, value in {
        **given,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(RECORDS_MAX),
    }.items():
        reader = reader.option(name, value)
    return made_up.union(
        reader.load().selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
    )
