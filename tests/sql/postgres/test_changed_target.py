"""Rules and policies that a table gets while rows are on their way to it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from exactum.errors import HeuristicOutcome, SettingRefused
from exactum.sql.postgres.sink import PostgresSink
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, Query, expected
from tests.sql.test_changed_target import finish
from tests.sql.test_epochs import decided, rows_in

pytestmark = pytest.mark.postgres


def test_a_rule_that_swallows_rows(database: Database) -> None:
    table = database.table()
    query, driver, allowed = decided(database, table)
    driver.close()
    database.run(f"CREATE RULE away AS ON INSERT TO {table} DO INSTEAD NOTHING")
    with pytest.raises(HeuristicOutcome, match="rule 'away'"):
        finish(query, allowed)
    database.run(f"DROP RULE away ON {table}")
    finish(query, allowed)
    assert rows_in(database, table) == expected([0])


def test_row_level_security_that_is_switched_on(database: Database) -> None:
    """While a query runs that deletes: a DELETE passes over hidden rows without a word."""
    database.run("DROP ROLE IF EXISTS keeper")
    database.run("CREATE ROLE keeper LOGIN PASSWORD 'keeper'")
    database.run("GRANT ALL ON SCHEMA public TO keeper")
    table = database.table("id bigint PRIMARY KEY, name text")
    database.run(f"GRANT ALL ON {table} TO keeper")

    def rows(batch_id: int) -> pa.RecordBatch:
        columns = [pa.array([1, 2]), pa.array(["hidden", "seen"]), pa.array([batch_id > 0] * 2)]
        return pa.RecordBatch.from_arrays(columns, names=["id", "name", "gone"])

    url = database.server.url_of(database.server.database, "keeper", "keeper")
    query = Query(
        lambda: PostgresSink(url, table=table, mode="upsert", key=["id"], delete_when="gone"),
        "policies",
        (*ID_AND_NAME, ("gone", "boolean")),
        lambda batch_id: [[rows(batch_id)]],
    )
    driver = query.start()
    try:
        driver.run(0)
        database.run(f"CREATE POLICY own ON {table} USING (name <> 'hidden') WITH CHECK (true)")
        database.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        with pytest.raises(SettingRefused, match="row-level security .*BYPASSRLS"):
            driver.run(1)
        assert rows_in(database, table) == [(1, "hidden"), (2, "seen")]
    finally:
        driver.close()
        database.clean()
