"""What became of a transaction, read off facts: the table of facts/kafka-transactions.md,
section 4.8.
"""

import pytest

from exactum.kafka.outcome import (
    TransactionDescription,
    TransactionOutcome,
    from_description,
    from_marker,
)


def described(state: str, producer_id: int = 7, epoch: int = 3) -> TransactionDescription:
    return TransactionDescription(state, producer_id, epoch, 60_000, 0, ())


@pytest.mark.parametrize(
    ("description", "outcome"),
    [
        (None, TransactionOutcome.UNKNOWN),
        (described("Ongoing"), TransactionOutcome.OPEN),
        (described("PrepareCommit"), TransactionOutcome.COMMITTED),
        (described("CompleteCommit"), TransactionOutcome.COMMITTED),
        (described("PrepareAbort"), TransactionOutcome.ABORTED),
        (described("CompleteAbort"), TransactionOutcome.ABORTED),
        (described("Empty"), TransactionOutcome.UNKNOWN),
        (described("Dead"), TransactionOutcome.UNKNOWN),
        (described("PrepareEpochFence"), TransactionOutcome.UNKNOWN),
        (described("CompleteCommit", epoch=4), TransactionOutcome.UNKNOWN),
        (described("CompleteAbort", epoch=4), TransactionOutcome.UNKNOWN),
        (described("Ongoing", epoch=4), TransactionOutcome.UNKNOWN),
        (described("Ongoing", producer_id=8), TransactionOutcome.UNKNOWN),
        (described("CompleteCommit", producer_id=8, epoch=0), TransactionOutcome.UNKNOWN),
    ],
)
def test_the_coordinator_is_believed_only_where_it_speaks_of_this_very_transaction(
    description: TransactionDescription | None, outcome: TransactionOutcome
) -> None:
    """Another epoch or producer id may be a later transaction of the same id: it proves nothing."""
    assert from_description(description, 7, 3) is outcome


@pytest.mark.parametrize(
    ("is_commit", "description", "outcome"),
    [
        (True, None, TransactionOutcome.COMMITTED),
        (False, described("CompleteCommit", epoch=5), TransactionOutcome.ABORTED),
        (None, described("PrepareAbort", epoch=4), TransactionOutcome.ABORTED),
        (None, described("CompleteAbort", epoch=4), TransactionOutcome.ABORTED),
        (None, described("CompleteCommit", epoch=4), TransactionOutcome.UNKNOWN),
        (None, described("CompleteAbort", epoch=5), TransactionOutcome.UNKNOWN),
        (None, None, TransactionOutcome.UNKNOWN),
    ],
)
def test_the_log_decides_where_the_coordinator_cannot(
    is_commit: bool | None, description: TransactionDescription | None, outcome: TransactionOutcome
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
