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

    text = _loss(plan, asked(step), batch_id)
    return f"{text}, and nothing was aborted." if text else ""


def _loss(plan: WritePlan, highest: int | None, batch_id: int) -> str:
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
        f"{ledger} WHERE scope = '{plan.scope.text}'; and start again. Nothing was written"
    )


class LastCommit:
    """The last batch that a run has committed: a database that lives as long has it."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._batch_id = -1
        self._identities: frozenset[str] = frozenset()

    def add(self, batch_id: int, prepared: Sequence[PreparedTransaction]) -> None:
        """It is committed, perhaps once more."""
        if batch_id >= self._batch_id:
            self._batch_id = batch_id
            self._identities = frozenset(p.identity for p in prepared)

    def refuse_loss(self, session: Session, highest: int | None) -> None:
        """``highest`` is the ledger's last batch. Where the lost commit itself waits, nothing is
        refused: the coordinator commits it again, and asks once more.

        Raises:
            CheckpointRefused: see ``_loss``.
        """
        text = _loss(self._plan, highest, self._batch_id)
        if text and not self._waits(session):
            raise CheckpointRefused(f"{text} of the batch at hand.")

    def _waits(self, session: Session) -> bool:
        """Whatever else waits (a speculative task's, or one of a batch long ago) does not bring it
        back.
        """
        plan = self._plan
        staged = Ledger(plan.dialect, plan.scope, plan.target).staged(session)
        gids = plan.dialect.list_prepared(session, plan.scope.gid_prefix)
        session.rollback()
        return not self._identities.isdisjoint({*(part.identity for part in staged), *gids})


def _were_written_here(plan: WritePlan, prepared: Sequence[PreparedTransaction]) -> bool:
    """To this very table at this very address. A sink that was moved has its ledger elsewhere, one
    that was moved back an old one, and one of this name may have been no table.
    """
    try:
        written = {(t.target, t.at) for t in map(SqlTransaction.of, prepared)}
    except InvariantBroken:
        return False
    return written == {(plan.target, plan.address.where)}
