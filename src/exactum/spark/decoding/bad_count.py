"""What an observed metric tells of a micro-batch's bad records.

It counts whenever Spark executes the decoding, and that is not always once, in the write job. From
4.1 on Spark plans a query without state adaptively, and runs the stages before a shuffle ahead of
calling ``foreachBatch``. A function of the user's may look at the batch first. The write job then
reads what was shuffled or persisted, and counts nothing. A frame that reads the batch twice counts
twice.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BadCount:
    """``before``: when the micro-batch came to exactum; ``after``: when it was written."""

    before: int
    after: int

    @property
    def number(self) -> int:
        """What the write job counted; where that was nothing, what was counted ahead of it."""
        return self.after - self.before or self.after

    def allows(self, found: int, reads: int) -> bool:
        """Whether ``found`` bad records may be all there are, of a frame that reads the batch
        ``reads`` times. More may be found than were counted: a frame with a limit does not execute
        all of the decoding.
        """
        if found >= self.number:
            return True
        if found == 0 or self.number % found:
            return False
        return self.after == self.before or self.number // found <= reads
