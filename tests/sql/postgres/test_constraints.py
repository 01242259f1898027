"""What only PostgreSQL's tables do to rows: deferred constraints, triggers."""

from __future__ import annotations

import pytest

from exactum.errors import RowsRefused
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected
from tests.sql.test_epochs import query_on, rows_in

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize(
    "constraint",
    ["CHECK (id <> 203)", "UNIQUE DEFERRABLE INITIALLY DEFERRED", "REFERENCES parent DEFERRABLE"],
)
def test_what_the_table_refuses_aborts_the_epoch(database: Database, constraint: str) -> None:
    """A CHECK, a deferred unique key, a foreign key: refused before the decision, with the
    server's words.
    """
    database.run("CREATE TABLE parent (id bigint PRIMARY KEY)")
    database.run("INSERT INTO parent SELECT i FROM generate_series(0, 200) i")
    table = database.table(f"id bigint {constraint}, name text")
    if "UNIQUE" in constraint:
        database.run(f"INSERT INTO {table} VALUES (203, 'there before')")
    query = query_on(database, table)
    with pytest.raises(RowsRefused, match="constraint"):
        query.run(0)
    assert rows_in(database, table) in ([], [(203, "there before")])
    following = query.start()  # sweeps what the first one could not
    assert list(query.storage.records.values()) == [
        r for r in query.storage.records.values() if not r.prepared
    ]
    with pytest.raises(RowsRefused):
        following.run(0)
    following.close()
    assert query.staged() == []


def test_a_trigger_that_drops_rows_is_the_users_own(database: Database) -> None:
    """A BEFORE trigger that swallows rows lowers the server's count, and is not taken for loss."""
    table = database.table()
    database.run(
        "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.id % 2 = 1 THEN RETURN NULL; END IF; RETURN NEW; END $$"
    )
    database.run(
        f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION swallow()"
    )
    driver = query_on(database, table).start()
    driver.run(0)
    driver.close()
    database.run("DROP FUNCTION swallow CASCADE")
    assert rows_in(database, table) == [row for row in expected([0]) if row[0] % 2 == 0]
    assert driver.query.staged() == []
