"""Tells that a database has lost batches that it had: its ledger ends before a batch that the
decision log has as committed there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Committed
from exactum.sql.dialect import LEDGER, Session
from exactum.sql.ledger import WHOLE_EPOCH, Ledger, LedgerRow, digest_of
from exactum.sql.plan import WritePlan
from exactum.sql.table import TableName
from exactum.sql.transaction import SqlTransaction
from exactum.sql.url import server_of


@dataclass(frozen=True)
class LedgerPlace:
    """Which ledger transactions were entered in. ``server``: with the database, whoever the user
    was.
    """

    ledger: TableName
    server: str

    @staticmethod
    def of(target: TableName, at: str) -> LedgerPlace:
        return LedgerPlace(target.sibling(LEDGER), server_of(at))

    @staticmethod
    def where_all_were(prepared: Sequence[PreparedTransaction]) -> LedgerPlace | None:
        """None where they were written to several, or by no sink of this kind."""
        try:
            found = {LedgerPlace.of(t.target, t.at) for t in map(SqlTransaction.of, prepared)}
        except InvariantBroken:
            return None
        return found.pop() if len(found) == 1 else None


def gone_back(
    plan: WritePlan,
    session: Session,
    batch_id: int,
    prepared: Sequence[PreparedTransaction],
    committed: Committed,
) -> str:
    """See ``Accountable``: by the highest batch of the ledger. One without a row for the scope
    tells nothing: the table is new, or the ledger was emptied on purpose.
    """
    here = LedgerPlace.of(plan.target, plan.address.where)
    place = LedgerPlace.where_all_were(prepared)
    if place is None:
        return ""
    highest = _highest(plan, session, batch_id)
    if highest is None or highest >= batch_id:
        return ""
    if place != here and not _is_copy(plan, session, highest, committed(highest)):
        return ""  # the sink was moved, and has its ledger elsewhere; or back, to an older one
    table = SqlTransaction.of(prepared[0]).target
    loss = _loss(plan, highest, batch_id, table, "" if place == here else place.server)
    return f"{loss} Nothing was written, and nothing was aborted."


def older_copy(
    plan: WritePlan,
    session: Session,
    batch_id: int,
    prepared: Sequence[PreparedTransaction],
    is_on_record: Callable[[int], bool],
) -> str:
    """See ``Renamable``: by the server's name, and by the highest batch of the ledger."""
    here = LedgerPlace.of(plan.target, plan.address.where)
    place = LedgerPlace.where_all_were(prepared)
    if place is None or place.server == here.server:
        return ""
    highest = _highest(plan, session, batch_id)
    if highest is None or highest >= batch_id or is_on_record(highest):
        return ""
    ledger = plan.target.sibling(LEDGER)
    return (
        f"Sink {plan.scope.participant!r} was given {plan.address.where}, and batch {batch_id} was "
        f"written at {place.server}. {ledger} here has batches of this query, too, and ends with "
        f"batch {highest}, of which the decision log has no record any more. Nothing on file says "
        "that the query has written here before: this is an older copy of that database (a "
        "snapshot that was restored by another name), or one that the query has left long ago. If "
        "it is a copy, use a newer one; or load by hand the rows of the batches after "
        f"{highest}. Then, or if the sink was moved here on purpose: DELETE FROM {ledger} WHERE "
        f"scope = '{plan.scope.text}'; and start again. Nothing was written, and nothing was "
        "aborted."
    )


def _is_copy(
    plan: WritePlan, session: Session, highest: int, prepared: Sequence[PreparedTransaction]
) -> bool:
    """Whether the ledger has what was committed elsewhere: this is a standby or a restored copy of
    that database, by another name. A ledger that a sink was moved back to ends with what was
    committed here.
    """
    place = LedgerPlace.where_all_were(prepared)
    if place is None or place == LedgerPlace.of(plan.target, plan.address.where):
        return False
    ledger = Ledger(plan.dialect, plan.scope, plan.target)
    its_own = any(ledger.digest(session, highest, p.identity) is not None for p in prepared)
    is_there = its_own or ledger.digest(session, highest, WHOLE_EPOCH) == digest_of(prepared)
    session.rollback()
    return is_there


def _highest(plan: WritePlan, session: Session, batch_id: int) -> int | None:
    """The ledger's last batch. Something between may send what only reads to a standby that is
    behind, but not after a write: one below ``batch_id`` is read again behind one, which is undone.
    """
    ledger = Ledger(plan.dialect, plan.scope, plan.target)
    highest = ledger.highest(session)
    if highest is None or highest < batch_id:
        ledger.enter(session, LedgerRow(-1, "a look", "", 0, 0))
        highest = ledger.highest(session)
    session.rollback()
    return None if highest is None or highest < 0 else highest


def _loss(
    plan: WritePlan, highest: int | None, batch_id: int, table: TableName, original: str = ""
) -> str:
    """What to say where ``batch_id`` was committed, and ``highest`` is the ledger's last batch.
    ``original``: of which the database is a copy.
    """
    ledger = plan.target.sibling(LEDGER)
    of_it = f", which has batches that were written at {original}," if original else ""
    ends = "has none of this query" if highest is None else f"ends with batch {highest}"
    after = "" if highest is None else f" of the batches after {highest}"
    last = (
        "then start again, for an empty ledger is taken at a start."
        if highest is None
        else f"then DELETE FROM {ledger} WHERE scope = '{plan.scope.text}'; and start again."
    )
    return (
        f"Sink {plan.scope.participant!r} at {plan.address.where} has lost what was committed: the "
        f"decision log and Spark have batch {batch_id} as done, with rows for {table}, and "
        f"{ledger}{of_it} {ends}. The database was restored from an older copy, or failed over to "
        "a server without the newest commits; or its ledger was. Restore the newer state. Or load "
        f"by hand what is missing{after} ('exactum verify' says which; their records have the "
        f"source offsets), or do without it: {last}"
    )


class LastCommit:
    """The last batch that a run has committed: a database that lives as long has it."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._here = LedgerPlace.of(plan.target, plan.address.where)
        self._batch_id = -1
        self._identities: frozenset[str] = frozenset()

    def add(self, batch_id: int, prepared: Sequence[PreparedTransaction]) -> None:
        """It is committed, perhaps once more. What a start finds decided may be for another table,
        which has another ledger.
        """
        if batch_id >= self._batch_id and LedgerPlace.where_all_were(prepared) == self._here:
            self._batch_id = batch_id
            self._identities = frozenset(p.identity for p in prepared)

    def refuse_loss(self, session: Session, highest: int | None) -> None:
        """``highest`` is the ledger's last batch, as it was just read. None is a loss as well: a
        ledger is emptied on purpose between two runs. Where the lost commit itself waits, nothing
        is refused: the coordinator commits it again, and asks once more.

        Raises:
            CheckpointRefused: the commit is gone.
        """
        if (-1 if highest is None else highest) >= self._batch_id:
            return
        highest = _highest(self._plan, session, self._batch_id)
        if (-1 if highest is None else highest) >= self._batch_id or self._waits(session):
            return
        text = _loss(self._plan, highest, self._batch_id, self._plan.target)
        raise CheckpointRefused(f"{text} Nothing of the batch at hand was written.")

    def _waits(self, session: Session) -> bool:
        """Whatever else waits (a speculative task's, or one of a batch long ago) does not bring it
        back.
        """
        plan = self._plan
        staged = Ledger(plan.dialect, plan.scope, plan.target).staged(session)
        gids = plan.dialect.list_prepared(session, plan.scope.gid_prefix)
        session.rollback()
        return not self._identities.isdisjoint({*(part.identity for part in staged), *gids})
