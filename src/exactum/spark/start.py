"""Starts a query: Spark plans it, and its first micro-batch waits until everything is checked, open
and fenced.

    arguments --> Spark's start --> planned --> run opened --> the first batch is let through
                                       |             |
                                       +-- refused: the query is stopped, nothing was written
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from exactum.checkpoint.offset_log import local_folder
from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.spark import query
from exactum.spark.batches import Batches
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop_files import HadoopFiles
from exactum.spark.no_start import refuse_while_importing
from exactum.spark.open_queries import open_queries
from exactum.spark.query import Run
from exactum.spark.run.delivery import DeliverySettings
from exactum.spark.run.engine import Classic
from exactum.spark.run.epoch_runner import EpochRunner
from exactum.spark.run.opening import open_run
from exactum.spark.state_format import state_format
from exactum.spark.streaming_query import Query, translated
from exactum.spark.supervised import process, standby
from exactum.spark.write.view import refuse_other_columns
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
    if open_queries.stopping.is_set():
        raise Unavailable(
            "SIGTERM ends this script, so no query is started any more. Nothing was written."
        )
    batches = Batches(settings)
    chosen = writer.option("checkpointLocation", checkpoint).foreachBatch(batches)
    plain: Any = writer
    session = plain._df.sparkSession
    try:
        newest = HadoopFiles(session, checkpoint).newest
        with open_queries.starting, state_format(session, newest):
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
    while not execution.sources():
        if not execution.is_active():
            raise EpochAborted(CANCELLED)
        time.sleep(POLL_S)
    last = query.last_logged_batch(execution.checkpoint(), execution)
    run = _run_of(execution, 0 if last is None else last + 1, settings)
    # Of the same columns, and empty: what rows= makes of it, it makes of each batch.
    frame = run.session.createDataFrame([], plain._df.schema)
    return open_run(run, frame, settings, Classic())


def _run_of(execution: Execution, first_batch_id: int, settings: DeliverySettings) -> Run:
    return query.classic_run(
        execution, first_batch_id, settings.guarantee, settings.places.staging, settings.emit
    )


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
            execution = query.find(frame)
            if execution.run_id() != self._run_id:
                self._begin(frame, batch_id, execution)
        self._batches(frame, batch_id)

    def _begin(self, frame: DataFrame, batch_id: int, execution: Execution) -> None:
        if not execution.is_active():
            # Spark gives a batch yet to a query that is being stopped: a run would fence others.
            raise EpochAborted(CANCELLED)
        run = _run_of(execution, batch_id, self._settings)
        _refuse_other_checkpoint(run, self._checkpoint)
        if not open_queries.enter(run.run_id):
            raise SettingRefused(
                "CALL_TWICE",
                f"{run} has another function of exactum already. One micro-batch is one call, for "
                "one record decides it: give all sinks to one call. Nothing of this one was "
                "written.",
            )
        self._run_id = run.run_id
        names = self._settings.targets.names()
        check = partial(refuse_other_columns, first=frame.dtypes, sinks=names)
        self._batches = batches = Batches(self._settings, check=check)
        try:
            batches.open(open_run(run, frame, self._settings, Classic()))
        except BaseException as error:
            open_queries.leave(run.run_id)
            batches.refuse(error)
            raise

    def __reduce__(self) -> Any:
        raise SettingRefused("SPARK_CONNECT", NO_CONNECT)  # which pickles it for its server


def _refuse_other_checkpoint(run: Run, checkpoint: str) -> None:
    """
    Raises:
        SettingRefused: the query has another one.
    """
    given = local_folder(checkpoint)
    is_same = (
        run.checkpoint.rstrip("/") == checkpoint.rstrip("/")
        if given is None or run.folder is None
        else given.absolute() == run.folder
    )
    if not is_same:
        raise SettingRefused(
            "CHECKPOINT_OTHER",
            f"{run} has another checkpoint than the one given to for_each_batch, {checkpoint}. "
            "Give both the same. Nothing was written.",
        )
