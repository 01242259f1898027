"""What a PostgreSQL server tells of itself and of a user's rights, for ``exactum doctor``. Nothing
here changes anything.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from exactum.sql.postgres.session import PostgresSession, opened
from exactum.sql.postgres.statements import regclass, sql
from exactum.sql.table import TableName
from exactum.sql.url import Address

STATEMENT_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class PostgresExamined:
    """``skew_s``: how far its clock is ahead of ours, give or take ``uncertain_s``.

    ``pooled``: the process that answers is not the one that libpq was told of at the connection.
    """

    version: str
    version_number: int
    is_standby: bool
    fsyncs: bool
    full_page_writes: bool
    synchronous_standby_names: str
    senders: int
    user: str
    database: str
    makes_temporary_tables: bool
    pooled: bool
    skew_s: float
    uncertain_s: float


@dataclass(frozen=True)
class TableRights:
    """``denied``: those of SELECT, INSERT, UPDATE and DELETE that the user may not do with a table;
    ``create``: whether he may make others beside it.
    """

    denied: tuple[str, ...]
    create: bool


def look(address: Address) -> PostgresSession:
    """A session in which nothing is set for longer than a transaction: behind a pooler it would
    be set for whoever is served next.

    Raises:
        SettingRefused, SqlFailure: as ``Dialect.connect``.
    """
    return opened(address, "exactum doctor")


def bound(session: PostgresSession) -> None:
    """No statement of the transaction that this begins takes longer than
    ``STATEMENT_TIMEOUT_MS``.
    """
    session.query(sql("bound_look"), (f"{STATEMENT_TIMEOUT_MS}ms",))


def examine(session: PostgresSession) -> PostgresExamined:
    bound(session)
    before_s = time.time()
    ((*facts, pid, clock_s),) = session.query(sql("examine_server"))
    after_s = time.time()
    session.rollback()
    skew_s, uncertain_s = float(clock_s) - (before_s + after_s) / 2, (after_s - before_s) / 2
    is_pooled = int(pid) != session.connection.info.backend_pid
    return PostgresExamined(*[*facts, is_pooled, skew_s, uncertain_s])


def table_rights(session: PostgresSession, table: TableName) -> TableRights | None:
    """None where there is no such table."""
    rows = _asked(session, "examine_table", regclass(table))
    if not rows:
        return None
    *granted, create = rows[0]
    each = zip(("SELECT", "INSERT", "UPDATE", "DELETE"), granted, strict=True)
    return TableRights(tuple(right for right, is_granted in each if not is_granted), create)


def may_create(session: PostgresSession, schema: str | None) -> bool:
    """Whether tables can be created in the schema; None: the first of the search_path."""
    rows = _asked(session, "examine_schema", schema)
    return bool(rows and rows[0][0])


def _asked(session: PostgresSession, statement: str, argument: str | None) -> list[tuple[Any, ...]]:
    bound(session)
    rows = session.query(sql(statement), (argument,))
    session.rollback()
    return rows


def commit_s(session: PostgresSession) -> float:
    """How long a COMMIT takes that has something to keep.

    Raises:
        SqlFailure: LOST, among others where it waits for a synchronous standby that is not there.
    """
    bound(session)
    session.query(sql("note"))
    began_s = time.monotonic()
    session.commit()
    return time.monotonic() - began_s


def keeps_sessions(address: Address) -> bool:
    """Whether what a session sets is still there in its next transaction, also when another client
    was served between the two. Not so behind a pooler that lends a connection for each
    transaction.
    """
    first = look(address)
    try:
        second = look(address)
        try:
            first.query(sql("mark_session"), ("first",))
            before = _mark(first)
            first.commit()
            second.query(sql("mark_session"), ("second",))  # holds a connection of the pool
            after = _mark(first)
            for session in (first, second):  # what was set goes with it
                session.rollback()
                session.query(sql("mark_session"), ("",))
                session.commit()
            return before == after
        finally:
            second.close()
    finally:
        first.close()


def _mark(session: PostgresSession) -> tuple[str, int]:
    ((mark, pid),) = session.query(sql("read_mark"))
    return str(mark), int(pid)
