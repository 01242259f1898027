"""What is refused at start, and of rows, in words that say what to do."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import (
    FrameRefused,
    RowsRefused,
    SettingRefused,
)
from exactum.protocol.sink import DEAD_LETTER_COLUMNS
from exactum.sql.postgres.sink import PostgresSink
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.postgres_start import start
from tests.kit.sql.sql_epochs import ID_AND_NAME, Columns, Query, expected, narrow

pytestmark = pytest.mark.postgres

_queries = itertools.count(1)


@pytest.mark.parametrize(
    ("table", "columns", "words"),
    [
        ("id bigint", ID_AND_NAME, ["no column 'name'", "id bigint", "rows="]),
        (
            "id bigint, name text, Extra int NOT NULL",
            ID_AND_NAME,
            ["'extra'", "NOT NULL", "id, name"],
        ),
        ("id bigint, name integer", ID_AND_NAME, ["'name'", "string", "integer"]),
        (
            "id bigint, name text",
            (("id", "decimal(10,0)"), ("name", "string")),
            ["'id'", "decimal(10,0)", "bigint"],
        ),
        ("id real, name text", (("id", "double"), ("name", "string")), ["'id'", "double", "real"]),
        (
            "id timestamp, name text",
            (("id", "timestamp"), ("name", "string")),
            ["timestamp without time zone"],
        ),
        ("id bigint, name text[]", (("id", "bigint"), ("name", "array<int>")), ["text[]"]),
        (
            "id bigint GENERATED ALWAYS AS IDENTITY, name text",
            ID_AND_NAME,
            ["'id'", "PostgreSQL itself"],
        ),
        (
            "id bigint, name text GENERATED ALWAYS AS ('x') STORED",
            ID_AND_NAME,
            ["'name'", "PostgreSQL itself"],
        ),
        (
            "id bigint, name text",
            (("id", "bigint"), ("ID", "bigint"), ("name", "string")),
            ["two columns"],
        ),
    ],
)
def test_columns_that_do_not_fit(
    database: Database, table: str, columns: Columns, words: list[str]
) -> None:
    """Each is refused at start with the column and both types named."""
    with pytest.raises(FrameRefused) as caught:
        start(database, database.table(table), columns)
    for word in words:
        assert word in str(caught.value)


def test_columns_that_may_be_left_out(database: Database) -> None:
    """Nullable columns, defaults, identities and computed columns need not be in the frame; the
    case may differ.
    """
    table = database.table(
        'key bigint GENERATED ALWAYS AS IDENTITY, id bigint, "Name" text, n int NOT NULL DEFAULT 7, '
        "twice bigint GENERATED ALWAYS AS (id * 2) STORED, other text"
    )
    query = Query(lambda: PostgresSink(database.url, table=table), f"out-{next(_queries)}")
    driver = query.start()
    driver.run(0)
    driver.close()
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
    for table, words in (
        ("nowhere", "create_table=True"),
        ("no_schema.base", "create_table=True"),
        ("seen", "a view"),
        ("written", "a view"),
        ("kept", "a materialized view"),
        ("numbers", "a sequence"),
        ("far_away", "a foreign table"),
        ("light", "SET LOGGED"),
    ):
        with pytest.raises(SettingRefused, match=words):
            start(database, table)
    database.run("DROP FOREIGN DATA WRAPPER far CASCADE")
    assert database.value("SELECT to_regclass('exactum_ledger')") is None


@pytest.mark.parametrize("delete_when", [None, "gone"])
def test_rows_that_a_policy_hides(database: Database, delete_when: str | None) -> None:
    """Such a row is not deleted, and the server does not say so; to upsert it is an error there."""
    database.run("DROP ROLE IF EXISTS tenant")
    database.run("CREATE ROLE tenant LOGIN PASSWORD 'tenant'")
    database.run("GRANT ALL ON SCHEMA public TO tenant")
    table = database.table("id bigint PRIMARY KEY, name text")
    database.run(f"GRANT ALL ON {table} TO tenant")
    database.run(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    database.run(f"CREATE POLICY own ON {table} USING (name = 'mine') WITH CHECK (true)")
    database.run(f"INSERT INTO {table} VALUES (1, 'another''s')")
    columns = (*ID_AND_NAME, ("gone", "boolean"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array(["mine"]), pa.array([True])], names=["id", "name", "gone"]
    )
    query = Query(
        lambda: PostgresSink(
            database.server.url_of(database.server.database, "tenant", "tenant"),
            table=table,
            mode="upsert",
            key="id",
            delete_when=delete_when,
        ),
        f"policies-{next(_queries)}",
        columns if delete_when else ID_AND_NAME,
        lambda batch_id: [[batch if delete_when else batch.select(["id", "name"])]],
    )
    try:
        if delete_when:
            with pytest.raises(SettingRefused, match="row-level security .*BYPASSRLS"):
                query.run_once()
        else:
            with pytest.raises(SettingRefused, match="row-level security policy"):
                query.run_once()
        assert database.rows(f"SELECT * FROM {table}") == [(1, "another's")]
    finally:
        database.clean()
        database.run("REVOKE ALL ON SCHEMA public FROM tenant")
        database.run("DROP ROLE tenant")


FAR = (
    "CREATE FOREIGN DATA WRAPPER far; CREATE SERVER far FOREIGN DATA WRAPPER far; "
    "CREATE FOREIGN TABLE p_far PARTITION OF parted FOR VALUES FROM (0) TO (9) SERVER far"
)


@pytest.mark.parametrize(
    ("partition", "words"),
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
    database: Database, partition: str, words: str
) -> None:
    """A partition that a crash empties, or that another server commits, is no better than such a
    table.
    """
    database.run("DROP FOREIGN DATA WRAPPER IF EXISTS far CASCADE")
    database.run("CREATE TABLE parted (id bigint, name text) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE p_good PARTITION OF parted FOR VALUES FROM (10) TO (19)")
    database.run(partition)
    with pytest.raises(SettingRefused, match=f"The partition {words} of the table public.parted"):
        start(database, "parted")
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
    query = Query(
        lambda: PostgresSink(database.url, table=table),
        f"rules-{next(_queries)}",
    )
    if refused:
        with pytest.raises(SettingRefused, match="the rule 'away', ON INSERT DO INSTEAD"):
            query.start()
        return
    query.run_once()
    assert sorted(database.rows(f"SELECT * FROM {table}")) == expected([0])


@pytest.mark.parametrize("table", ["", "a.b.c", "a.", ".a", '"a', '"a"b', 'a"."'])
def test_names_that_are_none(database: Database, table: str) -> None:
    """A table's name that cannot be read is refused when the sink is made."""
    with pytest.raises(SettingRefused, match="schema.table"):
        PostgresSink(database.url, table=table)


