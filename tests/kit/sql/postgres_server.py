"""A real PostgreSQL server for the run, and a plain client that looks at it. Nothing here is
code under test.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from exactum.sql.postgres import session as postgres_session
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.sink import PostgresSink
from exactum.sql.url import Address
from tests.kit.servers.postgres import USER, LocalPostgres
from tests.kit.sql.sql_database import SqlDatabase


def hash_quickly(server: LocalPostgres) -> None:
    """Keep the superuser's password as a verifier of one round instead of 4,096: a client computes
    them at each login, 2 ms of CPU, and the tests log in thousands of times.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", server.password.encode(), salt, 1)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    verifying = hmac.digest(salted, b"Server Key", "sha256")
    salt_text, stored_text, verifying_text = (
        base64.b64encode(part).decode() for part in (salt, stored, verifying)
    )
    verifier = f"SCRAM-SHA-256$1:{salt_text}${stored_text}:{verifying_text}"
    with psycopg.connect(server.url) as connection:
        connection.execute(f"ALTER ROLE {USER} PASSWORD '{verifier}'".encode())


class Database(SqlDatabase):
    dialect = PostgresDialect()
    kind = PostgresSink

    def __init__(self, server: LocalPostgres) -> None:
        self.server = server
        self._connection: psycopg.Connection[Any] | None = None

    @staticmethod
    @contextmanager
    def cleaned(server: LocalPostgres) -> Iterator[Database]:
        """The server, running, with no table in it."""
        server.start()
        found = Database(server)
        found.clean()
        yield found
        server.start()
        found.clean()
        found.close()

    @property
    def url(self) -> str:
        return self.server.url

    def run(self, sql: str, arguments: Sequence[object] | None = None) -> list[Any]:
        done = self._execute(sql, arguments)
        return done.fetchall() if done.description else []

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _execute(self, sql: str, arguments: Sequence[object] | None) -> psycopg.Cursor[Any]:
        if self._connection is not None:
            try:
                return self._connection.execute(sql.encode(), arguments)
            except psycopg.OperationalError:
                if not self._connection.broken:
                    raise
                self.close()
        self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection.execute(sql.encode(), arguments)

    @property
    def address(self) -> Address:
        return postgres_session.address_of(self.url, None, "decision_log")

    def end_sessions(self) -> None:
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name LIKE 'exactum %' AND pid <> pg_backend_pid() "
            "AND datname = current_database()"
        )

    def end_idle_soon(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(postgres_session, "DRIVER_IDLE_MAX_S", 2)

    def clean(self) -> None:
        """Settle what a test has left, so that the next one starts from nothing."""
        self.end_sessions()
        self.drop_all()

    def drop_all(self) -> None:
        names = self.rows(
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(relname) FROM pg_class c JOIN "
            "pg_namespace n ON n.oid = relnamespace WHERE nspname NOT IN ('pg_catalog', "
            "'information_schema', 'pg_toast') AND relkind IN ('r', 'p') AND NOT relispartition"
        )
        if names:
            self.run(f"DROP TABLE {', '.join(name for (name,) in names)} CASCADE")


def server_for(request: pytest.FixtureRequest) -> LocalPostgres:
    """The run's server, unless the test kills it."""
    kills = request.node.get_closest_marker("kills_server")
    server: LocalPostgres = request.getfixturevalue("mortal_postgres" if kills else "postgres")
    return server


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """The server, running, with no table in it."""
    with Database.cleaned(server_for(request)) as found:
        yield found
