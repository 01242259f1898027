"""The driver half of the write job: one Spark job for all sinks, and what its winning tasks
prepared.

A job returns one result for each partition, the winner's, whatever retries and speculation did.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from exactum.errors import EpochAborted
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import WriteOrder
from exactum.spark.jvm import arrow_job
from exactum.spark.jvm.collecting import Tasks, collected
from exactum.spark.write.failure import carried_by
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.write_task import (
    ORDER_PROPERTY,
    WriteTask,
    fingerprint_of,
    order_text,
    prepared_of,
    record_batch,
)

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
    r"java\.lang\.InterruptedException|cancelled part of cancelled job group|Job \d+ cancelled"
)


@dataclass(frozen=True)
class Written:
    """What a job has prepared, and the fingerprint of the rows that it read; None where they were
    not hashed.
    """

    prepared: list[PreparedTransaction]
    fingerprint: Fingerprint | None


@dataclass(frozen=True)
class Fresh:
    """A micro-batch that is read from its source: how many offsets each Kafka partition advances,
    None where that is not known; and whether it is a run's first.
    """

    sizes: Sequence[int] | None
    first: bool


class WriteJob:
    """The write jobs of a run for some of its sinks, one for each epoch."""

    def __init__(self, task: WriteTask) -> None:
        self.task = task
        self._call: tuple[list[str], Any] | None = None

    def run(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None = None) -> Written:
        """Write the frame into every sink on behalf of ``order``; ``fresh`` where this job alone
        reads the batch, from its source.

        Raises:
            EpochAborted: Spark cancelled the job; or a task failed with an error that is not one of
                exactum's.
            ExactumError: the error that a task raised, as it raised it; Spark's own is its
                ``__context__``.
            Exception: Spark's error, where the job failed outside of our code.
        """
        with errors_of_jobs():
            return self._written(self._texts(frame, order, fresh))

    def _texts(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None) -> list[str]:
        return self._by_rows(frame, order, AS_PLANNED)

    def _by_rows(self, frame: DataFrame, order: WriteOrder, tasks: Tasks) -> list[str]:
        columns = frame.columns
        if self._call is None or self._call[0] != columns:
            self._call = columns, arrow_job.call(columns, self.task, PREPARED_SCHEMA)
        call = self._call[1]
        # Spark hands a thread's properties on to the tasks of its next job.
        frame.sparkSession.sparkContext.setLocalProperty(ORDER_PROPERTY, order_text(order))
        return tasks.texts(frame, lambda rows: arrow_job.applied(rows, call))

    def _written(self, texts: list[str]) -> Written:
        prepared = [one for text in texts for one in prepared_of(text)]
        return Written(prepared, whole(texts) if self.task.hashed else None)


@contextmanager
def errors_of_jobs() -> Iterator[None]:
    """Raises what jobs of an epoch fail with as ``WriteJob.run`` says."""
    try:
        yield
    except Exception as error:
        if was_cancelled(error):
            raise EpochAborted(CANCELLED) from None
        carried = carried_by(error)
        if carried is None:
            raise
        # "from None": py4j passes the printed traceback on to the user, and Spark's own would come
        # first.
        raise carried from None


def was_cancelled(error: BaseException) -> bool:
    """True when Spark ended the job from outside: ``query.stop()``, or somebody killed it."""
    return _CANCELLATIONS.search(str(error)) is not None


def map_in_arrow(frame: DataFrame, task: arrow_job.Task) -> DataFrame:
    """The frame of what ``task`` has prepared for each partition of ``frame``."""
    return arrow_job.applied(frame, arrow_job.call(frame.columns, task, PREPARED_SCHEMA))


class FingerprintTask:
    """What a task does that writes nothing: add up the hashes of its rows."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield record_batch((), sum(map(Fingerprint.of, batches), Fingerprint()))


def whole(texts: list[str]) -> Fingerprint:
    """The fingerprint of all that tasks have read who returned these."""
    return sum(map(fingerprint_of, texts), Fingerprint())


def fingerprint(frame: DataFrame) -> Fingerprint:
    """Compute the frame, and write nothing of it.

    Raises as ``drain``.
    """
    with _errors_of_drains():
        return whole(collected(map_in_arrow(frame, FingerprintTask())))


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


@contextmanager
def _errors_of_drains() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        carried = None if was_cancelled(error) else carried_by(error)
        if carried is None:
            raise
        raise carried from None
