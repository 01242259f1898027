"""Users who may not do all: what is missing is refused at the start, not at the first commit."""

from __future__ import annotations

from exactum.errors import SettingRefused
from tests.kit.errors import raised
from tests.kit.sql.clerk import LOGIN, RIGHTS, Clerk
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query, expected
from tests.sql.test_epochs import rows_in

DENIED = {"postgres": "(42501)", "mysql": "(1142)"}
"""A right on a table is missing."""


def refused(query: Query, *facts: str) -> str:
    """What a start says: nobody is told to correct the password, nor sees it."""
    with raised(SettingRefused, "SQL_ACCESS", *facts) as caught:
        query.check()
    assert "secret" not in str(caught.value) and LOGIN not in str(caught.value)
    return str(caught.value)


def test_rights_that_are_missing(database: SqlDatabase, clerk: Clerk) -> None:
    """Each is named; an administrator may make the ledger, by the statement of the refusal. Then the
    user can write.
    """
    table = database.table()
    query = database.query(table, url=clerk.url)
    if clerk.is_postgres:  # MySQL lets nobody in who has no right at all
        refused(query)
    clerk.grant("SELECT", table)
    said = refused(query, "exactum_ledger", "CREATE TABLE ")
    database.run(said[said.index("CREATE TABLE ") :].split(";")[0])
    clerk.grant(
        f"SELECT, INSERT, {'' if clerk.is_postgres else 'UPDATE, '}DELETE", "exactum_ledger"
    )
    refused(query, table, DENIED[database.dialect.scheme], RIGHTS)
    clerk.grant("INSERT", table)
    query.run(0)
    assert rows_in(database, table) == expected([0])


def test_an_upsert_needs_a_temporary_table(database: SqlDatabase, clerk: Clerk) -> None:
    """Who may not make one is refused in the server's words. The ledger is made at the first start."""
    table = database.table("id bigint PRIMARY KEY, name varchar(50)")
    query = database.query(table, url=clerk.url, mode="upsert", key="id")
    clerk.grant("SELECT, INSERT, UPDATE, DELETE", table if clerk.is_postgres else "*")
    clerk.grant_create()
    refused(query, "(42501)" if clerk.is_postgres else "(1044)")
    clerk.grant_temporary()
    query.run(0)
    assert rows_in(database, table) == expected([0])
