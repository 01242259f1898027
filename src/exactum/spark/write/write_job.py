"""The driver half of the write job: one Spark job for all sinks, and what its winning tasks
prepared.

A job returns one result for each partition, the winner's, whatever retries and speculation did. Its
records come packed, past Spark's rows, where they can be (docs/adr/0025-columnar-kafka-source.md).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from exactum.errors import EpochAborted, ExactumError
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import WriteOrder
from exactum.spark.jvm import frames
from exactum.spark.jvm.batch_reads import reads_of
from exactum.spark.jvm.frames import Tasks
from exactum.spark.jvm.java_class import JvmError
from exactum.spark.jvm.packed import PackedBatches, PackedJob
from exactum.spark.query import Batch, Run
from exactum.spark.settings import is_on
from exactum.spark.write.failure import carried_by, is_of_task
from exactum.spark.write.packed_records import Layout, UnpackedTask
from exactum.spark.write.small_epoch import SmallEpochs
from exactum.spark.write.view import read_once
from exactum.spark.write.write_task import (
    ORDER_PROPERTY,
    Fingerprint,
    WriteTask,
    fingerprint_of,
    order_text,
    prepared_of,
    record_batch,
)

logger = logging.getLogger("exactum")

PREPARED_SCHEMA = StructType([StructField("prepared", StringType(), False)])
"""One row for each task that prepared anything."""

AS_PLANNED = Tasks()


# The last words are for Spark, which knows an interruption on query.stop() by them. Spark looks for
# them with a regular expression that overflows the stack on a text as long as its own error's.
CANCELLED = (
    "Spark cancelled the write job of this epoch, because the query was stopped or the job was "
    "killed. Nothing of it is visible; the next start writes it. (py4j.protocol.Py4JJavaError: An "
    "error occurred while calling collect: java.lang.InterruptedException)"
)
_CANCELLATIONS = re.compile(
    r"(?:\A|\n: |\nCaused by: )(?:\(?[\w.$]+(?:\)|:) )*"
    r"(?:\[SPARK_JOB_CANCELLED\]|Job \d+ cancelled|\(?(?:\w+\.)+\w*Interrupt\w*)"
)
"""What was thrown, behind the names of what is around it."""


@dataclass(frozen=True)
class Written:
    """What a job has prepared, and the fingerprint of the rows that it read; None where they were
    not hashed.
    """

    prepared: list[PreparedTransaction]
    fingerprint: Fingerprint | None


class FingerprintTask:
    """What a task does that writes nothing: add up the hashes of its rows."""

    hashed = True

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield record_batch((), sum(map(Fingerprint.of, batches), Fingerprint()))


class WriteJob:
    """The jobs of one task, over one frame after the other: here by rows, in the tasks that Spark
    plans, for any frame of a classic session. ``connect.server.ConnectJob`` is that of Spark
    Connect.
    """

    def __init__(self, task: WriteTask | FingerprintTask) -> None:
        self.task = task
        self._call: tuple[list[str], Any] | None = None

    @contextmanager
    def reading_once(self, frame: DataFrame) -> Iterator[bool]:
        """While it lasts, a batch that ``frame``, made by code of the user's, reads several times
        is kept: computed again it could be another one. Yields whether others keep rows of it.
        Raises as ``run``.

        Spark drops what a task has counted that fails: bad records, event times. Its next try, or
        the next job, finds the rows that it has kept, and counts nothing (DAGScheduler.scala,
        updateAccumulators).
        """
        with errors_of_jobs():
            reads = reads_of(frame)
        with ExitStack() as kept:
            for repeated in reads.repeated:
                compute(kept.enter_context(read_once(repeated)))
            yield reads.is_kept

    def run(self, frame: DataFrame, order: WriteOrder, batch: Batch | None = None) -> Written:
        """Write the frame into every sink on behalf of ``order``; ``batch`` where this job alone
        reads the batch, from its source.

        Raises:
            EpochAborted: Spark cancelled the job; or a task failed with an error that is not one of
                exactum's.
            ExactumError: the error that a task raised, as it raised it.
            Exception: Spark's error, where the job failed outside of our code.
        """
        with errors_of_jobs():
            texts = self._texts(frame, order, batch)
        prepared = [one for text in texts for one in prepared_of(text)]
        return Written(prepared, whole(texts) if self.task.hashed else None)

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        """Of the rows of the frame, by a ``FingerprintTask``. Raises as ``drain``."""
        with _errors_of_drains():
            return whole(self._texts(frame, None))

    def _texts(
        self, frame: DataFrame, order: WriteOrder | None, batch: Batch | None = None
    ) -> list[str]:
        """What the tasks return; without an order they write nothing."""
        return self._by_rows(frame, order, AS_PLANNED)

    def _by_rows(self, frame: DataFrame, order: WriteOrder | None, tasks: Tasks) -> list[str]:
        columns = frame.columns
        if self._call is None or self._call[0] != columns:
            self._call = columns, frames.call(columns, self.task, PREPARED_SCHEMA)
        call = self._call[1]
        if order is not None:  # Spark hands a thread's properties on to the tasks of its next job
            frame.sparkSession.sparkContext.setLocalProperty(ORDER_PROPERTY, order_text(order))
        return tasks.texts(frame, lambda rows: frames.applied(rows, call))


Jobs = Callable[[WriteTask | FingerprintTask], WriteJob]
"""How the rows of a frame come to the sinks' tasks, in the kind of session that a run has."""


