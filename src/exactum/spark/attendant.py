"""What looks on while a query runs: the port for all that is tied to an epoch without deciding about it.

    Spark's micro-batch --begin--> protocol.run (write, decide, commit) --done--> ... idle ... idle --> close

Attendants see each batch before anything of it is computed and after it stands in every sink. None of them can
make an epoch visible or take it back; one may refuse to begin it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from exactum.protocol.coordinator import Completed
from exactum.protocol.model import SourceOffsets


@dataclass(frozen=True)
class Batch:
    """One micro-batch: its id, what it reads, and whether it is the first one of this run of the query."""

    batch_id: int
    offsets: SourceOffsets
    first: bool


class Attendant(Protocol):
    """Called in the thread of the query, except ``idle``, which a thread of its own calls between batches."""

    def begin(self, batch: Batch) -> None:
        """Before the batch is computed, also where it was decided by an earlier run and is only drained.

        Raises:
            Refused: the batch must not be run; nothing of it was written.
        """

    def done(self, batch: Batch, completed: Completed) -> None:
        """After the batch stands in every sink. A failure here stops the query after an epoch that is complete."""

    def idle(self) -> None:
        """Every other second. Must not raise for what only concerns onlookers, and must not wait for long."""

    def close(self) -> None:
        """The run is over. Idempotent."""
