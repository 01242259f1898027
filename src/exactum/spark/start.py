"""Starts a query: Spark plans it, and its first micro-batch waits until everything is checked and
open. That one, before it writes, fences older runs and finishes what they have decided.

    arguments --> Spark's start --> planned --> run opened --> the first batch is let through
                                       |             |
                                       +-- refused: the query is stopped, nothing was written
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from exactum.checkpoint.offset_log import OFFSETS, SOURCES, local_folder
from exactum.checkpoint.query_place import is_object_url
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import EpochAborted, Refused, SettingRefused, Unavailable
from exactum.spark import query
from exactum.spark.arguments import DeliverySettings
from exactum.spark.event_log import listener
from exactum.spark.jvm.execution import Execution
from exactum.spark.jvm.hadoop import HadoopFiles
from exactum.spark.open_queries import open_queries, refuse_while_importing
from exactum.spark.query import Run
from exactum.spark.run.batches import Batches
from exactum.spark.run.opening import CLASSIC, open_run
from exactum.spark.run.run_start import note_first
from exactum.spark.settings import state_format
from exactum.spark.streaming_query import Query, translated
from exactum.spark.supervised import standby
from exactum.spark.write.view import refuse_other_columns
from exactum.spark.write.write_job import CANCELLED
from exactum.storage.at import storage_at
from exactum.storage.folder import Folder

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
    standby.wait_for_turn()  # under a supervisor that has another one running
    if open_queries.stopping.is_set():
        raise Unavailable(
            "This script was told to end, so no query is started any more. Nothing was written."
        )
    batches = Batches()
    chosen = writer.option("checkpointLocation", checkpoint).foreachBatch(batches)
    plain: Any = writer
    frame: DataFrame = plain._df
    _try_place(checkpoint, frame.sparkSession)
    try:
        files = HadoopFiles(frame.sparkSession, checkpoint)
        is_new = not files.names(OFFSETS)
        with open_queries.starting, state_format(frame.sparkSession, files.newest):
            spark_query = (chosen if name is None else chosen.queryName(name)).start()
    except BaseException as error:
        batches.refuse(error)  # Ctrl-C may have come when Spark has the query
        if not isinstance(error, Exception):
            raise
        raise translated(error) from None
    try:
        execution = _planned(spark_query)
        run = _run_of(execution, None, settings)
        # Of the same columns, and empty: what rows= makes of it, it makes of each batch.
        empty = run.session.createDataFrame([], frame.schema)
        runner = open_run(run, empty, settings, CLASSIC)
        batches.open(runner)
    except BaseException as error:
        failure = spark_query.exception()  # where Spark has failed meanwhile, this is why
        reason = error if failure is None else translated(failure)
        batches.refuse(reason)
        spark_query.stop()
        if is_new and isinstance(reason, Refused):
            _take_back_plan(files)
        if reason is error:
            raise
        raise reason from None
    return Query(spark_query, batches, runner.gate)


def _try_place(checkpoint: str, session: Any) -> None:
    """Before Spark writes there, or waits for an object store for minutes.

    Raises:
        CheckpointRefused: the checkpoint there is retired, or not finished.
        SettingRefused: the store cannot hold a checkpoint, or cannot be used like this.
        Unavailable: it does not answer.
    """
    folder = local_folder(checkpoint)
    if folder is not None and folder.is_dir():
        refuse_retired(Folder(folder))
    elif is_object_url(checkpoint):
        files = storage_at(checkpoint.rstrip("/"), hadoop=query.hadoop_of(session))
        files.open()
        refuse_retired(files)


def _take_back_plan(files: HadoopFiles) -> None:
    """Spark has planned the first micro-batch of a query that is refused, which its user mends:
    ``start=`` and the topics count at the next start.

    Where a start has only to be repeated (``Unavailable``), the plan stays: ``start="latest"`` is
    the end as it was at the first one.
    """
    files.delete([f"{SOURCES}/{source}/0" for source in files.names(SOURCES)])
    files.delete([f"{OFFSETS}/0"])


def _planned(spark_query: StreamingQuery) -> Execution:
    execution = Execution.of(spark_query)
    while not execution.sources():
        if not execution.is_active():
            raise EpochAborted(CANCELLED)
        time.sleep(POLL_S)
    return execution


def _run_of(execution: Execution, batch_id: int | None, settings: DeliverySettings) -> Run:
    """The run of a query that Spark runs in this process's JVM; it begins with ``batch_id``, None:
    with the one after the last that Spark has logged.
    """
    session = execution.session()
    run = Run(
        query_id=execution.query_id(),
        run_id=execution.run_id(),
        name=execution.name(),
        checkpoint=execution.checkpoint(),
        execution_class=execution.kind(),
        trigger=execution.trigger(),
        master=str(session.sparkContext.master),
        retained=query.retained_by(session),
        first_batch_id=batch_id or 0,
        guarantee=settings.guarantee,
        session=session,
        live=execution,
        emit=listener(settings.on_event),
        staging=settings.places.staging,
        hadoop=query.hadoop_of(session),
        by_user=batch_id is not None,
    )
    last = run.last_logged_batch() if batch_id is None else None
    return run if last is None else replace(run, first_batch_id=last + 1)


class BatchFunction:
    """A query's function where a platform starts the query; see ``Delivery.for_each_batch``. Each
    run of Spark's is opened with its first batch.
    """

    def __init__(self, settings: DeliverySettings, checkpoint: str) -> None:
        self._settings = settings
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._runs: dict[str, Batches] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """
        Raises:
            ExactumError: see ``Batches``; or the query cannot be run like this.
        """
        refuse_while_importing()
        if query.is_connect(frame):
            raise SettingRefused("SPARK_CONNECT", NO_CONNECT)
        _refuse_other_batch(frame, batch_id)
        with self._lock:
            execution = _find(frame)
            batches = self._runs.get(execution.run_id())
            if batches is None:
                batches = self._begin(frame, batch_id, execution)
        batches(frame, batch_id)

    def _begin(self, frame: DataFrame, batch_id: int, execution: Execution) -> Batches:
        if not execution.is_active():
            # Spark gives a batch yet to a query that is being stopped: a run would fence others.
            raise EpochAborted(CANCELLED)
        run = _run_of(execution, batch_id, self._settings)
        first, names = frame.dtypes, self._settings.targets.names()

        def check(frame: DataFrame, batch_id: int) -> None:
            refuse_other_columns(frame, first, names, batch_id)

        self._runs = {run_id: one for run_id, one in self._runs.items() if one.still_runs()}
        self._runs[run.run_id] = batches = Batches(check=check)
        try:
            _refuse_other_checkpoint(run, self._checkpoint)
            _refuse_other_function(run)
            batches.open(open_run(run, frame, self._settings, CLASSIC))
        except BaseException as error:
            batches.refuse(error, run)
            note_first(run)
            raise
        return batches

    def __reduce__(self) -> Any:
        raise SettingRefused("SPARK_CONNECT", NO_CONNECT)  # which pickles it for its server


def _find(frame: DataFrame) -> Execution:
    """The query whose micro-batch ``frame`` is."""
    session = frame.sparkSession
    query_id = session.sparkContext.getLocalProperty(query.QUERY_AT_HAND)
    execution = None if query_id is None else Execution.find(session, str(query_id))
    if execution is None:
        raise SettingRefused(
            "CALL_OUTSIDE",
            "exactum was called outside of a streaming query's micro-batch. Call it in the "
            "function given to foreachBatch, in the same thread (and leave PYSPARK_PIN_THREAD at "
            "its default). Nothing was written.",
        )
    return execution


def _refuse_other_batch(frame: DataFrame, batch_id: int) -> None:
    """Spark is at another micro-batch in this thread."""
    at_hand = frame.sparkSession.sparkContext.getLocalProperty("streaming.sql.batchId")
    if at_hand is not None and at_hand != str(batch_id):
        raise SettingRefused(
            "CALL_OTHER_BATCH",
            f"exactum was called with batch id {batch_id!r}, and Spark is at micro-batch "
            f"{at_hand}. Pass the frame and the number on as Spark gives them to your function, in "
            "the same call. Nothing was written.",
        )


def _refuse_other_function(run: Run) -> None:
    if run.run_id in open_queries.gates:
        raise SettingRefused(
            "CALL_TWICE",
            f"{run} has another function of exactum already. One micro-batch is one call, for "
            "one record decides it: give all sinks to one call. Nothing of this one was "
            "written.",
        )


def _refuse_other_checkpoint(run: Run, checkpoint: str) -> None:
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
