"""A table as a staged target: the driver loads an epoch's files into it in one transaction,
together with the ledger's row, at most once whoever asks and how often.

    enter the ledger's row (waits for whoever is just doing the same; was there: done)
    see that the table is what it was; from here on nobody can change that
    load the staged files into the target; of an upsert into a temporary table, and from there
    COMMIT

All but the COMMIT is done *before* the decision, and the transaction stays open (``hold``): what
the target refuses (a duplicate key, a CHECK, a foreign key) then aborts the epoch. The COMMIT comes
after the decision. When the held transaction is lost, or in another process, the same is done again
from the start: the files are still there.

Where a table has columns of which only the server knows what they take (``judge``), and it refuses
the load, a temporary table that has nothing but the columns' types tells which rows it refuses for
their own values. These are left out, now and whenever the files are loaded again: the decision
record has their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from typing import TypeVar

import pyarrow as pa

from exactum.errors import EpochAborted, ExactumError, OutcomeUnknown, RowsRefused
from exactum.protocol.model import RUN_DIGITS, PreparedTransaction, of_another_sink
from exactum.protocol.sink import Rejection, Scope
from exactum.sinks.frames import Frame, FrameReader, without
from exactum.sinks.rows import rejected
from exactum.sinks.staged import (
    Published,
    PublishFailed,
    StagedEpoch,
    StagedPart,
    StagedTarget,
)
from exactum.sql.columns import check_table
from exactum.sql.dialect import LEDGER, Dialect, Load, Mode, RefusedRow
from exactum.sql.rows import TableRules
from exactum.sql.session import (
    TRANSIENT,
    RetryingSession,
    ServerFailure,
    Session,
    SqlFailure,
    port_error,
)
from exactum.sql.table import TableName
from exactum.sql.writer import WritePlan, load_of, scope_text

LOCK_TIMEOUTS = ("55P03", "1205")
"""Of PostgreSQL; of MySQL and MariaDB."""


def rows_refused(plan: WritePlan, batch_id: int, failure: SqlFailure) -> ExactumError:
    """Staged rows do not go into the target."""
    if failure.failure is ServerFailure.ROWS:
        return RowsRefused(
            "ROWS_REFUSED",
            f"{plan.shown}: the table {plan.target} refused the rows of batch "
            f"{batch_id}: {failure}. Nothing of the epoch is visible. Correct the rows in the "
            "query, or the table.",
        )
    if failure.failure is ServerFailure.CHANGED:
        return EpochAborted(
            f"{plan.shown}: {failure} Nothing of batch {batch_id} is visible; start the query "
            "again."
        )
    if failure.code in LOCK_TIMEOUTS:
        held = (
            f"{failure.text}. The lock is another program's, or that of another sink of the query, "
            "which holds its rows until the decision (docs/databases.md)"
        )
        failure = SqlFailure(failure.failure, failure.code, held)
    return port_error(failure, plan.shown)


def rejection_of(plan: WritePlan, refused: Sequence[RefusedRow]) -> Rejection:
    """Rows that the server alone refuses, as a task rejects the others."""
    flag = () if plan.flag_column is None else (plan.flag_column,)
    each = [row.row.select([*plan.frame_columns, *flag]) for row in refused]
    (rows,) = pa.Table.from_batches(each).combine_chunks().to_batches()
    rules = TableRules(plan.columns, plan.frame_columns, named_by=plan.named_by)
    reasons = [f"{plan.dialect.name} refuses it: {row.why}" for row in refused]
    return rejected(rows, reasons, rules.names)


def too_many_refused(plan: WritePlan, batch_id: int, refused: Sequence[RefusedRow]) -> RowsRefused:
    """More than are put aside."""
    return RowsRefused(
        "ROWS_REFUSED",
        f"{plan.shown}: the table {plan.target} refuses {len(refused)} rows of batch {batch_id} or "
        f"more, the first: {rejection_of(plan, refused[:1]).reasons[0]}. So many are not put "
        "aside. Nothing of the epoch is visible. Correct the rows in the query, or the table.",
    )


# ---- the ledger ------------------------------------------------------------------------------


BATCHES_KEPT = 1_000
"""How many batches the ledger keeps at least: it speaks for all that a log has on record, which are
as many as Spark keeps, and those that nobody had time to prune.
"""
PRUNE_EVERY = 20
"""In batches."""


class Ledger:
    """The ledger of one scope, beside the table ``sibling``. Every method works in the
    session's transaction and raises ``SqlFailure``; none commits."""

    def __init__(self, dialect: Dialect, scope: Scope, sibling: TableName) -> None:
        self._dialect = dialect
        self._scope = scope_text(scope)
        self._sibling = sibling

    def enter(self, session: Session, epoch: StagedEpoch) -> bool:
        """Write the epoch's row unless its batch has one; False when it had. Waits for whoever is
        just writing the same one.
        """
        row = (self._scope, epoch.batch_id, epoch.digest, epoch.attempt, epoch.rows)
        return session.execute(self._sql("enter_ledger"), row) == 1

    def enter_again(self, session: Session, epoch: StagedEpoch) -> None:
        """Write another row in the place of the one that this transaction has entered."""
        session.execute(self._sql("forget_batch"), (self._scope, epoch.batch_id))
        self.enter(session, epoch)

    def highest(self, session: Session) -> int | None:
        """The highest batch with a committed row; None when there is none."""
        rows = session.query(self._sql("highest_batch"), (self._scope,))
        return None if rows[0][0] is None else int(rows[0][0])

    def digest(self, session: Session, batch_id: int) -> str | None:
        """Of the batch's row, or None when it is not there."""
        rows = session.query(self._sql("find_digest"), (self._scope, batch_id))
        return str(rows[0][0]) if rows else None

    def prune(self, session: Session, batch_id: int) -> None:
        """Now and then, forget what lies far below ``batch_id``. The row of a later batch speaks
        for it.
        """
        if batch_id % PRUNE_EVERY:
            return
        before = batch_id - BATCHES_KEPT
        for key in session.query(self._sql("list_old_batches"), (self._scope, before)):
            session.execute(self._sql("forget_batch"), (self._scope, *key))

    def forget_batches(self, session: Session, first: int) -> None:
        """From this one on: a person has accepted that they may be written again. What stands of
        those before it is known by their rows.
        """
        session.execute(self._sql("forget_batches"), (self._scope, first))

    def _sql(self, name: str) -> str:
        return self._dialect.sql(name, ledger=self._sibling.sibling(LEDGER))


