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
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from exactum.errors import CodeFailed, EpochAborted, ExactumError, RowsRefused, UnknownFailure
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import WriteOrder
from exactum.spark.jvm import frames
from exactum.spark.jvm.batch_reads import reads_of
from exactum.spark.jvm.frames import Tasks
from exactum.spark.jvm.java_class import JvmError, reason_of
from exactum.spark.jvm.packed import PackedBatches, PackedJob
from exactum.spark.query import Batch, Run
from exactum.spark.settings import is_on
from exactum.spark.write.failure import is_of_task, place_of, thrown, unknown
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

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("exactum")

PREPARED_SCHEMA = StructType([StructField("prepared", StringType(), False)])
"""One row for each task that prepared anything."""

AS_PLANNED = Tasks()


# The last words are for Spark, which knows an interruption on query.stop() by them. Spark looks for
# them with a regular expression that overflows the stack on a text as long as its own error's.
CANCELLED = (
    "Spark cancelled the job of this epoch, because the query was stopped or the job was killed. "
    "Unless it was decided before, nothing of it is visible; the next start goes on with it. "
    "(py4j.protocol.Py4JJavaError: An error occurred while calling collect: "
    "java.lang.InterruptedException)"
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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
        Raises Spark's errors.

        Spark drops what a task has counted that fails: bad records, event times. Its next try, or
        the next job, finds the rows that it has kept, and counts nothing (DAGScheduler.scala,
        updateAccumulators).
        """
        reads = reads_of(frame)
        with ExitStack() as kept:
            for repeated in reads.repeated:
                drain(kept.enter_context(read_once(repeated)))
            yield reads.is_kept

    def run(self, frame: DataFrame, order: WriteOrder, batch: Batch | None = None) -> Written:
        """Write the frame into every sink on behalf of ``order``; ``batch`` where this job alone
        reads the batch, from its source. Raises Spark's errors.
        """
        texts = self._texts(frame, order, batch)
        prepared = [one for text in texts for one in prepared_of(text)]
        return Written(prepared, whole(texts) if self.task.hashed else None)

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        """Of the rows of the frame, by a ``FingerprintTask``. Raises Spark's errors."""
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


def whole(texts: list[str]) -> Fingerprint:
    """The fingerprint of all that tasks have read who returned these."""
    return sum(map(fingerprint_of, texts), Fingerprint())


def drain(frame: DataFrame) -> None:
    """Compute the frame and throw it away: so that Spark's state stores advance past an epoch that
    stands; or of one that Spark is to keep, before there is a task that can fail behind it. Raises
    Spark's errors.
    """
    frame.write.format("noop").mode("overwrite").save()


# ---- errors of jobs ------------------------------------------------------------------------------

OF_ROWS = (RowsRefused, CodeFailed, UnknownFailure)


@contextmanager
def in_our_words(of_rows: Callable[[], str] = str) -> Iterator[None]:
    """Lets no error through but those of exactum, whoever raised it within: Spark, another library,
    or code of the user's. ``of_rows`` gives what is said with an error about rows.

    Raises:
        EpochAborted: Spark cancelled what was done within, in words by which it knows its own stop;
            or something failed that may pass, or that nobody knows.
        ExactumError: as it was raised within, there or in a task.
    """
    try:
        yield
    except Exception as error:
        ours = error if isinstance(error, ExactumError) else _ours(error)
        text = of_rows() if isinstance(ours, OF_ROWS) else ""
        if ours is error and not text:
            raise
        # "from None": Spark shows the printed traceback, and py4j passes it on. The same message
        # twice would bury the end of it.
        raise ours.followed_by(f" {text}".rstrip()) from None


def _ours(error: Exception) -> ExactumError:
    text = str(error)
    # What a task raised is told as that, whatever a row in its text says.
    if not is_of_task(text) and _CANCELLATIONS.search(text) is not None:
        return EpochAborted(CANCELLED)
    of_task = thrown(error)
    if of_task is not None:
        return of_task
    if isinstance(error, JvmError | PySparkException):
        cause = text.rpartition("\nCaused by: ")[2]
        return unknown(reason_of(RuntimeError(cause)), error)
    return unknown(f"{type(error).__name__}: {text} (at {place_of(error)})", error)
