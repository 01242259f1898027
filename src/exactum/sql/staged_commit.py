"""Brings a staged epoch into the target, in one local transaction, at most once whoever asks and
how often.

    enter the ledger's row (waits for whoever is just doing the same; was there: done)
    INSERT ... SELECT from staging, counted
    remove the parts from directory and staging
    COMMIT

The driver does all but the last two *before* the decision and keeps the transaction open
(``hold``): what the target refuses (a duplicate key, a CHECK, a foreign key) then aborts the epoch
instead of standing in the way of one that is decided. The COMMIT itself comes after the decision
(``finish``). When the held transaction is lost, or in another process, the same is done again from
the start (``redo``): the staged rows are still there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exactum.protocol.model import PreparedTransaction
from exactum.sql.dialect import PART, ROW, Dialect, Mode, Session
from exactum.sql.ledger import WHOLE_EPOCH, Ledger, LedgerRow, digest_of
from exactum.sql.plan import WritePlan
from exactum.sql.retrying_session import RetryingSession
from exactum.sql.table import TableName
from exactum.sql.target_change import check_moved, check_target
from exactum.sql.transaction import SqlTransaction, StagedMove


class CommitState(Enum):
    """What the target says about a batch."""

    MOVED = "its rows are in the target, in this transaction"
    COMMITTED = "committed before"
    OTHER = "committed before, with other transactions"
    MISSING = "staged rows are gone"
    OVERTAKEN = "a later batch is in the target, and its rows are still staged"


@dataclass(frozen=True)
class StagedEpoch:
    """The staged transactions of one batch, in a form that can be moved."""

    prepared: tuple[PreparedTransaction, ...]
    transactions: tuple[SqlTransaction, ...]

    @staticmethod
    def of(prepared: Sequence[PreparedTransaction]) -> StagedEpoch:
        return StagedEpoch(tuple(prepared), tuple(SqlTransaction.of(p) for p in prepared))

    @property
    def first(self) -> SqlTransaction:
        return self.transactions[0]

    @property
    def digest(self) -> str:
        return digest_of(self.prepared)

    @property
    def rows(self) -> int:
        return sum(p.rows for p in self.prepared)

    def by_move(self) -> dict[tuple[TableName, StagedMove], list[tuple[int, int]]]:
        """(part, rows) by where and how they are to be moved: one group, unless a task was of
        another version.
        """
        groups: dict[tuple[TableName, StagedMove], list[tuple[int, int]]] = defaultdict(list)
        for prepared, transaction in zip(self.prepared, self.transactions, strict=True):
            if transaction.move is not None:
                groups[transaction.target, transaction.move].append(
                    (transaction.part, prepared.rows)
                )
        return groups


class StagedCommit:
    """Of one participant. Used by one thread at a time; its methods raise ``SqlFailure``."""

    def __init__(self, plan: WritePlan, session: RetryingSession) -> None:
        self._plan = plan
        self._dialect: Dialect = plan.dialect
        self._session = session
        self._held: tuple[str, Session] | None = None

    def hold(self, epoch: StagedEpoch) -> CommitState:
        """Everything but the COMMIT. Unless MOVED, nothing is held. Idempotent: what was held
        before is undone.
        """
        self.let_go()

        def step(session: Session) -> CommitState:
            state = self._move(session, epoch)
            if state is CommitState.MOVED:
                check_target(self._plan, session)
                self._held = (epoch.digest, session)
            else:
                session.rollback()
            return state

        return self._session.run(step)

    def let_go(self) -> None:
        """Undo what is held. Idempotent."""
        if self._held is not None:
            self._held = None
            self._session.reset()

    def finish(self, epoch: StagedEpoch) -> bool:
        """COMMIT what is held of exactly these transactions; False when nothing is. The decision is
        recorded.

        Raises:
            SqlFailure: it may or may not be committed: ``redo`` finds out.
        """
        held, self._held = self._held, None
        if held is None:
            return False
        if held[0] != epoch.digest or not held[1].usable:
            self._session.reset()
            return False
        self._commit(held[1], epoch)
        return True

    def redo(self, epoch: StagedEpoch) -> CommitState:
        """All of it; MOVED and COMMITTED both mean that the rows are visible. Idempotent.

        Raises:
            SqlFailure: REFUSED or CHANGED, see ``check_moved``; or the server's.
        """
        self.let_go()

        def step(session: Session) -> CommitState:
            state = self._move(session, epoch)
            if state is CommitState.MOVED:
                for target, move in epoch.by_move():
                    check_moved(self._dialect, session, target, move)
                self._commit(session, epoch)
            else:
                session.rollback()
            return state

        return self._session.run(step)

    def missing(self, epoch: StagedEpoch) -> list[tuple[PreparedTransaction, int]]:
        """Transactions of which fewer rows are staged than were prepared, with how many there
        are.
        """

        def step(session: Session) -> list[tuple[PreparedTransaction, int]]:
            found: dict[int, int] = {}
            for (_, move), parts in epoch.by_move().items():
                if self._dialect.read_table(session, move.staging) is not None:
                    found |= self._dialect.count(session, move.staging, [part for part, _ in parts])
            session.rollback()
            pairs = zip(epoch.prepared, epoch.transactions, strict=True)
            return [(p, found.get(t.part, 0)) for p, t in pairs if found.get(t.part, 0) != p.rows]

        return self._session.run(step)

    # ---- in the session's transaction --------------------------------------------------------

    def _move(self, session: Session, epoch: StagedEpoch) -> CommitState:
        first = epoch.first
        ledger = Ledger(self._dialect, self._plan.scope, first.target)
        row = LedgerRow(first.batch_id, WHOLE_EPOCH, epoch.digest, first.attempt, epoch.rows)
        if not ledger.enter(session, row):
            same = ledger.digest(session, first.batch_id, WHOLE_EPOCH) == epoch.digest
            return CommitState.COMMITTED if same else CommitState.OTHER
        highest = ledger.highest(session)
        if highest is not None and highest > first.batch_id:
            # The row of a later batch speaks for a row that was pruned. A commit removes what was
            # staged, so what still is was not committed.
            own = {p.identity for p in epoch.prepared}
            waits = any(part.identity in own for part in ledger.staged(session))
            return CommitState.OVERTAKEN if waits else CommitState.COMMITTED
        for (target, move), parts in epoch.by_move().items():
            if not self._move_group(session, target, move, parts):
                return CommitState.MISSING
        return CommitState.MOVED

    def _move_group(
        self,
        session: Session,
        target: TableName,
        move: StagedMove,
        parts: Sequence[tuple[int, int]],
    ) -> bool:
        """False when staged rows are missing."""
        columns = self._columns(session, move)
        if columns is None:
            return False
        names = tuple(part for part, _ in parts)
        used = self._dialect.move(session, move.with_parts(target, columns, names))
        # MySQL counts a row that an upsert replaces twice.
        is_exact = move.mode is Mode.APPEND or not self._dialect.upserts_by_any_key
        if is_exact and used == sum(rows for _, rows in parts):
            return True
        # An upsert uses fewer rows than there are, and so does a target with triggers: the staging
        # has the last word.
        there = self._dialect.count(session, move.staging, names)
        return all(there.get(part, 0) == rows for part, rows in parts)

    def _columns(self, session: Session, move: StagedMove) -> tuple[str, ...] | None:
        """What is written; None when the staging table is gone."""
        if move.staging == self._plan.staging:
            return tuple(c.name for c in self._plan.columns)
        table = self._dialect.read_table(session, move.staging)
        if table is None:
            return None
        return tuple(c.name for c in table.columns if c.name not in (PART, ROW, move.delete_when))

    def _commit(self, session: Session, epoch: StagedEpoch) -> None:
        first = epoch.first
        ledger = Ledger(self._dialect, self._plan.scope, first.target)
        ledger.forget(session, [p.identity for p in epoch.prepared])
        for (_, move), parts in epoch.by_move().items():
            staging = move.staging
            self._dialect.clear(
                session,
                staging,
                [part for part, _ in parts],
                lambda staging=staging: not ledger.others_staged(session, staging),  # type: ignore[misc]
            )
        ledger.prune(session, first.batch_id)
        session.commit()