# ---- the target ------------------------------------------------------------------------------


T = TypeVar("T")

REFUSED_MAX = 100
"""Most rows of an epoch that the server alone refuses and that are put aside: each costs it several
tries, and a place in the decision record.
"""


def bring(dialect: Dialect, session: Session, load: Load, frames: Iterator[Frame]) -> None:
    """Rows into the target, in the session's transaction."""
    if load.mode is Mode.APPEND:
        dialect.load(session, load.target, load.load, frames)
        return
    table = dialect.create_temporary_table(session, load.staged_columns)
    dialect.load(session, table, load.load, frames)
    dialect.upsert(session, table, load)


def rehearse(plan: WritePlan, session: Session) -> None:
    """Do what a commit does, with no rows, and undo it.

    Raises:
        SqlFailure: a right, a type or a trigger stands in the way.
    """
    encoder = plan.dialect.encoder(plan.loaded_columns, None, dict(plan.load_facts))
    load = load_of(plan, encoder)
    try:
        plan.dialect.lock_definition(session, load)
        bring(plan.dialect, session, load, iter(()))
        if plan.is_judged and plan.mode is Mode.APPEND:
            plan.dialect.create_temporary_table(session, plan.loaded_columns)
        plan.dialect.check_constraints(session)
    finally:
        session.rollback()


def _target_of(epoch: StagedEpoch) -> TableName:
    """Where its rows go, and its ledger row beside them: the table that the sink had when they were
    staged, whichever it has by now.

    Raises:
        InvariantBroken: it had none.
    """
    part = epoch.parts[0]
    if "table" not in part.facts:
        raise of_another_sink(part.prepared, "is staged for no table")
    return TableName(*part.facts["table"])


