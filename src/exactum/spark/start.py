"""Starts a query: Spark plans it, and its first micro-batch waits until everything is checked, open
and fenced.

    arguments --> Spark's start --> planned --> run opened --> the first batch is let through
                                       |             |
                                       +-- refused: the query is stopped, nothing was written
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from exactum.checkpoint.offset_log import highest_batch, local_folder
from exactum.errors import EpochAborted, SettingRefused
from exactum.spark import query
from exactum.spark.batches import Batches
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.no_start import refuse_while_importing
from exactum.spark.query import RunningQuery
from exactum.spark.run.delivery import DeliverySettings
from exactum.spark.run.engine import Classic
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.opening import open_run
from exactum.spark.source.query_sources import sources_of
from exactum.spark.state_format import state_format
from exactum.spark.streaming_query import Query, translated
from exactum.spark.supervised import process, standby
from exactum.spark.write.write_job import CANCELLED

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_S = 0.01
NO_CONNECT = "for_each_batch() does not work over Spark Connect: use start(). Nothing was written."


def started(
    settings: DeliverySettings, writer: DataStreamWriter, checkpoint: str, name: str | None
) -> Query:
    """See ``Delivery.start``.

    Raises:
        ExactumError: the query cannot be run like this.
        Exception: what Spark has raised of it.
    """
    refuse_while_importing()
    standby.wait_for_turn()  # under a supervisor that has another one running
    supervised = process.current()
    if supervised is not None:
        supervised.refuse_start()
    batches = Batches(settings)
    chosen = writer.option("checkpointLocation", checkpoint).foreachBatch(batches)
    plain: Any = writer
    session = plain._df.sparkSession
    try:
        with state_format(session, HadoopFiles(session, checkpoint).newest):
            spark_query = (chosen if name is None else chosen.queryName(name)).start()
    except Exception as error:  # noqa: BLE001  (raised again, in our words)
        raise translated(error) from None
    try:
        run = _opened(settings, writer, spark_query)
    except BaseException as error:
        reason = _reason(spark_query, error)
        batches.refuse(reason)
        spark_query.stop()
        if reason is error:
            raise
        raise reason from None
    batches.open(run)
    return Query(spark_query, batches, run.gate)


def _opened(
    settings: DeliverySettings, writer: DataStreamWriter, spark_query: StreamingQuery
) -> EpochRunner:
    plain: Any = writer
    execution = Execution.of(spark_query)
    running = query.running_query(execution)
    while not sources_of(running):
        if not running.still_runs():
            raise EpochAborted(CANCELLED)
        time.sleep(POLL_S)
    # Of the same columns, and empty: what rows= makes of it, it makes of each batch.
    frame = execution.session().createDataFrame([], plain._df.schema)
    return open_run(frame, _begins(running), running, settings, Classic())


def _begins(running: RunningQuery) -> int:
    """The first batch that Spark has not logged as done."""
    folder = running.folder
    last = (
        highest_batch(folder / "commits")
        if folder is not None
        else running.live.last_logged_batch()
    )
    return 0 if last is None else last + 1


def _reason(spark_query: StreamingQuery, error: BaseException) -> BaseException:
    """Where Spark has failed meanwhile, this is why nothing could be opened."""
    failure = spark_query.exception()
    return error if failure is None else translated(failure)


class BatchFunction:
    """A query's function where a platform starts the query; see ``Delivery.for_each_batch``. Each
    run of Spark's is opened with its first batch.
    """

    def __init__(self, settings: DeliverySettings, checkpoint: str) -> None:
        self._settings = settings
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._run_id = ""
        self._batches = Batches(settings)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """
        Raises:
            ExactumError: see ``Batches``; or the query cannot be run like this.
        """
        refuse_while_importing()
        if query.is_connect(frame):
            raise SettingRefused("SPARK_CONNECT", NO_CONNECT)
        query.refuse_other_batch(frame, batch_id)
        with self._lock:
            running = query.find(frame)
            if running.run_id != self._run_id:
                self._begin(frame, batch_id, running)
        self._batches(frame, batch_id)

    def _begin(self, frame: DataFrame, batch_id: int, running: RunningQuery) -> None:
        if not running.still_runs():
            # Spark gives a batch yet to a query that is being stopped: a run would fence others.
            raise EpochAborted(CANCELLED)
        _refuse_second(self, running)
        _refuse_other_checkpoint(running, self._checkpoint)
        self._run_id = running.run_id
        self._batches = batches = Batches(self._settings)
        try:
            batches.open(open_run(frame, batch_id, running, self._settings, Classic()))
        except BaseException as error:
            batches.refuse(error)
            raise

    def __reduce__(self) -> Any:
        raise SettingRefused("SPARK_CONNECT", NO_CONNECT)  # which pickles it for its server


_functions: dict[str, weakref.ref[Callable[[DataFrame, int], None]]] = {}
"""Of this process, by Spark's run id: two in one query have nothing else in common."""


def _refuse_second(function: BatchFunction, running: RunningQuery) -> None:
    """
    Raises:
        SettingRefused: the run has another function of exactum's: it would find the first one's
            record, and take it for its own.
    """
    for run_id in [each for each, there in _functions.items() if there() is None]:
        del _functions[run_id]
    there = _functions.setdefault(running.run_id, weakref.ref(function))()
    if there is not function:
        raise SettingRefused(
            "CALL_TWICE",
            f"{running} has another function of exactum already. One micro-batch is one call, for "
            "one record decides it: give all sinks to one call. Nothing of this one was written.",
        )


def _refuse_other_checkpoint(running: RunningQuery, checkpoint: str) -> None:
    """
    Raises:
        SettingRefused: the query has another one.
    """
    given = local_folder(checkpoint)
    is_same = (
        running.checkpoint.rstrip("/") == checkpoint.rstrip("/")
        if given is None or running.folder is None
        else given.absolute() == running.folder
    )
    if not is_same:
        raise SettingRefused(
            "CHECKPOINT_OTHER",
            f"{running} has another checkpoint than the one given to for_each_batch, {checkpoint}. "
            "Give both the same. Nothing was written.",
        )
