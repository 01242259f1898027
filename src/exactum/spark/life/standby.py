"""A process that stands by: the session is up, and it waits in ``exactly_once`` until the other one is gone.

Meanwhile it does once what a query's first epochs would wait for: a small streaming query of its own, over a source
that makes up rows and the first records of a topic, through the write job and into nothing. Which topic the running
process has told: most scripts wait here before they read anything. That loads and compiles what the real query needs,
and starts Python workers; a job now and then keeps these alive.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exactum.spark.life import life

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("exactum")

WARM_BATCHES = 6
WARM_TIMEOUT_S = 30.0
KEEP_WARM_EVERY_S = 25.0
"""Spark ends Python workers that idle for a minute."""
QUERY_NAME = "exactum-standby"
RECORDS_MAX = 100
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


def remember_source(options: Mapping[str, str]) -> None:
    """This process reads Kafka with these options: for itself, if it is a standby, and for the one that stands by."""
    supervised = life.current()
    if supervised is not None:
        supervised.source = dict(options)
        supervised.tell("source", options=supervised.source)


def wait_for_turn() -> None:
    """Return when the queries of this process may run: at once, unless a supervisor holds it as a standby.

    Raises:
        Unavailable: the supervisor ended before it gave the turn.
    """
    supervised = life.current()
    if supervised is None:
        return
    supervised.beat_with(_ask_the_jvm)

    def warm() -> None:
        threading.Thread(target=_keep_warm, args=(supervised,), name="exactum-standby", daemon=True).start()

    supervised.wait_for_turn(warm)


def _ask_the_jvm() -> None:
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    if context is not None:
        context._jvm.System.nanoTime()


def _keep_warm(supervised: life.Life) -> None:
    """Runs in a thread of its own until the turn comes. Nothing depends on it."""
    from pyspark.sql import SparkSession

    from exactum.spark import warmth

    try:
        spark = SparkSession.active()
        source = supervised.source or {}
        _run(_frame(spark, source), supervised)
        supervised.tell("warm", read=[source[how] for how in SUBSCRIPTIONS if how in source])
        while not supervised.turn.wait(KEEP_WARM_EVERY_S):
            warmth.touch_workers(spark)
    except Exception as error:  # noqa: BLE001  (the query starts all the same, only slower)
        logger.debug("the standby could not be warmed: %s", error)
        supervised.tell("warm", read=[])


def _frame(spark: SparkSession, source: Mapping[str, str]) -> DataFrame:
    """Made-up rows, with the first records of the source, if there is one."""
    made_up = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 10)
        .load()
        .selectExpr("lower(CAST(value AS STRING)) AS key", "upper(CAST(value AS STRING)) AS value")  # Unicode's tables
    )
    if not source:
        return made_up
    given = {n: v for n, v in source.items() if not n.startswith("exactum") and n != "kafka.group.id"}
    reader = spark.readStream.format("kafka")
    for name, value in {**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(RECORDS_MAX)}.items():
        reader = reader.option(name, value)
    return made_up.union(reader.load().selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value"))


def _run(frame: DataFrame, supervised: life.Life) -> None:
    """A few micro-batches of a query that writes nothing, until they are done or the turn comes."""
    from exactum.spark import warmth, write_job

    enough = threading.Event()

    def batch(rows: DataFrame, batch_id: int) -> None:
        write_job.map_in_arrow(rows, warmth.Touch()).collect()
        if batch_id + 1 >= WARM_BATCHES or supervised.turn.is_set():
            enough.set()

    with tempfile.TemporaryDirectory(prefix="exactum-standby-", ignore_cleanup_errors=True) as folder:
        query = frame.writeStream.foreachBatch(batch).queryName(QUERY_NAME).option("checkpointLocation", folder).start()
        enough.wait(WARM_TIMEOUT_S)
        query.stop()
