"""Emptying the staging table: few rows by DELETE, many by TRUNCATE once the epoch is committed.

Deleting a million rows costs InnoDB as much as writing them. TRUNCATE costs a few milliseconds, but
it is no part of a transaction, and it takes everything. So it is done after the COMMIT, and only
under an exclusive lock of the table, by which no transaction that has written to it is unfinished,
and when the directory names no part in it, so that all that is there belongs to nobody. A crash
before it leaves such rows to the next time; a part is only ever moved if the directory or a
decision names it. A driver that is stopped under the lock loses its connection, and with it the
lock, after ``LOCKED_IDLE_S``; and its TRUNCATE fails when it wakes up. In a cluster where several
servers take writes a lock keeps nobody out: there it is always DELETE.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from exactum.sql.dialect import DIRECTORY, PART, Role, SqlFailure
from exactum.sql.mysql.quote import quote, quote_table
from exactum.sql.mysql.session import MySQLSession, connect
from exactum.sql.table import TableName

FEW_ROWS = 20_000
"""Up to this many rows are deleted one by one, in the transaction."""
LOCKED_IDLE_S = 5


def clear(session: MySQLSession, staging: TableName, parts: Sequence[int]) -> None:
    """See ``dialect``."""
    if not parts:
        return
    places = ", ".join(["%s"] * len(parts))
    # By the key: a scan of the table would wait for the rows of a task that is still writing, or
    # has stopped.
    here = (
        f"FROM {quote_table(staging)} AS staged FORCE INDEX (PRIMARY) WHERE {quote(PART)} IN "
        f"({places})"
    )
    few = session.query(
        f"SELECT COUNT(*) FROM (SELECT 1 {here} LIMIT {FEW_ROWS + 1}) AS some_rows", parts
    )
    if int(few[0][0]) <= FEW_ROWS or not session.locks_hold:
        session.execute(f"DELETE staged {here}", parts)
        return

    def empty() -> None:
        if not _truncated(session, staging):
            session.execute(f"DELETE staged {here}", parts)
            session.commit()

    session.after_commit(empty)


def tidy(session: MySQLSession, staging: TableName) -> None:
    """At start: remove what a crash between COMMIT and TRUNCATE has left, if nobody uses the table.
    Commits.
    """
    left = session.query(f"SELECT 1 FROM {quote_table(staging)} LIMIT 1")
    session.rollback()
    if left:
        _truncated(session, staging)


def drop(session: MySQLSession, staging: TableName) -> None:
    """Drop a staging table in which no part is anybody's, unless somebody uses it. Commits."""
    _alone(session, staging, f"DROP TABLE {quote_table(staging)}")


def _truncated(session: MySQLSession, staging: TableName) -> bool:
    """False when somebody uses the table, when it holds parts of others, or when the user may not
    lock it.
    """
    return _alone(session, staging, f"TRUNCATE TABLE {quote_table(staging)}")


def _alone(session: MySQLSession, staging: TableName, statement: str) -> bool:
    """Run ``statement`` under the table's exclusive lock, if it is to be had at once and nobody's
    part is in there.

    Returns whether it was run.

    Raises:
        SqlFailure: the connection was lost.
    """
    session.rollback()
    if not session.locks_hold:
        return False
    # With autocommit off a session that holds LOCK TABLES counts as one in a transaction, for
    # MariaDB.
    names = (
        ("wait_timeout", "idle_transaction_timeout") if session.is_mariadb else ("wait_timeout",)
    )
    before = session.query(f"SELECT {', '.join(f'@@SESSION.{name}' for name in names)}")[0]
    set_idle = f"SET SESSION {', '.join(f'{name} = %s' for name in names)}"
    try:
        session.execute(set_idle, [LOCKED_IDLE_S] * len(names))
        with _Waiting(session, 0 if session.is_mariadb else 1):  # MySQL's least
            session.execute(f"LOCK TABLES {quote_table(staging)} WRITE")
        if _is_named(session, staging):
            return False
        session.execute(statement)
        return True
    except SqlFailure:
        if not session.usable:
            raise
        return False
    finally:
        if session.usable:
            with suppress(SqlFailure):
                session.execute("UNLOCK TABLES")
                session.execute(set_idle, before)
            session.rollback()


class _Waiting:
    """Within the block, wait at most ``seconds`` for the locks of tables and rows."""

    def __init__(self, session: MySQLSession, seconds: int) -> None:
        self._session = session
        self._seconds = seconds

    def __enter__(self) -> None:
        rows = self._session.query(
            "SELECT @@SESSION.lock_wait_timeout, @@SESSION.innodb_lock_wait_timeout"
        )
        self._before = (int(rows[0][0]), int(rows[0][1]))
        self._set((self._seconds, self._seconds))

    def __exit__(self, *_: object) -> None:
        with suppress(SqlFailure):
            self._set(self._before)

    def _set(self, seconds: tuple[int, int]) -> None:
        self._session.execute(
            "SET SESSION lock_wait_timeout = %s, innodb_lock_wait_timeout = %s", seconds
        )


def _is_named(session: MySQLSession, staging: TableName) -> bool:
    """Whether the directory names a part in the table. Another session asks: this one sees only
    what it has locked.
    """
    other = connect(session.address, Role.DRIVER, "exactum clear", LOCKED_IDLE_S)
    try:
        directory = quote_table(staging.sibling(DIRECTORY))
        return bool(
            other.query(f"SELECT 1 FROM {directory} WHERE staging = %s LIMIT 1", (staging.table,))
        )
    finally:
        other.close()
