"""The port for all that is tied to a query's micro-batches without deciding about them.

    Spark's micro-batch --begin--> protocol.run (write, decide, commit) --done--> ... --> close

Listeners see each batch before anything of it is computed and after it stands in every sink. None
of them can make an epoch visible or take it back; one may refuse to begin it.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactum.protocol.model import Completed, SourceOffsets
from exactum.protocol.sink import WriteOrder


@dataclass(frozen=True)
class Batch:
    """One micro-batch: its id, what it reads, and whether it is the first one of this run of the
    query.
    """

    batch_id: int
    offsets: SourceOffsets
    first: bool


class EpochListener:
    """Called in the thread of the query, ``close`` in any. A method that a listener does not have
    does nothing.
    """

    def begin(self, batch: Batch) -> None:
        """Before the batch is computed, also where it was decided by an earlier run and is only
        drained.

        Raises:
            Refused: the batch must not be run; nothing of it was written.
        """

    def writing(self, batch: Batch, order: WriteOrder) -> None:
        """Before anything of an attempt at the batch is written, so before its decision, or that it
        was begun; not called where the batch stands already. Older runs are fenced by then.

        Raises:
            Fenced, Refused, Unavailable: the attempt must not be made; nothing of it was written.
        """

    def done(self, batch: Batch, completed: Completed) -> None:
        """After the batch stands in every sink. A failure here stops the query after an epoch that
        is complete.
        """

    def close(self) -> None:
        """The run is over. Idempotent."""
