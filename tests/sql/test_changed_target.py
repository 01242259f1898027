"""A target that was changed between the decision and the commit of its rows, by which
``exactum transactions finish`` and the next start commit: no row goes without a word.
"""

from __future__ import annotations

import itertools

import pytest

from exactum.errors import HeuristicOutcome
from exactum.protocol.model import CommitPermit
from exactum.storage.folder import Folder
from tests.kit.sql.postgres_server import Database as PostgresDatabase
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query, narrow
from tests.sql.test_epochs import die_before_commit, permit, rows_in

_queries = itertools.count(1)
OLD = [(k, "old") for k in range(1, 5)]
NEW = [(k, "new") for k in range(1, 5)]


def finish(query: Query, allowed: CommitPermit) -> None:
    """As ``exactum transactions finish`` does: without the sink of a run."""
    sink = query.sink()
    inspector = sink.inspector(query.query_id, sink.name, Folder(str(query.staging)))
    try:
        inspector.participant().commit(allowed, allowed.record.of(sink.name))
    finally:
        inspector.close()


def upserts(database: SqlDatabase, table: str) -> Query:
    """Two batches of the same four keys."""
    return Query(
        lambda: database.sink(table, mode="upsert", key=["id"]),
        f"changed-target-{next(_queries)}",
        tasks=lambda batch_id: [[narrow(OLD if batch_id == 0 else NEW)]],
    )


def second_is_decided(query: Query) -> CommitPermit:
    """The first batch is in the table, and the second one is decided and not committed."""
    driver = query.start()
    driver.run(0)
    die_before_commit(driver, 1)
    driver.close()
    return permit(query, 1)[0]


def test_an_upserts_key_that_is_dropped(database: SqlDatabase) -> None:
    """MySQL adds rows then; PostgreSQL refuses the statement."""
    table = database.table("id bigint, name varchar(50), CONSTRAINT only_one UNIQUE (id)")
    query = upserts(database, table)
    allowed = second_is_decided(query)
    drop = "CONSTRAINT" if isinstance(database, PostgresDatabase) else "INDEX"
    database.run(f"ALTER TABLE {table} DROP {drop} only_one")
    with pytest.raises(HeuristicOutcome, match="is decided"):
        finish(query, allowed)
    assert rows_in(database, table) == OLD
    database.run(f"ALTER TABLE {table} ADD CONSTRAINT only_one UNIQUE (id)")
    finish(query, allowed)
    assert rows_in(database, table) == NEW
