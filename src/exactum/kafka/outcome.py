"""What became of a transaction (transactional id, producer id, producer epoch): a pure reading of
facts.

Each transaction has a (producer id, producer epoch) of its own, and is ended by requests of EndTxn
version 4 and below, which leave the epoch as it is. So an answer that names exactly this pair
speaks of exactly this transaction. Anything else (a moved epoch, a forgotten id) says nothing for
certain, and the control marker in the log decides (facts: kafka TransactionCoordinator.scala,
endTransaction).
"""

from __future__ import annotations

from dataclasses import dataclass

from exactum.protocol.inspection import TransactionState


@dataclass(frozen=True)
class TransactionDescription:
    """One row of a DescribeTransactions answer. Times in ms of the broker's clock; -1: not
    started.
    """

    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[tuple[str, int], ...]

    def left_ms(self, wall_ms: float, open_ms_max: float) -> float:
        """Milliseconds until the broker times it out.

        ``wall_ms`` is our clock, and may be hours ahead of the broker's; so it counts as open for
        no longer than ``open_ms_max``, by our monotonic clock. A clock that is behind makes this
        too long: then there is salvage.
        """
        return self.timeout_ms - min(wall_ms - self.start_time_ms, open_ms_max)


_EXACT = {
    "Ongoing": TransactionState.OPEN,
    "PrepareCommit": TransactionState.COMMITTED,
    "CompleteCommit": TransactionState.COMMITTED,
    "PrepareAbort": TransactionState.ABORTED,
    "CompleteAbort": TransactionState.ABORTED,
}


def from_description(
    description: TransactionDescription | None, producer_id: int, producer_epoch: int
) -> TransactionState:
    """The outcome as far as the transaction coordinator's memory settles it; else UNKNOWN."""
    if description is None:
        return TransactionState.UNKNOWN
    if (description.producer_id, description.producer_epoch) != (producer_id, producer_epoch):
        return TransactionState.UNKNOWN
    return _EXACT.get(description.state, TransactionState.UNKNOWN)


def from_marker(
    is_commit: bool | None,
    description: TransactionDescription | None,
    producer_id: int,
    epoch: int,
) -> TransactionState:
    """The outcome where only the log can tell. ``is_commit``: what its marker says, of any
    partition, for the coordinator decides once; None: there is none.

    Without any marker, a coordinator that ended the very next epoch by an abort has timed this
    transaction out (it fences to epoch + 1, then aborts) and the markers are on their way or gone.
    """
    if is_commit is not None:
        return TransactionState.COMMITTED if is_commit else TransactionState.ABORTED
    timed_out = (
        description is not None
        and description.producer_id == producer_id
        and description.producer_epoch == epoch + 1
        and description.state in ("PrepareAbort", "CompleteAbort", "PrepareEpochFence")
    )
    return TransactionState.ABORTED if timed_out else TransactionState.UNKNOWN
