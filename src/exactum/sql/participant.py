"""The driver half of a SQL sink: verifies, commits, aborts and lists, for both mechanisms at once.

A transaction's payload says by which mechanism it was prepared, so that an epoch which is decided
but not finished survives a change of the sink's settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from exactum.errors import EpochAborted, ExactumError, HeuristicOutcome, OutcomeUnknown
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.sql.dialect import LEDGER, ServerFailure, Session, SqlFailure
from exactum.sql.failure import TRANSIENT, port_error
from exactum.sql.ledger import Ledger, LedgerRow
from exactum.sql.plan import Mechanism, WritePlan
from exactum.sql.refusal import had_before, rows_refused
from exactum.sql.retrying_session import RetryingSession
from exactum.sql.staged_commit import CommitState, StagedCommit, StagedEpoch
from exactum.sql.table import TableName
from exactum.sql.transaction import SqlTransaction, prepared_sighting, staged_part, staged_sighting
from exactum.sql.undone import undone

T = TypeVar("T")


class SqlParticipant:
    """Driver side of one table of one query. Two sessions: one may hold an epoch's transaction open
    (see ``StagedCommit``).
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        self._dialect = plan.dialect
        wait_s = plan.lock_timeout_s
        self._session = RetryingSession(plan.dialect, plan.address, "exactum driver", wait_s)
        self._commit_session = RetryingSession(plan.dialect, plan.address, "exactum commit", wait_s)
        self._staged_commit = StagedCommit(plan, self._commit_session)
        self._where = plan.shown

    @property
    def name(self) -> str:
        return self._plan.scope.participant

    def close(self) -> None:
        self._staged_commit.let_go()
        self._commit_session.close()
        self._session.close()

    # ---- what is open ------------------------------------------------------------------------

    def list_open(self) -> Sequence[Sighting]:
        """See the port. Staged parts by the directory, prepared ones as the server lists them."""
        scope = self._plan.scope

        def step(session: Session) -> list[Sighting]:
            staged = Ledger(self._dialect, scope, self._plan.target).staged(session)
            gids = self._dialect.list_prepared(session, scope.gid_prefix)
            session.rollback()
            seen = [prepared_sighting(self.name, scope, gid) for gid in gids]
            return [
                *(staged_sighting(self.name, part) for part in staged),
                *(s for s in seen if s is not None),
            ]

        return self._asked(step)

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        """See the port: none, for the ledger is the marker."""
        return ()

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """See ``Remembering``: by the ledger, whose rows are committed with those of the batch."""

        def step(session: Session) -> int | None:
            highest = Ledger(self._dialect, self._plan.scope, self._plan.target).highest(session)
            session.rollback()
            return highest

        return self._asked(step)

    def forget_batches(self) -> None:
        """See ``Remembering``."""

        def step(session: Session) -> None:
            Ledger(self._dialect, self._plan.scope, self._plan.target).forget_batches(session)
            session.commit()

        self._asked(step)

    def abort(self, transactions: Sequence[Sighting]) -> None:
        """See the port. What is gone is settled."""
        self._staged_commit.let_go()
        staged: dict[TableName, list[tuple[str, int]]] = defaultdict(list)
        for sighting in transactions:
            if (found := staged_part(sighting)) is not None:
                staged[found[0]].append((sighting.identity, found[1]))
        for staging, parts in staged.items():
            self._asked(lambda session, s=staging, p=parts: self._remove(session, s, p))  # type: ignore[misc]
        for sighting in transactions:
            if staged_part(sighting) is None:
                self._asked(lambda session, gid=sighting.identity: self._roll_back(session, gid))  # type: ignore[misc]

    def _remove(
        self, session: Session, staging: TableName, parts: Sequence[tuple[str, int]]
    ) -> None:
        ledger = Ledger(self._dialect, self._plan.scope, staging)
        ledger.forget(session, [identity for identity, _ in parts])
        if self._dialect.read_table(session, staging) is not None:
            self._dialect.clear(
                session,
                staging,
                [part for _, part in parts],
                lambda: not ledger.others_staged(session, staging),
            )
        session.commit()

    def _roll_back(self, session: Session, gid: str) -> None:
        try:
            self._dialect.roll_back_prepared(session, gid)
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.NO_SUCH_PREPARED:
                raise
            session.rollback()

    # ---- before the decision -----------------------------------------------------------------

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        """See the port. Staged rows are moved into the target here, in a transaction that stays
        open.

        Raises:
            RowsRefused: the target refuses the rows.
            CheckpointRefused: the target has this batch already, so the decision log is not the one
                it was.
        """
        staged, gids = self._split(prepared)
        self._asked(lambda session: self._look(session, staged, gids))
        if staged:
            epoch = StagedEpoch.of(staged)
            try:
                state = self._staged_commit.hold(epoch)
            except SqlFailure as failure:
                raise rows_refused(self._plan, epoch.first.batch_id, failure) from failure
            if state is CommitState.MISSING:
                raise EpochAborted(
                    f"{self._where}: staged rows of batch {epoch.first.batch_id} are gone: "
                    f"{self._gone(epoch)}. Somebody emptied the staging table. Nothing was "
                    "committed; start the query again."
                )
            if state is not CommitState.MOVED:
                raise had_before(self._plan, epoch.first.batch_id)
        return prepared

    def _look(
        self,
        session: Session,
        staged: Sequence[PreparedTransaction],
        gids: Sequence[PreparedTransaction],
    ) -> None:
        ledger = Ledger(self._dialect, self._plan.scope, self._plan.target)
        parts = {part.identity: part.rows for part in ledger.staged(session)} if staged else {}
        prefix = self._plan.scope.gid_prefix
        open_gids = set(self._dialect.list_prepared(session, prefix)) if gids else set()
        session.rollback()
        for p in (*staged, *gids):
            if p.identity not in open_gids and parts.get(p.identity) != p.rows:
                raise EpochAborted(
                    f"{self._where}: the transaction {p.identity!r} with {p.rows} rows is not "
                    "there any more. It was undone by a newer run of this query or by an "
                    "operator. Nothing was committed; start the query again."
                )

    # ---- after the decision ------------------------------------------------------------------

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        """See the port.

        Raises:
            HeuristicOutcome: the target refuses rows that it took before the decision; they are
                still staged.
        """
        staged, gids = self._split(prepared)
        committed: list[PreparedTransaction] = []
        expired: list[PreparedTransaction] = []
        if staged:
            is_done = self._commit_staged(permit, StagedEpoch.of(staged))
            (committed if is_done else expired).extend(staged)
        for p in gids:
            is_done = self._commit_prepared(permit, SqlTransaction.of(p))
            (committed if is_done else expired).append(p)
        if gids and not expired:
            last = SqlTransaction.of(gids[0])
            self._carried_out(permit, lambda session: self._prune(session, last))
        return CommitReport(tuple(committed), tuple(expired))

    def _commit_staged(self, permit: CommitPermit, epoch: StagedEpoch) -> bool:
        """False when staged rows are gone and nothing of the epoch is in the target."""
        try:
            if self._staged_commit.finish(epoch):
                return True
        except SqlFailure as failure:
            self._commit_session.reset()
            if failure.failure not in TRANSIENT:
                raise self._undecided(permit, failure) from failure
        try:
            state = self._staged_commit.redo(epoch)
        except SqlFailure as failure:
            raise self._undecided(permit, failure) from failure
        if state is CommitState.OTHER:
            raise HeuristicOutcome(
                "SQL_LEDGER_DIFFERS",
                f"{permit.record.epoch} is decided, but {self._where} has this batch from other "
                f"transactions ({LEDGER} names another set). Two queries with one query id write "
                "to this table: a checkpoint was copied together with its folder. The "
                f"{epoch.rows} rows of this one stay staged and are not in the table; compare the "
                "two, and give one query a new checkpoint location.",
            )
        if state is CommitState.OVERTAKEN:
            raise HeuristicOutcome(
                "SQL_LEDGER_DIFFERS",
                f"{permit.record.epoch} is decided, its {epoch.rows} rows are still staged, and "
                f"{self._where} has a later batch: {LEDGER} names it. The database was restored or "
                "its ledger changed. Compare the two; docs/guarantees.md says how to go on.",
            )
        return state is not CommitState.MISSING

    def _undecided(self, permit: CommitPermit, failure: SqlFailure) -> ExactumError:
        if failure.failure in TRANSIENT:
            return OutcomeUnknown(
                f"{permit.record.epoch} is decided, and {self._where} could not be asked to commit "
                f"it: {failure}. Start the query again: it commits it, or finds that it is "
                "committed."
            )
        return HeuristicOutcome(
            "SQL_NOT_COMMITTED",
            f"{permit.record.epoch} is decided, and the server does not carry it out: "
            f"{self._where}: {failure}. The rows are kept where they were prepared and nothing is "
            "lost. Remove what is in the way (a row with the same key that somebody else wrote "
            "since, a missing right, a changed table), then start the query again.",
        )

    def _commit_prepared(self, permit: CommitPermit, transaction: SqlTransaction) -> bool:
        """False when it was undone: unknown to the server, and without a row in the ledger."""

        def step(session: Session) -> bool:
            try:
                self._dialect.commit_prepared(session, transaction.identity)
                return True
            except SqlFailure as failure:
                if failure.failure is not ServerFailure.NO_SUCH_PREPARED:
                    raise
                session.rollback()
            return self._is_committed(session, transaction)

        return self._carried_out(permit, step)

    def _carried_out(self, permit: CommitPermit, step: Callable[[Session], T]) -> T:
        """A step of a commit that is decided, whatever its error."""
        try:
            return self._session.run(step)
        except SqlFailure as failure:
            raise self._undecided(permit, failure) from failure

    def _is_committed(self, session: Session, transaction: SqlTransaction) -> bool:
        """By the ledger. Trying to write its row waits for whoever is just committing it; then
        undone.
        """
        ledger = Ledger(self._dialect, self._plan.scope, transaction.target)
        row = LedgerRow(transaction.batch_id, transaction.identity, "", transaction.attempt, 0)
        absent = ledger.enter(session, row)
        highest = ledger.highest(session)
        session.rollback()
        return not absent or (highest is not None and highest > transaction.batch_id)

    def _prune(self, session: Session, transaction: SqlTransaction) -> None:
        Ledger(self._dialect, self._plan.scope, transaction.target).prune(
            session, transaction.batch_id
        )
        session.commit()

    # ---- what cannot be made whole -----------------------------------------------------------

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        """See the port. A database keeps nothing of what was undone, so this only says what is
        missing.

        Raises:
            SettingRefused: it was prepared at another address than the sink's.
            HeuristicOutcome: else.
        """
        staged, _ = self._split(expired)
        gone = self._gone(StagedEpoch.of(staged)) if staged else ""
        raise undone(self._plan, permit.record.epoch, expired, gone)

    def _gone(self, epoch: StagedEpoch) -> str:
        def text(p: PreparedTransaction, found: int) -> str:
            return f"{p.identity}: {p.rows - found} of {p.rows} rows"

        try:
            return (
                "; ".join(text(p, found) for p, found in self._staged_commit.missing(epoch))
                or "all of them by now"
            )
        except SqlFailure as failure:
            raise port_error(failure, self._where) from failure

    # ---- small steps -------------------------------------------------------------------------

    def _split(
        self, prepared: Sequence[PreparedTransaction]
    ) -> tuple[list[PreparedTransaction], list[PreparedTransaction]]:
        """The staged ones, and those that the server keeps prepared."""
        both = [(p, SqlTransaction.of(p).mechanism) for p in prepared]
        return [p for p, m in both if m is Mechanism.STAGED], [
            p for p, m in both if m is Mechanism.PREPARED
        ]

    def _asked(self, step: Callable[[Session], T]) -> T:
        try:
            return self._session.run(step)
        except SqlFailure as failure:
            raise port_error(failure, self._where) from failure
