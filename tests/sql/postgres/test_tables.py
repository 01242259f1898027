"""Tables of PostgreSQL: which may be written to, what they refuse by rules of their own, and what
becomes of one that gets rules while rows are on their way to it.
"""

from __future__ import annotations

import sys

import pyarrow as pa
import pytest

from exactum.errors import (
    EpochAborted,
    FrameRefused,
    HeuristicOutcome,
    RowsRefused,
    SettingRefused,
)
from exactum.sql.postgres.sink import PostgresSink
from tests.kit.errors import raised
from tests.kit.sql.clerk import Clerk
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import ID_AND_NAME, Columns, expected
from tests.sql.test_changed_table import finish
from tests.sql.test_epochs import decided, rows_in

pytestmark = pytest.mark.postgres


# ---- at the start --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "columns", "facts"),
    [
        ("id bigint", ID_AND_NAME, ["SQL_COLUMNS", "'name'", "id bigint", "rows="]),
        ("id bigint, name text, Extra int NOT NULL", ID_AND_NAME, ["SQL_COLUMNS", "'extra'", "NOT NULL", "id, name"]),
        ("id bigint, name integer", ID_AND_NAME, ["SQL_TYPE", "'name'", "string", "integer"]),
        ("id bigint, name text", (("id", "decimal(10,0)"), ("name", "string")), ["SQL_TYPE", "'id'", "decimal(10,0)", "bigint"]),
        ("id real, name text", (("id", "double"), ("name", "string")), ["SQL_TYPE", "'id'", "double", "real"]),
        ("id timestamp, name text", (("id", "timestamp"), ("name", "string")), ["SQL_TYPE", "timestamp without time zone"]),
        ("id bigint, name text[]", (("id", "bigint"), ("name", "array<int>")), ["SQL_TYPE", "text[]"]),
        ("id bigint GENERATED ALWAYS AS IDENTITY, name text", ID_AND_NAME, ["SQL_COLUMNS", "'id'", "PostgreSQL"]),
        ("id bigint, name text GENERATED ALWAYS AS ('x') STORED", ID_AND_NAME, ["SQL_COLUMNS", "'name'", "PostgreSQL"]),
        ("id bigint, name text", (("id", "bigint"), ("ID", "bigint"), ("name", "string")), ["SQL_COLUMNS", "two columns", "'id'"]),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(
    database: Database, table: str, columns: Columns, facts: list[str]
) -> None:
    """Each is refused at start with the column and both types named."""
    with raised(FrameRefused, *facts):
        database.query(database.table(table), columns).check()


def test_columns_that_may_be_left_out(database: Database) -> None:
    """Nullable columns, defaults, identities and computed columns need not be in the frame; the
    case may differ.
    """
    table = database.table(
        'key bigint GENERATED ALWAYS AS IDENTITY, id bigint, "Name" text, n int NOT NULL DEFAULT 7, '
        "twice bigint GENERATED ALWAYS AS (id * 2) STORED, other text"
    )
    database.query(table).run(0)
    assert sorted(
        database.rows(f'SELECT id, "Name" FROM {table} WHERE n = 7 AND twice = 2 * id')
    ) == expected([0])


def test_tables_that_cannot_hold_the_guarantee(database: Database) -> None:
    """A missing table, an UNLOGGED one, what is no table: refused by name, with what to do."""
    database.run("CREATE TABLE base (id bigint, name text)")
    database.run("CREATE VIEW seen AS SELECT * FROM base")
    database.run("CREATE UNLOGGED TABLE light (id bigint, name text)")
    database.run("CREATE VIEW written AS SELECT id + 0 AS id, name FROM base")
    database.run(
        "CREATE FUNCTION take() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO base "
        "VALUES (NEW.id, NEW.name); RETURN NEW; END $$"
    )
    database.run(
        "CREATE TRIGGER take INSTEAD OF INSERT ON written FOR EACH ROW EXECUTE FUNCTION take()"
    )
    database.run("CREATE MATERIALIZED VIEW kept AS SELECT * FROM base")
    database.run("CREATE SEQUENCE numbers")
    database.run("DROP FOREIGN DATA WRAPPER IF EXISTS far CASCADE")
    database.run(
        "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far; "
        "CREATE FOREIGN TABLE far_away (id bigint, name text) SERVER far"
    )
    for table, code, fact in (
        ("nowhere", "SQL_TABLE_MISSING", "create_table=True"),
        ("no_schema.base", "SQL_TABLE_MISSING", "create_table=True"),
        ("seen", "SQL_TABLE_KIND", "a view"),
        ("written", "SQL_TABLE_KIND", "a view"),
        ("kept", "SQL_TABLE_KIND", "a materialized view"),
        ("numbers", "SQL_TABLE_KIND", "a sequence"),
        ("far_away", "SQL_TABLE_KIND", "a foreign table"),
        ("light", "SQL_TABLE_KIND", "SET LOGGED"),
    ):
        with raised(SettingRefused, code, table, fact):
            database.query(table).check()
    database.run("DROP FOREIGN DATA WRAPPER far CASCADE")
    assert database.value("SELECT to_regclass('exactum_ledger')") is None


def keyed_table(database: Database, clerk: Clerk) -> str:
    """In which the clerk, whom policies bind, may do all."""
    table = database.table("id bigint PRIMARY KEY, name text")
    clerk.grant_all()
    return table


DELETING = {"mode": "upsert", "key": "id", "delete_when": "gone"}


@pytest.mark.parametrize("delete_when", [None, "gone"])
def test_rows_that_a_policy_hides(
    database: Database, clerk: Clerk, delete_when: str | None
) -> None:
    """Such a row is not deleted, and the server does not say so; to upsert it is an error there."""
    table = keyed_table(database, clerk)
    database.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    database.run(f"CREATE POLICY own ON {table} USING (name = 'mine') WITH CHECK (true)")
    database.run(f"INSERT INTO {table} VALUES (1, 'another''s')")
    columns = (*ID_AND_NAME, ("gone", "boolean")) if delete_when else ID_AND_NAME
    batch = pa.record_batch({"id": [1], "name": ["mine"], "gone": [True]})
    query = database.query(
        table, columns, url=clerk.url, **{**DELETING, "delete_when": delete_when}
    )
    query.tasks = lambda _: [[batch.select([name for name, _ in columns])]]
    said = (
        ("SQL_ROW_SECURITY", "BYPASSRLS")
        if delete_when
        else ("SQL_ACCESS", "row-level security", "(42501)")
    )
    with raised(SettingRefused, *said):
        query.run(0)
    assert database.rows(f"SELECT * FROM {table}") == [(1, "another's")]


FAR = (
    "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far; "
    "CREATE FOREIGN TABLE p_far PARTITION OF parted FOR VALUES FROM (0) TO (9) SERVER far"
)


@pytest.mark.parametrize(
    ("partition", "name"),
    [
        ("CREATE UNLOGGED TABLE p_light PARTITION OF parted FOR VALUES FROM (0) TO (9)", "p_light"),
        (
            "CREATE TABLE half PARTITION OF parted FOR VALUES FROM (0) TO (9) PARTITION BY LIST (id);"
            "CREATE UNLOGGED TABLE p_deep PARTITION OF half DEFAULT",
            "p_deep",
        ),
        (FAR, "p_far"),
    ],
)
def test_partitions_that_cannot_hold_the_guarantee(
    database: Database, partition: str, name: str
) -> None:
    """A partition that a crash empties, or that another server commits, is no better than such a
    table.
    """
    database.run("DROP FOREIGN DATA WRAPPER IF EXISTS far CASCADE")
    database.run("CREATE TABLE parted (id bigint, name text) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE p_good PARTITION OF parted FOR VALUES FROM (10) TO (19)")
    database.run(partition)
    with raised(SettingRefused, "SQL_TABLE_KIND", f" {name} ", " public.parted "):
        database.query("parted").check()
    database.run("DROP FOREIGN DATA WRAPPER IF EXISTS far CASCADE")


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("ON INSERT TO {table} DO INSTEAD NOTHING", True),
        ("ON INSERT TO {table} WHERE NEW.id > 5 DO INSTEAD NOTHING", True),
        ("ON INSERT TO {table} DO ALSO NOTIFY written", False),
        ("ON DELETE TO {table} DO INSTEAD NOTHING", False),
    ],
)
def test_rules_that_send_rows_elsewhere(database: Database, rule: str, refused: bool) -> None:
    """A staged row would vanish, and COPY does not heed the rule: neither is what was asked."""
    table = database.table()
    database.run(f'CREATE RULE "away" AS {rule.format(table=table)}')
    query = database.query(table)
    if refused:
        with raised(SettingRefused, "SQL_TABLE_KIND", "'away'", "ON INSERT DO INSTEAD"):
            query.start()
        return
    query.run(0)
    assert sorted(database.rows(f"SELECT * FROM {table}")) == expected([0])


