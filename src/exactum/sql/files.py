"""Small files in a SQL database: the storage of a decision log for clusters without a shared file
system. See ``storage.SmallFiles`` for the promises.

    exactum_decisions(query_id, name, content)     a file of the query's log
    exactum_decision_logs(query_id, changes)       how often they were changed

Who changes a file locks the query's row in the second table first, and counts the change there, so
that changes follow one another. The lock also settles a lost reply: who asks again waits until the
server has done with the first try.

``sync`` locks the row as well, and commits: the maker of a record may have died while it waited for
a synchronous standby, and PostgreSQL's commit waits until the standby has all that was written
before.

A server that has acknowledged a change may be replaced by one that never got it: by a failover to
an asynchronous standby, or from a backup. So each new connection is first asked for the number of
changes, which never falls.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from exactum.errors import InvariantBroken, OutcomeUnknown, SettingRefused
from exactum.sql.dialect import DECISION_LOGS, DECISIONS, Dialect
from exactum.sql.session import (
    TIMEOUT_S,
    RetryingSession,
    ServerFailure,
    Session,
    SqlFailure,
    port_error,
)
from exactum.sql.table import TableName
from exactum.sql.url import Address

T = TypeVar("T")

log = logging.getLogger("exactum.sql")

SLOW_AFTER_S = 10.0
"""After how long a warning says that the server keeps a step waiting."""


class SqlFiles:
    """The files of one query's decision log.

    Args:
        schema: where the two tables are (in MySQL: the database); default: the connection's own.
            They are created when they are first needed.
        timeout_s: how long a step is tried again while the server is away.
    """

    def __init__(
        self,
        dialect: Dialect,
        address: Address,
        query_id: str,
        *,
        schema: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._dialect = dialect
        self._query_id = query_id
        self._schema = schema
        self._timeout_s = timeout_s
        self.where = f"{address.where}, {DECISIONS} of query {query_id}"
        self._shown = f"The decision log of query {query_id} at {address.where}"
        self._session = RetryingSession(dialect, address, "exactum decisions")
        self._is_open = False
        self._changes = 0  # those that the server has acknowledged
        self._compared: Session | None = None

    def open(self, *folders: str) -> None:
        """See the port."""
        if not self._is_open:
            self._asked(self._create)
            self._is_open = True

    def names(self, prefix: str = "") -> list[str]:
        """See the port. There are no folders."""
        rows = self._query("list_files", self._query_id)
        return [] if prefix else [str(name) for (name,) in rows]

    def read(self, name: str) -> bytes | None:
        """See the port."""
        rows = self._query("read_file", self._query_id, name)
        return str(rows[0][0]).encode() if rows else None

    def create_if_absent(self, name: str, content: bytes) -> bool:
        """See the port.

        Raises:
            OutcomeUnknown: a COMMIT was sent and no answer came.
        """
        key, text, is_sent = (self._query_id, name), content.decode(), False

        def create(session: Session) -> str:
            nonlocal is_sent
            changes = self._locked(session)
            session.execute(self._sql("enter_file"), (*key, text))
            stored = session.query(self._sql("read_file"), key)
            is_sent = True
            self._commit(session, changes)
            return str(stored[0][0])

        self.open()
        try:
            with self._waiting(name):
                return self._session.run(create, self._timeout_s) == text
        except SqlFailure as failure:
            if not is_sent:
                raise port_error(failure, self._shown) from failure
            raise OutcomeUnknown(
                f"{self._shown}: {name} may or may not stand: {failure}. Start the "
                "query again: it finds out."
            ) from failure

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """See the port."""
        key, text = (self._query_id, name), content.decode()

        def replace(session: Session) -> None:
            changes = self._locked(session)
            session.execute(self._sql("forget_file"), key)
            session.execute(self._sql("enter_file"), (*key, text))
            self._commit(session, changes)

        self._asked(replace)

    def delete(self, names: Sequence[str]) -> None:
        """See the port."""

        def forget(session: Session) -> None:
            changes = self._locked(session)
            for name in names:
                session.execute(self._sql("forget_file"), (self._query_id, name))
            self._commit(session, changes)

        if names:
            self._asked(forget)

    def sync(self, prefix: str = "") -> None:
        """See the port."""

        def wait(session: Session) -> None:
            self._locked(session)
            session.commit()

        self._asked(wait)

    def close(self) -> None:
        """See the port."""
        self._session.close()

    # ---- small steps -------------------------------------------------------------------------

    def _sql(self, name: str) -> str:
        files, logs = TableName(self._schema, DECISIONS), TableName(self._schema, DECISION_LOGS)
        return self._dialect.sql(name, files=files, logs=logs)

    def _query(self, name: str, *arguments: object) -> list[tuple[object, ...]]:
        def ask(session: Session) -> list[tuple[object, ...]]:
            if session is not self._compared:
                self._compare(session, "count_changes")
            rows = session.query(self._sql(name), arguments)
            session.commit()
            return rows

        self.open()
        return self._asked(ask)

    def _locked(self, session: Session) -> int:
        """How often the files were changed; everybody else who changes one waits for us."""
        return self._compare(session, "lock_changes")

    def _compare(self, session: Session, name: str) -> int:
        """How often the files were changed.

        Raises:
            InvariantBroken: more seldom than the server has acknowledged.
        """
        rows = session.query(self._sql(name), (self._query_id,))
        if not rows:
            why = f"the row of query {self._query_id} in {DECISION_LOGS} was removed"
            raise SqlFailure(ServerFailure.MISSING, "", why)
        changes = int(rows[0][0])
        if changes < self._changes:
            raise InvariantBroken(
                f"{self._shown} has lost {self._changes - changes} of "
                f"{self._changes} changes that it had acknowledged. The server was replaced by one "
                "that did not have them: by a failover to an asynchronous standby, or from a "
                "backup. Rows of sinks may be gone as well; in other targets their batch stands.\n"
                "Compare the targets in this database with the others, then start the query again: "
                "it goes on, or says what it misses. A synchronous standby prevents this "
                "(docs/guarantees.md).\nThis run has stopped; nothing that it had not decided "
                "becomes visible."
            )
        self._compared = session
        return changes

    def _commit(self, session: Session, changes: int) -> None:
        session.execute(self._sql("count_change"), (self._query_id,))
        session.commit()
        self._changes = max(self._changes, changes + 1)

    def _asked(self, step: Callable[[Session], T]) -> T:
        try:
            with self._waiting("the next step"):
                return self._session.run(step, self._timeout_s)
        except SqlFailure as failure:
            raise port_error(failure, self._shown) from failure

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        """Log when the server takes its time, as where no synchronous standby answers: nothing goes
        on.
        """
        warning = (
            "%s: %s has been waiting for %d s. The server is away, holds a lock, "
            "or waits for a synchronous standby that does not answer"
        )
        timer = threading.Timer(
            SLOW_AFTER_S, log.warning, (warning, self._shown, what, SLOW_AFTER_S)
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _create(self, session: Session) -> None:
        """The tables, and the query's row of changes, which is there from then on."""
        self._dialect.create_decision_tables(session, self._schema)
        session.execute(self._sql("enter_log"), (self._query_id,))
        session.commit()
        behind = self._dialect.lagging_standbys(session)
        if behind:
            log.warning(
                "%s: %d of the server's standbys get their data asynchronously, "
                "and none synchronously. A failover to one of them loses the newest decisions, so "
                "that rows may be lost or doubled. %s, or never fail over to them "
                "(docs/guarantees.md)",
                self._shown,
                behind,
                self._dialect.way_to_wait_for_standbys,
            )


def open_files(url: str, query_id: str) -> SqlFiles:
    """The files of a query's decision log at ``postgresql://...`` or ``mysql://...``.

    Raises:
        SettingRefused: as ``server_of``.
    """
    return SqlFiles(*server_of(url), query_id)


def server_of(url: str) -> tuple[Dialect, Address]:
    """
    Raises:
        SettingRefused: the URL is of neither kind or cannot be read; or the client library is
            missing.
    """
    where = "decision_log"
    scheme = url.split(":", 1)[0]
    if scheme in ("postgresql", "postgres"):
        from exactum.sql.postgres import session as postgres
        from exactum.sql.postgres.dialect import PostgresDialect

        return PostgresDialect(), postgres.address_of(url, None, where)
    if scheme in ("mysql", "mariadb"):
        from exactum.sql.mysql import session as mysql
        from exactum.sql.mysql.dialect import MySQLDialect

        return MySQLDialect(), mysql.address_of(url, None, where)
    raise SettingRefused(
        "DECISION_LOG_ARGUMENT", f"{where}: the URL must begin with postgresql:// or mysql://."
    )
