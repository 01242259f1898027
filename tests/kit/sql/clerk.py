"""A user of the test's own in a database, who may do what he is granted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kit.sql.sql_database import SqlDatabase

PASSWORD, IN_URL = "a secret&key", "a%20secret%26key"
LOGIN, RIGHTS = "in the URL", "exactum's tables"
"""What ``SQL_ACCESS`` says is to be corrected, or is needed: one or the other."""


class Clerk:
    """May connect, and is granted one right after the other."""

    def __init__(self, database: SqlDatabase) -> None:
        self._database = database
        self.is_postgres = database.dialect.scheme == "postgres"
        self.name = f"clerk_{os.getpid()}"  # the processes of a run share a server
        scheme, _, place = database.url.partition("://")
        self.url = f"{scheme}://{self.name}:{IN_URL}@{place.rpartition('@')[2]}"
        self._in = self.url.rpartition("/")[2]
        make = "ROLE {} LOGIN PASSWORD" if self.is_postgres else "USER {} IDENTIFIED BY"
        database.run(f"CREATE {make.format(self.name)} '{PASSWORD}'")
        if self.is_postgres:
            database.run(f"REVOKE TEMPORARY ON DATABASE {self._in} FROM PUBLIC")

    def grant(self, rights: str, *on: str) -> None:
        for table in on:
            named = table if self.is_postgres else f"{self._in}.{table}"
            self._database.run(f"GRANT {rights} ON {named} TO {self.name}")

    def grant_create(self) -> None:
        self.grant("CREATE", "SCHEMA public" if self.is_postgres else "*")

    def grant_temporary(self) -> None:
        if self.is_postgres:
            self.grant("TEMPORARY", f"DATABASE {self._in}")
        else:
            self.grant("CREATE TEMPORARY TABLES", "*")

    def grant_all(self) -> None:
        """On all that is there by now."""
        parts = ("SCHEMA public", "ALL TABLES IN SCHEMA public", f"DATABASE {self._in}")
        self.grant("ALL", *(parts if self.is_postgres else "*"))

    def drop(self) -> None:
        self._database.end_sessions()
        if self.is_postgres:
            self._database.run(f"GRANT TEMPORARY ON DATABASE {self._in} TO PUBLIC")
            self._database.run(f"DROP OWNED BY {self.name}")
        self._database.run(f"DROP {'ROLE' if self.is_postgres else 'USER'} {self.name}")


@pytest.fixture
def clerk(database: SqlDatabase) -> Iterator[Clerk]:
    made = Clerk(database)
    yield made
    made.drop()
