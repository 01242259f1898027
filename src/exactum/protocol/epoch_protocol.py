"""What the three guarantees have in common: how one run of a query brings its micro-batches into
its sinks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from exactum.protocol.model import SourceOffsets
from exactum.protocol.sink import Write


@dataclass(frozen=True)
class Completed:
    """The epoch stands in every sink. ``written`` is False where an earlier run had decided it;
    ``engine`` is then what its record says for the engine. ``phase_ms`` is what each phase took."""

    written: bool
    rows: int
    engine: str = ""
    phase_ms: Mapping[str, float] = field(default_factory=dict, compare=False)


class EpochProtocol(ABC):
    """Runs the epochs of one incarnation, in order, one at a time: ``Coordinator``, ``AtMostOnce``,
    ``AtLeastOnce``.
    """

    @abstractmethod
    def run(self, batch_id: int, offsets: SourceOffsets, write: Write) -> Completed:
        """Bring one batch into every sink, as the guarantee has it. Raises what the guarantee's own
        class says.
        """

    @property
    def abandoned(self) -> int | None:
        """The batch whose attempt was aborted before a decision, this run's last: its tasks may
        still be at work.
        """
        return None

    def sweep_own(self, batch_id: int) -> int:
        """Abort what this incarnation has open between two epochs, or after its last; returns how
        many. Idempotent.
        """
        return 0

    @abstractmethod
    def prune(self, below_batch_id: int) -> None:
        """Forget the records of batches that Spark can no longer ask for. Idempotent."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the participants and of the decision log."""
