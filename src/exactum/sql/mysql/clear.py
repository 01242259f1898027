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

from exactum.sql.dialect import DIRECTORY, Role, SqlFailure
from exactum.sql.mysql.session import MySQLSession, connect
from exactum.sql.mysql.statements import sql
from exactum.sql.table import TableName

FEW_ROWS = 20_000
"""Up to this many rows are deleted one by one, in the transaction."""
LOCKED_IDLE_S = 5


def clear(session: MySQLSession, staging: TableName, parts: Sequence[int]) -> None:
    """See ``dialect``."""
    if not parts:
        return
    delete = sql("delete_parts", staging=staging)
    few = session.query(sql("count_some", staging=staging), (parts, FEW_ROWS + 1))
    if int(few[0][0]) <= FEW_ROWS or not session.locks_hold:
        session.execute(delete, (parts,))
        return

    def empty() -> None:
        if not _truncated(session, staging):
            session.execute(delete, (parts,))
            session.commit()

    session.after_commit(empty)


def tidy(session: MySQLSession, staging: TableName) -> None:
    """At start: remove what a crash between COMMIT and TRUNCATE has left, if nobody uses the table.
    Commits.
    """
    left = session.query(sql("find_staged_row", staging=staging))
    session.rollback()
    if left:
        _truncated(session, staging)


def drop(session: MySQLSession, staging: TableName) -> None:
    """Drop a staging table in which no part is anybody's, unless somebody uses it. Commits."""
    _alone(session, staging, sql("drop_staging", staging=staging))


def _truncated(session: MySQLSession, staging: TableName) -> bool:
    """False when somebody uses the table, when it holds parts of others, or when the user may not
    lock it.
    """
    return _alone(session, staging, sql("truncate_staging", staging=staging))


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
    read_idle, set_idle = sql("read_idle_timeout"), sql("set_idle_timeout")
    if session.is_mariadb:
        read_idle, set_idle = sql("read_idle_timeouts"), sql("set_idle_timeouts")
    before = session.query(read_idle)[0]
    try:
        session.execute(set_idle, [LOCKED_IDLE_S] * len(before))
        with _Waiting(session, 0 if session.is_mariadb else 1):  # MySQL's least
            session.execute(sql("lock_staging", staging=staging))
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
                session.execute(sql("unlock_staging"))
                session.execute(set_idle, before)
            session.rollback()


class _Waiting:
    """Within the block, wait at most ``seconds`` for the locks of tables and rows."""

    def __init__(self, session: MySQLSession, seconds: int) -> None:
        self._session = session
        self._seconds = seconds

    def __enter__(self) -> None:
        rows = self._session.query(sql("read_lock_timeouts"))
        self._before = (int(rows[0][0]), int(rows[0][1]))
        self._set((self._seconds, self._seconds))

    def __exit__(self, *_: object) -> None:
        with suppress(SqlFailure):
            self._set(self._before)

    def _set(self, seconds: tuple[int, int]) -> None:
        self._session.execute(sql("set_lock_timeouts"), seconds)


def _is_named(session: MySQLSession, staging: TableName) -> bool:
    """Whether the directory names a part in the table. Another session asks: this one sees only
    what it has locked.
    """
    other = connect(session.address, Role.DRIVER, "exactum clear", LOCKED_IDLE_S)
    try:
        find = sql("find_part", directory=staging.sibling(DIRECTORY))
        return bool(other.query(find, (staging.table,)))
    finally:
        other.close()