@pytest.mark.parametrize("table", ["", "a.b.c", "a.", ".a", '"a', '"a"b', 'a"."'])
def test_names_that_are_none(database: Database, table: str) -> None:
    """A table's name that cannot be read is refused when the sink is made."""
    with raised(SettingRefused, "SQL_ARGUMENT", "'schema.table'"):
        database.sink(table)


@pytest.mark.parametrize("name", ["x" * 64, "ж" * 32, "x" * 64 + ".t"])
def test_a_name_that_would_be_cut_off(database: Database, name: str) -> None:
    """PostgreSQL keeps 63 bytes, and says so to nobody: two tables of long names would be one."""
    with raised(SettingRefused, "SQL_ARGUMENT", "PostgreSQL", repr(name.removesuffix(".t"))):
        database.query(name, create_table=True).check()


def test_psycopg_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the sink is refused with the extra to install."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with raised(SettingRefused, "PACKAGE_MISSING", "exactum[postgres]"):
        PostgresSink("postgresql://localhost/x", table="t")


# ---- rules of the table ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "code"),
    [
        ("CHECK (id <> 203)", "(23514)"),
        ("UNIQUE DEFERRABLE INITIALLY DEFERRED", "(23505)"),
        ("REFERENCES parent DEFERRABLE", "(23503)"),
    ],
)
def test_what_the_table_refuses_aborts_the_epoch(
    database: Database, constraint: str, code: str
) -> None:
    """A CHECK, a deferred unique key, a foreign key: refused before the decision, with the
    server's words.
    """
    database.run("CREATE TABLE parent (id bigint PRIMARY KEY)")
    database.run("INSERT INTO parent SELECT i FROM generate_series(0, 200) i")
    table = database.table(f"id bigint {constraint}, name text")
    if "UNIQUE" in constraint:
        database.run(f"INSERT INTO {table} VALUES (203, 'there before')")
    query = database.query(table)
    with raised(RowsRefused, "ROWS_REFUSED", table, code):
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


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_column_that_is_added_and_must_be_filled(database: Database, mode: str) -> None:
    """No row is at fault: the attempt ends, and the next start names the column. Once it has a
    default, the query goes on.
    """
    table = database.table("id bigint PRIMARY KEY, name text")
    query = database.query(table, mode=mode, key="id" if mode == "upsert" else None)
    driver = query.start()
    database.run(f"ALTER TABLE {table} ADD COLUMN shop bigint NOT NULL")
    with raised(EpochAborted, "'shop'", "NOT NULL"):
        driver.run(0)
    driver.close()
    with raised(FrameRefused, "SQL_COLUMNS", "'shop'", "NOT NULL", "id, name"):
        query.check()
    database.run(f"ALTER TABLE {table} ALTER COLUMN shop SET DEFAULT 7")
    query.run(0)
    assert rows_in(database, table) == expected([0])


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
    driver = database.query(table).start()
    driver.run(0)
    driver.close()
    database.run("DROP FUNCTION swallow CASCADE")
    assert rows_in(database, table) == [row for row in expected([0]) if row[0] % 2 == 0]
    assert driver.query.staged() == []