# ---- rows ----------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_rejected(database: Database) -> None:
    """Too long, null, out of range, a NUL byte: these rows come back with reasons, the others
    are written.
    """
    table = database.table("id int PRIMARY KEY, name varchar(5) NOT NULL")
    rows = [(1, "good"), (2, "too long"), (3, None), (2**31, "big"), (5, "a\0b"), (6, "fine")]
    batch = pa.RecordBatch.from_arrays(
        [pa.array([i for i, _ in rows], pa.int64()), pa.array([n for _, n in rows])],
        names=["id", "name"],
    )
    query = Query(
        lambda: PostgresSink(database.url, table=table),
        f"rows-{next(_queries)}",
        tasks=lambda batch_id: [[batch]],
    )
    driver = query.start()
    driver.run(0)
    driver.close()
    assert sorted(database.rows(f"SELECT * FROM {table}")) == [(1, "good"), (6, "fine")]
    (rejection,) = driver.write.rejections
    assert rejection.rows.column("id").to_pylist() == [2, 3, 2**31, 5]
    for reason, words in zip(
        rejection.reasons,
        (
            ("id=2", "holds 5 characters"),
            ("id=3", "null"),
            ("id=2147483648", "2147483647"),
            ("id=5", "U+0000"),
        ),
        strict=True,
    ):
        assert all(word in reason for word in words)


def test_a_task_all_of_whose_rows_are_rejected_prepares_nothing(database: Database) -> None:
    """Nothing accepted, nothing prepared, nothing written."""
    table = database.table("id bigint, name varchar(1)")
    query = Query(
        lambda: PostgresSink(database.url, table=table),
        "none",
        tasks=lambda batch_id: [[narrow([(1, "long")])]],
    )
    driver = query.start()
    assert driver.run(0).rows == 0
    driver.close()
    assert query.staged() == []


def test_what_only_the_table_knows_is_refused_in_the_servers_words(database: Database) -> None:
    """A CHECK that a row breaks: the epoch is refused in the server's words, and the session
    serves the next one.
    """
    table = database.table("id bigint, name text CONSTRAINT short CHECK (length(name) < 4)")
    query = Query(
        lambda: PostgresSink(database.url, table=table),
        f"server-{next(_queries)}",
        tasks=lambda batch_id: [[narrow([(1, "much too long")])]],
    )
    with pytest.raises(RowsRefused, match='violates check constraint "short"'):
        query.run(0)
    query.tasks = lambda batch_id: [[narrow([(1, "abc")])]]
    following = query.start()
    following.run(0)
    following.close()
    assert database.value(f"SELECT count(*) FROM {table}") == 1
    assert query.staged() == []


# ---- tables of exactum's own, and what a start is handed ----------------------------------------


def test_dead_letters_go_into_a_table_of_their_own(database: Database) -> None:
    """The columns of dead letters are taken, and the table can be created of them."""
    sink = PostgresSink(database.url, table="dead", create_table=True)
    assert tuple(sink.dead_letter_columns) == DEAD_LETTER_COLUMNS
    start(database, "dead", sink.dead_letter_columns, create_table=True)
    found: Sequence[tuple[Any, ...]] = database.rows(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'dead'::regclass AND attnum > 0 "
        "ORDER BY attnum"
    )
    assert [name for (name,) in found] == [name for name, _ in DEAD_LETTER_COLUMNS]


def test_a_partitioned_table(database: Database) -> None:
    """Rows go to their partitions; one that has none stops the epoch before its decision."""
    database.run("CREATE TABLE days (id bigint, name text) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (1000)")
    query = Query(lambda: PostgresSink(database.url, table="days"), "days")
    driver = query.start()
    driver.run(0)
    with pytest.raises(RowsRefused, match="no partition"):
        driver.run(1)
    driver.close()
    assert database.value("SELECT count(*) FROM days") == 12
    assert query.staged() == []


def test_psycopg_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the sink is refused with the extra to install."""
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingRefused, match=r"exactum\[postgres\]"):
        PostgresSink("postgresql://localhost/x", table="t")


@pytest.mark.parametrize("name", ["x" * 64, "ж" * 32, "x" * 64 + ".t"])
def test_a_name_that_would_be_cut_off(database: Database, name: str) -> None:
    """PostgreSQL keeps 63 bytes, and says so to nobody: two tables of long names would be one."""
    with pytest.raises(SettingRefused, match="has no table or schema of the name"):
        start(database, name, create_table=True)