PACKED_SETTING = "spark.exactum.columnarKafka.packed.enabled"
"""A Spark setting; "false" lets Spark make rows of all records that are read in columns."""
_LARGE = "spark.sql.execution.arrow.useLargeVarTypes"
_ZONE = "spark.sql.session.timeZone"


class PackedWriteJob(WriteJob):
    """Of a run in a classic session, whose records are packed where they can be, and whose small
    epochs go into few tasks. What could not be packed once is not asked for again.
    """

    def __init__(
        self, task: WriteTask | FingerprintTask, run: Run, small_epochs: SmallEpochs
    ) -> None:
        super().__init__(task)
        self._session = run.session
        self._small_epochs = small_epochs
        self._batches = PackedBatches(run.session, run.execution)
        self._job: tuple[str, PackedJob] | None = None  # with the layout that it is made for
        self._is_known = False

    def _texts(
        self, frame: DataFrame, order: WriteOrder | None, batch: Batch | None = None
    ) -> list[str]:
        if batch is None or order is None:
            return self._by_rows(frame, order, AS_PLANNED)
        tasks = self._small_epochs.tasks(frame, batch)
        if not self._is_known:
            self._job, self._is_known = self._made(frame), True
        if self._job is not None:
            named = ORDER_PROPERTY, order_text(order)
            texts = self._batches.texts(frame, *self._job, tasks, named)
            if texts is not None:
                return texts
            self._job = None
        return self._by_rows(frame, order, tasks)

    def _made(self, frame: DataFrame) -> tuple[str, PackedJob] | None:
        why = "they are more than columns of Kafka records that are read in columns"
        try:
            layout = self._batches.layout(frame) if self._may() else None
            if layout is not None:
                zone = str(self._session.conf.get(_ZONE))
                task = UnpackedTask(self.task, Layout.of(layout, zone))
                logger.debug("the query's records reach its tasks packed")
                return layout, PackedJob(frame.sparkSession, task)
        except JvmError as error:
            why = str(error)
        logger.debug("the query's records reach its tasks as Spark's rows: %s", why)
        return None

    def _may(self) -> bool:
        # Large types are the user's wish, for all that comes as Arrow.
        large = str(self._session.conf.get(_LARGE, "false")).lower() == "true"
        return not large and is_on(self._session, PACKED_SETTING) and self._batches.are_there()


def map_in_arrow(frame: DataFrame, task: frames.Task) -> DataFrame:
    """The frame of what ``task`` has prepared for each partition of ``frame``."""
    return frames.applied(frame, frames.call(frame.columns, task, PREPARED_SCHEMA))


def whole(texts: list[str]) -> Fingerprint:
    """The fingerprint of all that tasks have read who returned these."""
    return sum(map(fingerprint_of, texts), Fingerprint())


def drain(frame: DataFrame) -> None:
    """Compute the frame and throw it away, so that Spark's state stores advance past an epoch that
    stands.

    Raises:
        ExactumError: the error that a task raised, where it is one of exactum's.
        Exception: Spark's error else; also where Spark cancelled the job, of an epoch that stands
            all the same.
    """
    with _errors_of_drains():
        frame.write.format("noop").mode("overwrite").save()


def compute(kept: DataFrame) -> None:
    """Compute what Spark is to keep, before there is a task that can fail behind it. Raises as
    ``WriteJob.run``.
    """
    with errors_of_jobs():
        drain(kept)


@contextmanager
def errors_of_jobs() -> Iterator[None]:
    """Raises what jobs of an epoch fail with as ``WriteJob.run`` says."""
    with _errors_of_drains():
        try:
            yield
        except Exception as error:
            if was_cancelled(error):
                raise EpochAborted(CANCELLED) from None
            raise


@contextmanager
def _errors_of_drains() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        carried = None if was_cancelled(error) else carried_by(error)
        if carried is None:
            raise
        # "from None": py4j passes the printed traceback on to the user, and Spark's own would come
        # first.
        raise carried from None


def was_cancelled(error: BaseException) -> bool:
    """True when Spark ended the job from outside: ``query.stop()``, or somebody killed it. An error
    of ours, or of a task, is none, whatever a row in its text says.
    """
    text = str(error)
    is_other = isinstance(error, ExactumError) or is_of_task(text)
    return not is_other and _CANCELLATIONS.search(text) is not None
