"""The executor half of a SQL sink: one task brings its rows to the server in one transaction.

| way | rows go to | ``prepare`` |
|---|---|---|
| staged | the staging table | COMMIT of a local transaction, with the directory's row in it |
| prepared | the target | PREPARE TRANSACTION / XA PREPARE, with the ledger's row in it |
| direct (at least once, at most once) | the target; an upsert: by the staging table | COMMIT |

A partition without rows opens nothing. A task that dies before the end of ``prepare`` leaves
nothing: the server rolls back when its connection goes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Protocol

from exactum.errors import FrameRefused
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder, Writer
from exactum.sql.dialect import Loader, Mode, Session, SqlFailure
from exactum.sql.failure import task_error
from exactum.sql.ledger import Ledger, LedgerRow, StagedPart
from exactum.sql.plan import Mechanism, WritePlan
from exactum.sql.rules import TableRules, together
from exactum.sql.sessions import SessionPool, pools
from exactum.sql.target_change import check_target
from exactum.sql.transaction import prepared_transaction, staged_transaction

log = logging.getLogger("exactum.sql")

ROWS_BITS = 40
"""How many bits of ``exactum_row`` count the rows of one task; the partition's number is above
them.
"""


@dataclass(frozen=True)
class SqlWriterFactory:
    """Goes to the executors; opens a writer there."""

    plan: WritePlan

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        return SqlWriter(self.plan, order, task)


class Way(Protocol):
    """Where one task's rows go, and what makes them durable."""

    def begin(self, session: Session) -> Loader: ...

    def end(self, session: Session, rows: int) -> PreparedTransaction | None:
        """All rows are loaded: end the session's transaction."""


class SqlWriter:
    """One task's writer. Connects with its first row."""

    def __init__(self, plan: WritePlan, order: WriteOrder, task: TaskName) -> None:
        self._plan = plan
        self._task = task
        self._way = way_of(plan, order, task)
        self._pool: SessionPool = pools.pool_of(plan.dialect, plan.address, plan.lock_timeout_s)
        self._session: Session | None = None
        self._loader: Loader | None = None
        self._rows = 0
        self._prepared: PreparedTransaction | None = None
        upsert = plan.mode is Mode.UPSERT
        key = plan.key if upsert else ()
        self._rules = TableRules(
            plan.columns, plan.frame_columns, key, plan.named_by, plan.dialect.broken
        )
        flag = () if plan.flag_column is None else (plan.flag_column,)
        self._sent = [*plan.frame_columns, *flag]
        self._expected = sorted(self._sent)

    def write(self, batch: Any) -> Rejection | None:
        """See the port.

        Raises:
            FrameRefused: the batch does not have exactly the columns that the frame had at start.
        """
        if sorted(batch.schema.names) != self._expected:
            raise FrameRefused(
                "SQL_COLUMNS",
                f"{self._where()}: the batch has the columns {', '.join(batch.schema.names)}, and "
                f"the frame had {', '.join(self._sent)} at start. Nothing of the epoch is visible. "
                "Give each use in a query (another frame, rows=, dead_letters=) a sink object of "
                "its own, and rows= the same columns for each batch.",
            )
        accepted, rejection = self._rules.split(batch)
        if accepted.num_rows:
            try:
                too_large = self._begun().write(accepted.select(self._sent))
            except SqlFailure as failure:
                raise task_error(failure, self._where()) from failure
            self._rows += accepted.num_rows
            if too_large is not None:
                unsent = self._rules.apart(accepted, too_large)
                self._rows -= unsent.rows.num_rows
                rejection = together(rejection, unsent)
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        """See the port. Idempotent."""
        if self._session is None or self._loader is None:
            return self._prepared
        session = self._session
        try:
            self._loader.finish()
            self._loader = None
            self._prepared = self._way.end(session, self._rows)
        except SqlFailure as failure:
            raise task_error(failure, self._where()) from failure
        self._session = None
        self._pool.give_back(session)
        return self._prepared

    def abort(self) -> None:
        """The connection goes, and with it everything that is not prepared; the driver sweeps what
        is.
        """
        if self._loader is not None:
            self._loader.abandon()
        if self._session is not None:
            self._session.close()
        self._session = self._loader = None

    def _begun(self) -> Loader:
        if self._loader is None:
            self._session = self._pool.take()
            self._loader = self._way.begin(self._session)
        return self._loader

    def _where(self) -> str:
        task = self._task
        return (
            f"task {task.partition_id} (attempt {task.attempt_number}) of sink "
            f"{self._plan.scope.participant!r} at {self._plan.address.where}"
        )


