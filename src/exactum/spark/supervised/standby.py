"""A process that stands by: the session is up, and it waits in ``start`` until the other one is
gone.

Meanwhile it does once what a query's first epochs would wait for: a small streaming query that
nobody sees reads made-up rows and the first records of the topic that the script has called
``read_kafka`` for last, goes through the write job and into nothing. That loads and compiles what
the real query needs, and starts Python workers.

That query runs in a session of its own: Spark keeps the list of queries, their names, their
listeners and what ended last (``spark.streams.awaitAnyTermination``) for each session. What such a
session takes over from the application's settings (listeners by class, the UI's list) is taken out
of it again.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from exactum.spark.jvm import java_class
from exactum.spark.jvm.frames import unheard_session
from exactum.spark.startup import warm_up
from exactum.spark.supervised import process
from exactum.spark.write.write_job import FingerprintTask, WriteJob

logger = logging.getLogger("exactum")

KEEP_WARM_EVERY_S = 25.0
"""Spark ends Python workers that idle for a minute."""
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
BATCHES = 6
TIMEOUT_S = 30.0
QUERY_NAME = "exactum-standby"
RECORDS_MAX = 100


def remember_source(options: Mapping[str, str]) -> None:
    """This process reads Kafka with these options, to warm itself up with if it stands by."""
    supervised = process.current()
    if supervised is not None:
        supervised.source = dict(options)


def wait_for_turn() -> None:
    """Return when the queries of this process may run: at once, unless a supervisor holds it as a
    standby.

    Raises:
        Unavailable: the supervisor ended before it gave the turn.
    """
    supervised = process.current()
    if supervised is None:
        return
    supervised.beat_with(java_class.ping)

    def warm() -> None:
        threading.Thread(
            target=_keep_warm, args=(supervised,), name="exactum-standby", daemon=True
        ).start()

    supervised.wait_for_turn(warm)


def _keep_warm(supervised: process.SupervisedProcess) -> None:
    """Runs in a thread of its own until the turn comes. Nothing depends on it."""
    try:
        source = supervised.source
        with hidden_session(SparkSession.active()) as session:
            warm_up.touch_workers(session)
            play(session, source, supervised.turn)
        supervised.report("warm", read=[source[how] for how in SUBSCRIPTIONS if how in source])
        while not supervised.turn.wait(KEEP_WARM_EVERY_S):
            warm_up.touch_workers(session)
    except Exception as error:  # noqa: BLE001  (the query starts all the same, only slower)
        logger.debug("the standby could not be warmed: %s", error)
        supervised.report("warm", read=[])


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
        WriteJob(FingerprintTask()).fingerprint(rows)
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
