"""Where the rows of an epoch come from, for an error that the same rows will meet again; and no
error but those of exactum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from exactum.checkpoint.offset_log import from_json, name_of
from exactum.errors import CodeFailed, EpochAborted, ExactumError, RowsRefused, UnknownFailure
from exactum.protocol.model import SourceOffsets
from exactum.spark.jvm.error import JvmError, reason_of
from exactum.spark.write.failure import place_of, thrown, unknown
from exactum.spark.write.write_job import was_cancelled

OF_ROWS = (RowsRefused, CodeFailed, UnknownFailure)
SHOWN_MAX = 8


@contextmanager
def named(offsets: SourceOffsets) -> Iterator[None]:
    """Adds to an error about rows which records the epoch reads: the row is among them.

    Raises:
        ExactumError: as it was raised within, where it is about rows with more to say; or what is
            made of an error of Spark or of another library.
        Exception: Spark has cancelled what was done within.
    """
    try:
        yield
    except Exception as error:
        if was_cancelled(error) or "Interrupt" in str(error):  # Spark knows its stop by such words
            raise
        ours = error if isinstance(error, ExactumError) else thrown(error) or _unknown(error)
        text = text_of(offsets) if isinstance(ours, OF_ROWS) else ""
        if ours is error and not text:
            raise
        # "from None": Spark shows the printed traceback, and the same message twice would bury the
        # end of it.
        raise ours.followed_by(f" {text}".rstrip()) from None


def _unknown(error: Exception) -> EpochAborted:
    if not isinstance(error, JvmError | PySparkException):
        return unknown(f"{type(error).__name__}: {error} (at {place_of(error)})", error)
    cause = str(error).rpartition("\nCaused by: ")[2]
    return unknown(reason_of(RuntimeError(cause)), error)


def text_of(offsets: SourceOffsets) -> str:
    """Which records of Kafka's partitions these are, half-open; empty where no source says so."""
    found: list[str] = []
    for place, end in enumerate(offsets.end):
        before = from_json(offsets.start[place]) if place < len(offsets.start) else {}
        for partition, last in sorted(from_json(end).items()):
            first = before.get(partition)
            if first is None:
                found.append(f"{name_of(partition)} before {last}")
            elif first < last:
                found.append(f"{name_of(partition)} from {first} to before {last}")
    if not found:
        return ""
    more = f", and {len(found) - SHOWN_MAX} more partitions" if len(found) > SHOWN_MAX else ""
    return f"The epoch reads these offsets: {', '.join(found[:SHOWN_MAX])}{more}."