class SqlTarget(StagedTarget):
    """See the base class. Two sessions: one may hold an epoch's transaction open.
    ``marks``: epochs go into the ledger, as ``hold`` has it and ``deliver`` has not. ``run``: its
    number.
    """

    def __init__(self, plan: WritePlan, *, marks: bool = True, run: int = 0) -> None:
        super().__init__(plan.staging, plan.address.place)
        self.shown = f"{plan.shown}, table {plan.target}"
        self.judges = plan.is_judged
        self._plan = plan
        self._marks = marks
        self._dialect = plan.dialect
        self._session = RetryingSession(plan.dialect, plan.address, "exactum driver")
        self._sink = f"exactum commit {plan.staging.scope.digest[:32]} "
        self._label = f"{self._sink}{run:0{RUN_DIGITS}x}"
        self._loading = RetryingSession(plan.dialect, plan.address, self._label)
        self._held: tuple[str, Session] | None = None

    def close(self) -> None:
        self._loading.close()
        self._session.close()

    # ---- the marker --------------------------------------------------------------------------

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        return self._asked(lambda session: self._ledger().highest(session))

    def forget_batches(self, first: int = 0) -> None:
        def step(session: Session) -> None:
            self._ledger().forget_batches(session, first)
            session.commit()

        self._asked(step)

    def published(self, epoch: StagedEpoch) -> Published:
        def step(session: Session) -> Published:
            ledger = self._ledger(_target_of(epoch))
            try:
                digest = ledger.digest(session, epoch.batch_id)
                highest = ledger.highest(session)
            except SqlFailure as failure:
                if failure.failure is not ServerFailure.MISSING:
                    raise
                return Published.MISSING  # no query has ever written here
            if digest is not None:
                return Published.BEFORE if digest == epoch.digest else Published.OTHER
            later = highest is not None and highest > epoch.batch_id
            return Published.OVERTAKEN if later else Published.MISSING

        return self._asked(step)

    # ---- an epoch ----------------------------------------------------------------------------

    def judge(self, epoch: StagedEpoch) -> tuple[StagedEpoch, Rejection | None]:
        self.let_go()

        def step(session: Session) -> tuple[StagedEpoch, list[RefusedRow]]:
            if self._marks and self._state_before(session, epoch) is not None:
                session.rollback()
                return epoch, []
            try:
                kept, refused = self._load_accepted(session, epoch)
            except FileNotFoundError:
                session.rollback()
                return epoch, []
            if self._marks:
                # Within the savepoint of the rows, so that both have one xmin: 'exactum verify'
                # counts rows by it.
                self._ledger(_target_of(epoch)).enter_again(session, kept)
            self._held = (kept.digest, session)
            return kept, refused

        kept, refused = self._before_decision(epoch, step)
        return kept, rejection_of(self._plan, refused) if refused else None

    def hold(self, epoch: StagedEpoch) -> Published:
        self._hold_no_other(epoch)

        def step(session: Session) -> Published:
            if self._takes_held(session, epoch):
                state = Published.DONE
            else:
                state = self._all_but_commit(session, epoch, is_decided=False)
            if state is Published.DONE:
                self._held = (epoch.digest, session)
            else:
                session.rollback()
            return state

        return self._before_decision(epoch, step)

    def publish(self, epoch: StagedEpoch) -> Published:
        """The ledger is the marker. The note in the staging only keeps an emptied table from
        getting the last batches again, and may be lost in a power cut.
        """
        state = self._published(epoch)
        if state in (Published.DONE, Published.BEFORE):
            self.staging.note_published(epoch.batch_id, durable=False)
        return state

    def _published(self, epoch: StagedEpoch) -> Published:
        """
        Raises:
            PublishFailed: as ``publish``.
        """
        try:
            try:
                return Published.DONE if self._finish(epoch) else self._redo(epoch)
            except SqlFailure as failure:
                self._loading.reset()
                if failure.failure not in TRANSIENT:
                    raise
            return self._redo(epoch)
        except SqlFailure as failure:
            is_transient = failure.failure in TRANSIENT
            raise PublishFailed(str(failure), is_transient=is_transient) from failure

    def deliver(self, epoch: StagedEpoch) -> None:
        self._hold_no_other(epoch)

        def step(session: Session) -> None:
            is_there = self._takes_held(session, epoch)
            if not is_there and self._load(session, epoch, is_decided=False) is Published.MISSING:
                raise FileNotFoundError(self.staging.where)
            try:
                session.commit()
            except SqlFailure as failure:  # not again: it may have taken effect
                raise OutcomeUnknown(
                    f"{self.shown}: batch {epoch.batch_id} may have been committed, or not: "
                    f"{failure}"
                ) from failure

        self._before_decision(epoch, step)

    def _before_decision(self, epoch: StagedEpoch, step: Callable[[Session], T]) -> T:
        try:
            return self._loaded(step)
        except SqlFailure as failure:
            raise rows_refused(self._plan, epoch.batch_id, failure) from failure

    def _loaded(self, step: Callable[[Session], T]) -> T:
        """The step, in the session that loads. What keeps it waiting may be an older run's load,
        whose driver stands still.
        """

        def trying(session: Session) -> T:
            try:
                return step(session)
            except SqlFailure as failure:
                if failure.failure is ServerFailure.BUSY:
                    with suppress(SqlFailure):
                        session.rollback()
                        self._dialect.end_older(session, self._sink, self._label)
                raise

        return self._loading.run(trying)

    def let_go(self) -> None:
        if self._held is not None:
            self._held = None
            self._loading.reset()

    def _hold_no_other(self, epoch: StagedEpoch) -> None:
        if self._held is not None and self._held[0] != epoch.digest:
            self.let_go()

    def _takes_held(self, session: Session, epoch: StagedEpoch) -> bool:
        """Whether this session holds exactly these rows, and still answers; nothing counts as held
        from here on.
        """
        held, self._held = self._held, None
        if held != (epoch.digest, session):
            return False
        session.query("SELECT 1")
        return True

    def _finish(self, epoch: StagedEpoch) -> bool:
        """COMMIT what is held of exactly these files; False when nothing is.

        Raises:
            SqlFailure: it may or may not be committed: ``_redo`` finds out.
        """
        held, self._held = self._held, None
        if held is None:
            return False
        digest, session = held
        if digest != epoch.digest or not session.usable:
            self._loading.reset()
            return False
        self._commit(session, epoch)
        return True

    def _redo(self, epoch: StagedEpoch) -> Published:
        self.let_go()

        def step(session: Session) -> Published:
            state = self._all_but_commit(session, epoch, is_decided=True)
            if state is Published.DONE:
                self._commit(session, epoch)
            else:
                session.rollback()
            return state

        return self._loaded(step)

    # ---- in the session's transaction --------------------------------------------------------

    def _all_but_commit(
        self, session: Session, epoch: StagedEpoch, *, is_decided: bool
    ) -> Published:
        state = self._state_before(session, epoch)
        return state or self._load(session, epoch, is_decided=is_decided)

    def _state_before(self, session: Session, epoch: StagedEpoch) -> Published | None:
        """None: its row is in the ledger, and it is to be loaded."""
        ledger = self._ledger(_target_of(epoch))
        if not ledger.enter(session, epoch):
            same = ledger.digest(session, epoch.batch_id) == epoch.digest
            return Published.BEFORE if same else Published.OTHER
        highest = ledger.highest(session)
        if highest is not None and highest > epoch.batch_id:
            # The row of a later batch speaks for a row that was pruned. Files go when their epoch
            # is committed, so what is still there was not.
            left = self._load(session, epoch, is_decided=True) is not Published.MISSING
            return Published.OVERTAKEN if left else Published.BEFORE
        return None

    def _load(self, session: Session, epoch: StagedEpoch, *, is_decided: bool) -> Published:
        """DONE or MISSING."""
        try:
            for load, parts in self._loads(epoch):
                check_table(self._dialect, session, load, is_decided=is_decided)
                bring(self._dialect, session, load, self._frames(parts))
        except FileNotFoundError:
            return Published.MISSING
        self._dialect.check_constraints(session)
        return Published.DONE

    def _load_accepted(
        self, session: Session, epoch: StagedEpoch
    ) -> tuple[StagedEpoch, list[RefusedRow]]:
        """All rows but those that the server can never take.

        Raises:
            FileNotFoundError: as ``_frames``.
            RowsRefused: they are too many.
        """
        kept: list[StagedPart] = []
        refused: list[RefusedRow] = []
        for load, parts in self._loads(epoch):
            check_table(self._dialect, session, load, is_decided=False)
            rows = self._bring_accepted(session, load, parts)
            refused.extend(rows)
            kept.extend(_without(parts, rows))
        self._dialect.check_constraints(session)
        return StagedEpoch(tuple(kept)), refused

    def _bring_accepted(
        self, session: Session, load: Load, parts: Sequence[StagedPart]
    ) -> Sequence[RefusedRow]:
        """Most often the server takes all, and then that costs no more than ``bring``."""
        dialect = self._dialect
        session.execute(dialect.sql("save"))
        try:
            bring(dialect, session, load, self._frames(parts))
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.ROWS:
                raise
            session.execute(dialect.sql("undo"))
            table = dialect.create_temporary_table(session, load.staged_columns)
            frames = self._frames(parts)
            refused = dialect.load_accepted(session, table, load.load, frames, REFUSED_MAX)
            if not refused:  # a rule of the table, and not of one of its types
                raise
            if len(refused) > REFUSED_MAX:
                raise too_many_refused(self._plan, parts[0].name.batch_id, refused) from failure
        else:
            return ()
        session.execute(dialect.sql("undo"))
        bring(dialect, session, load, self._frames(_without(parts, refused)))
        return refused

    def _loads(self, epoch: StagedEpoch) -> list[tuple[Load, list[StagedPart]]]:
        """The files by how they are loaded, in order: one group, unless tasks differed.

        Raises:
            FileNotFoundError: as ``_frames``.
        """
        groups = [list(each) for _, each in groupby(epoch.parts, key=_header_digest)]
        return [(self._load_of(group[0]), group) for group in groups]

    def _load_of(self, part: StagedPart) -> Load:
        with self._opened(part) as file:
            return Load.of(file.header)

    def _frames(self, parts: Sequence[StagedPart]) -> Iterator[Frame]:
        """What is not put aside.

        Raises:
            FileNotFoundError: a file is gone, or is not what its task has written.
        """
        for part in parts:
            rows = 0
            with self._opened(part) as file:
                for frame, count in file:
                    aside = [n - rows for n in part.aside if rows <= n < rows + count]
                    rows += count
                    yield without(frame, aside) if aside else frame, count - len(aside)
            if rows != part.file_rows:
                raise FileNotFoundError(f"{part.name.identity} has {rows} rows")

    @contextmanager
    def _opened(self, part: StagedPart) -> Iterator[FrameReader]:
        with closing(self.staging.open_file(part.name.file(0))) as file:
            try:
                yield FrameReader(file)
            except ValueError as error:  # it is damaged, which is no better than gone
                raise FileNotFoundError(f"{part.name.identity}: {error}") from error

    def _commit(self, session: Session, epoch: StagedEpoch) -> None:
        self._ledger(_target_of(epoch)).prune(session, epoch.batch_id)
        session.commit()

    # ---- small steps -------------------------------------------------------------------------

    def _ledger(self, sibling: TableName | None = None) -> Ledger:
        return Ledger(self._dialect, self.staging.scope, sibling or self._plan.target)

    def _asked(self, step: Callable[[Session], T]) -> T:
        def asking(session: Session) -> T:
            try:
                return step(session)
            finally:
                session.rollback()

        try:
            return self._session.run(asking)
        except SqlFailure as failure:
            raise port_error(failure, self._plan.shown) from failure


def _header_digest(part: StagedPart) -> str:
    """Equal where the files have the same header, as their tasks have put on record."""
    (file,) = part.files
    return str(file.facts["header"])


def _without(parts: Sequence[StagedPart], refused: Sequence[RefusedRow]) -> list[StagedPart]:
    """The parts, of which nothing was put aside before, without what was refused of them all."""
    kept = []
    first = 0
    for part in parts:
        own = range(first, first + part.file_rows)
        kept.append(part.without([row.number - first for row in refused if row.number in own]))
        first = own.stop
    return kept
