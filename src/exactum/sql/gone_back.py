"""Tells that a database has lost batches that it had: its ledger ends before a batch that the
decision log has as committed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol.model import PreparedTransaction
from exactum.sql.dialect import LEDGER, Session
from exactum.sql.ledger import Ledger, LedgerRow
from exactum.sql.plan import WritePlan
from exactum.sql.transaction import SqlTransaction

Asked = Callable[[Callable[[Session], int | None]], int | None]
"""Does a step in a session of the driver's."""


def gone_back(
    plan: WritePlan, batch_id: int, prepared: Sequence[PreparedTransaction], asked: Asked
) -> str:
    """See ``Accountable``: by the highest batch of the ledger. One without a row for the scope
    tells nothing: the table is new, or the ledger was emptied on purpose.
    """
    if not _were_written_here(plan, prepared):
        return ""

    def step(session: Session) -> int | None:
        ledger = Ledger(plan.dialect, plan.scope, plan.target)
        highest = ledger.highest(session)
        if highest is not None and highest < batch_id:
            # Something between may send what only reads to a standby that is behind: not after a
            # write. It is undone.
            ledger.enter(session, LedgerRow(0, "a look", "", 0, 0))
            highest = ledger.highest(session)
        session.rollback()
        return highest

    return loss(plan, asked(step), batch_id)


def loss(plan: WritePlan, highest: int | None, batch_id: int) -> str:
    """What to say where ``batch_id`` was committed, and ``highest`` is the ledger's last batch."""
    if highest is None or highest >= batch_id:
        return ""
    ledger = plan.target.sibling(LEDGER)
    return (
        f"Sink {plan.scope.participant!r} at {plan.address.where} has lost what was committed: the "
        f"decision log and Spark have batch {batch_id} as done, with rows for {plan.target}, and "
        f"{ledger} ends with batch {highest}. The database was restored from an older copy, or "
        "failed over to a server without the newest commits; or its ledger was. Restore the newer "
        f"state. Or load by hand what is missing of the batches after {highest} ('exactum verify' "
        "says which; their records have the source offsets), or do without it: then DELETE FROM "
        f"{ledger} WHERE scope = '{plan.scope.text}'; and start again. Nothing was written, and "
        "nothing was aborted."
    )


def refuse_loss(plan: WritePlan, highest: int | None, batch_id: int) -> None:
    """
    Raises:
        CheckpointRefused: see ``loss``.
    """
    if text := loss(plan, highest, batch_id):
        raise CheckpointRefused(text)


def _were_written_here(plan: WritePlan, prepared: Sequence[PreparedTransaction]) -> bool:
    """To this very table at this very address. A sink that was moved has its ledger elsewhere, one
    that was moved back an old one, and one of this name may have been no table.
    """
    try:
        written = {(t.target, t.at) for t in map(SqlTransaction.of, prepared)}
    except InvariantBroken:
        return False
    return written == {(plan.target, plan.address.where)}