def test_a_partitioned_table(database: Database) -> None:
    """Rows go to their partitions; one that has none stops the epoch before its decision."""
    database.run("CREATE TABLE days (id bigint, name text) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (1000)")
    query = database.query("days")
    driver = query.start()
    driver.run(0)
    with raised(RowsRefused, "ROWS_REFUSED", '"days"', "(23514)"):
        driver.run(1)
    driver.close()
    assert database.value("SELECT count(*) FROM days") == 12
    assert query.staged() == []


# ---- while rows are on their way ------------------------------------------------------------------


def test_a_rule_that_swallows_rows(database: Database) -> None:
    table = database.table()
    query, driver, allowed = decided(database, table)
    driver.close()
    database.run(f"CREATE RULE away AS ON INSERT TO {table} DO INSTEAD NOTHING")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "[SQL_TABLE_KIND]", "'away'"):
        finish(query, allowed)
    database.run(f"DROP RULE away ON {table}")
    finish(query, allowed)
    assert rows_in(database, table) == expected([0])


def test_row_level_security_that_is_switched_on(database: Database, clerk: Clerk) -> None:
    """While a query runs that deletes: a DELETE passes over hidden rows without a word."""
    table = keyed_table(database, clerk)
    query = database.query(table, (*ID_AND_NAME, ("gone", "boolean")), url=clerk.url, **DELETING)
    rows = {"id": [1, 2], "name": ["hidden", "seen"]}
    query.tasks = lambda batch_id: [[pa.record_batch({**rows, "gone": [batch_id > 0] * 2})]]
    driver = query.start()
    driver.run(0)
    database.run(f"CREATE POLICY own ON {table} USING (name <> 'hidden') WITH CHECK (true)")
    database.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    with raised(SettingRefused, "SQL_REFUSED", "BYPASSRLS"):
        driver.run(1)
    driver.close()
    assert rows_in(database, table) == [(1, "hidden"), (2, "seen")]
