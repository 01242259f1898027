"""What an observed metric tells of a micro-batch's bad records.

It counts whenever Spark executes the decoding, and that is not always once, in the write job. From
4.1 on Spark plans a query without state adaptively, and runs the stages before a shuffle ahead of
calling ``foreachBatch``. A function of the user's may look at the batch first. The write job then
reads what was shuffled or persisted, and counts nothing. A frame that reads the batch twice counts
twice. So a number alone does not say whether the same records were bad each time: for dead letters
their places are summed up beside it, and each leaves a mark, one bit of 63.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f

_MARKS = 63
_PLACES = 2**32
"""Few enough that their sum stays within 63 bits, over more bad records than an epoch can have."""


def place() -> Column:
    """A record's place as a number (bigint): a hash of topic, partition and offset."""
    return f.pmod(f.xxhash64("topic", "partition", "offset"), f.lit(_PLACES))


def mark() -> Column:
    """A record's bit (bigint), by its place. Ored together they say which records are not among
    many, however often each was counted.
    """
    return f.expr(f"shiftleft(1L, cast(pmod(xxhash64(topic, partition, offset), {_MARKS}) AS int))")


@dataclass(frozen=True)
class Bad:
    """So many bad records, the sum of their places, and their marks; 0 where places are not summed
    up.
    """

    number: int = 0
    places: int = 0
    marks: int = 0

    def __sub__(self, other: Bad) -> Bad:
        """What came after ``other``, with the marks of both."""
        return Bad(self.number - other.number, self.places - other.places, self.marks)

    def is_several_times(self, other: Bad) -> bool:
        """Whether this is ``other`` once, or several times over."""
        if not other.number:
            return not self.number
        times, rest = divmod(self.number, other.number)
        return times > 0 and not rest and self.places == times * other.places


@dataclass(frozen=True)
class BadCount:
    """``before``: when the micro-batch came to exactum; ``after``: when it was written."""

    before: Bad
    after: Bad

    @property
    def counted(self) -> Bad:
        """What the write job counted; where that was nothing, what was counted ahead of it."""
        job = self.after - self.before
        return job if job.number else self.after

    def allows(self, found: Bad) -> bool:
        """Whether ``found`` may be all there are. More may be found than were counted: a frame with
        a limit does not execute all of the decoding. All that were counted must be among them, as
        far as marks tell: each was left out of the sinks.
        """
        if self.after.marks & ~found.marks:
            return False
        return found.number > self.counted.number or self.counted.is_several_times(found)
