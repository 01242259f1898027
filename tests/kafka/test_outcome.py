"""What became of a transaction, read off facts: the table of facts/kafka-transactions.md,
section 4.8.
"""

import pytest

from exactum.kafka.outcome import (
    TransactionDescription,
    from_description,
    from_marker,
)
from exactum.protocol.inspection import TransactionState


def described(state: str, producer_id: int = 7, epoch: int = 3) -> TransactionDescription:
    return TransactionDescription(state, producer_id, epoch, 60_000, 0, ())


@pytest.mark.parametrize(
    ("description", "outcome"),
    [
        (None, TransactionState.UNKNOWN),
        (described("Ongoing"), TransactionState.OPEN),
        (described("PrepareCommit"), TransactionState.COMMITTED),
        (described("CompleteCommit"), TransactionState.COMMITTED),
        (described("PrepareAbort"), TransactionState.ABORTED),
        (described("CompleteAbort"), TransactionState.ABORTED),
        (described("Empty"), TransactionState.UNKNOWN),
        (described("Dead"), TransactionState.UNKNOWN),
        (described("PrepareEpochFence"), TransactionState.UNKNOWN),
        (described("CompleteCommit", epoch=4), TransactionState.UNKNOWN),
        (described("CompleteAbort", epoch=4), TransactionState.UNKNOWN),
        (described("Ongoing", epoch=4), TransactionState.UNKNOWN),
        (described("Ongoing", producer_id=8), TransactionState.UNKNOWN),
        (described("CompleteCommit", producer_id=8, epoch=0), TransactionState.UNKNOWN),
    ],
)
def test_the_coordinator_is_believed_only_where_it_speaks_of_this_very_transaction(
    description: TransactionDescription | None, outcome: TransactionState
) -> None:
    """Another epoch or producer id may be a later transaction of the same id: it proves nothing."""
    assert from_description(description, 7, 3) is outcome


@pytest.mark.parametrize(
    ("is_commit", "description", "outcome"),
    [
        (True, None, TransactionState.COMMITTED),
        (False, described("CompleteCommit", epoch=5), TransactionState.ABORTED),
        (None, described("PrepareAbort", epoch=4), TransactionState.ABORTED),
        (None, described("CompleteAbort", epoch=4), TransactionState.ABORTED),
        (None, described("CompleteCommit", epoch=4), TransactionState.UNKNOWN),
        (None, described("CompleteAbort", epoch=5), TransactionState.UNKNOWN),
        (None, None, TransactionState.UNKNOWN),
    ],
)
def test_the_log_decides_where_the_coordinator_cannot(
    is_commit: bool | None, description: TransactionDescription | None, outcome: TransactionState
) -> None:
    """One marker of either kind is enough; without any, only a timeout just made is taken for an
    abort.
    """
    assert from_marker(is_commit, description, 7, 3) is outcome


@pytest.mark.parametrize(
    ("wall_ms", "open_ms_max", "left_ms"),
    [
        (20_000, 50_000, 40_000),
        (55_000, 58_000, 5_000),
        (3_620_000, 20_000, 40_000),
        (3_620_000, 59_000, 1_000),
    ],
    ids=[
        "clocks agree",
        "clocks agree, and little is left",
        "ours is an hour ahead",
        "ahead, and little is left",
    ],
)
def test_what_is_left_of_a_transaction_does_not_rest_on_two_clocks_alone(
    wall_ms: float, open_ms_max: float, left_ms: float
) -> None:
    """Begun at 0 by the broker's clock, with a timeout of a minute."""
    assert described("Ongoing").left_ms(wall_ms, open_ms_max) == left_ms