def way_of(plan: WritePlan, order: WriteOrder, task: TaskName) -> Way:
    if order.run.guarantee is not Guarantee.EXACTLY_ONCE:
        return Direct(plan, order, task)
    if plan.mechanism is Mechanism.PREPARED:
        return Prepared(plan, order)
    return Staged(plan, order, task)


class Staged:
    """Exactly once: rows wait in the staging table, durably, for the driver to move them."""

    def __init__(self, plan: WritePlan, order: WriteOrder, task: TaskName) -> None:
        self._plan = plan
        self._order = order
        self._first_row = first_row(plan, task)
        self._transaction = staged_transaction(
            plan, order.run.incarnation, order.batch_id, order.attempt
        )

    def begin(self, session: Session) -> Loader:
        plan = self._plan
        part = self._transaction.part
        return plan.dialect.loader(
            session, plan.staging, plan.staged_columns, part, self._first_row
        )

    def end(self, session: Session, rows: int) -> PreparedTransaction:
        t, plan = self._transaction, self._plan
        part = StagedPart(
            t.identity, self._order.run.incarnation, t.batch_id, plan.staging, t.part, rows
        )
        Ledger(plan.dialect, plan.scope, plan.target).stage(session, part, t.attempt)
        session.commit()
        return t.prepared(plan.scope.participant, rows)


class Prepared:
    """Exactly once: rows are in the target, in a transaction that the server keeps prepared."""

    def __init__(self, plan: WritePlan, order: WriteOrder) -> None:
        self._plan = plan
        self._transaction = prepared_transaction(
            plan, order.run.incarnation, order.batch_id, order.attempt
        )

    def begin(self, session: Session) -> Loader:
        plan = self._plan
        plan.dialect.begin_prepared(session, self._transaction.identity)
        return plan.dialect.loader(session, plan.target, plan.columns, None, None)

    def end(self, session: Session, rows: int) -> PreparedTransaction:
        t, plan = self._transaction, self._plan
        check_target(plan, session)
        ledger = Ledger(plan.dialect, plan.scope, plan.target)
        ledger.enter(session, LedgerRow(t.batch_id, t.identity, "", t.attempt, rows))
        plan.dialect.prepare(session, t.identity)
        return t.prepared(plan.scope.participant, rows)


class Direct:
    """At least once and at most once: the task commits its rows itself."""

    def __init__(self, plan: WritePlan, order: WriteOrder, task: TaskName) -> None:
        self._plan = plan
        self._first_row = first_row(plan, task)
        self._part = staged_transaction(
            plan, order.run.incarnation, order.batch_id, order.attempt
        ).part

    def begin(self, session: Session) -> Loader:
        plan = self._plan
        if plan.mode is Mode.APPEND:
            return plan.dialect.loader(session, plan.target, plan.columns, None, None)
        return plan.dialect.loader(
            session, plan.staging, plan.staged_columns, self._part, self._first_row
        )

    def end(self, session: Session, rows: int) -> None:
        plan = self._plan
        if plan.mode is Mode.UPSERT:
            plan.dialect.move(session, plan.move((self._part,)))
            plan.dialect.clear(session, plan.staging, (self._part,), lambda: False)
        check_target(plan, session)
        session.commit()


def first_row(plan: WritePlan, task: TaskName) -> int | None:
    """Where this task's rows begin in the epoch's order, which only an upsert asks for."""
    return task.partition_id << ROWS_BITS if plan.mode is Mode.UPSERT else None
