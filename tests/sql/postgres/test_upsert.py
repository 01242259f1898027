"""What upserts ask of PostgreSQL alone: collations, partial and deferred unique keys."""

from __future__ import annotations

import pyarrow as pa
import pytest

from exactum.errors import SettingRefused
from exactum.sql.postgres import rows as encoders
from tests.kit.errors import raised
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import narrow
from tests.sql.test_upsert import SCHEMA, query_on

pytestmark = pytest.mark.postgres

KEYED = (("k", "string"), ("n", "int"))


def _ignoring_case(database: Database) -> None:
    """A collation ``anycase``."""
    database.run("DROP COLLATION IF EXISTS anycase")
    database.run(
        "CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = "
        "false)"
    )


def test_keys_that_collate_as_equal(database: Database) -> None:
    """A key whose collation ignores case: the last of "A" and "a" wins, as the unique index has
    it.
    """
    _ignoring_case(database)
    table = database.table('k text COLLATE "anycase" PRIMARY KEY, n int')
    rows = pa.RecordBatch.from_pylist(
        [{"k": "A", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}],
        schema=pa.schema([("k", pa.string()), ("n", pa.int32())]),
    )
    query_on(database, table, KEYED, delete_when=None).write(rows)
    assert sorted(database.rows(f"SELECT n FROM {table}")) == [(2,), (3,)]


@pytest.mark.parametrize(
    ("column", "index", "fits"),
    [
        ('k text COLLATE "anycase"', 'k COLLATE "C"', False),
        ("k text", 'k COLLATE "anycase"', False),
        ("k text", 'k COLLATE "C"', True),
    ],
)
def test_a_key_whose_index_collates_otherwise(
    database: Database, column: str, index: str, fits: bool
) -> None:
    """Texts that are one key in the column and two in the index, or the other way: of the two
    one would be lost. That an index sorts otherwise does not matter.
    """
    _ignoring_case(database)
    table = database.table(f"{column} NOT NULL, n int")
    database.run(f"CREATE UNIQUE INDEX ON {table} ({index})")
    rows = pa.RecordBatch.from_pydict({"k": ["A", "a"], "n": pa.array([1, 2], pa.int32())})
    query = query_on(database, table, KEYED, delete_when=None)
    if not fits:
        with raised(SettingRefused, "SQL_KEY", " (k);", table):
            query.check()
        return
    query.write(rows)
    assert sorted(database.rows(f"SELECT k, n FROM {table}")) == [("A", 1), ("a", 2)]


def test_a_key_that_holds_for_one_table_of_several(database: Database) -> None:
    """Readers see the rows of tables that inherit from it as well."""
    table = database.table("k text PRIMARY KEY, n int")
    query_on(database, table, KEYED, delete_when=None).check()
    database.run(f"CREATE TABLE archive () INHERITS ({table})")
    with raised(SettingRefused, "SQL_KEY", " (k);", table):
        query_on(database, table, KEYED, delete_when=None).check()


def test_a_key_whose_type_has_its_equality_elsewhere(database: Database) -> None:
    """What the index takes for one key, ``=`` in a statement would not."""
    database.run("CREATE SCHEMA extensions")
    database.run("CREATE EXTENSION citext SCHEMA extensions")
    try:
        table = database.table("k extensions.citext PRIMARY KEY, n int")
        with raised(SettingRefused, "SQL_KEY", " (k);", table):
            query_on(database, table, KEYED, delete_when=None).check()
        database.run("ALTER EXTENSION citext SET SCHEMA public")
        query_on(database, table, KEYED, delete_when=None).check()
    finally:
        database.run("DROP EXTENSION citext CASCADE")
        database.run("DROP SCHEMA extensions CASCADE")


@pytest.mark.parametrize(
    "columns",
    [
        "k bigint, v text, at bigint",
        "k bigint, v text, at bigint, UNIQUE (k, v)",
        "k bigint, v text, at bigint, UNIQUE (k) DEFERRABLE",
    ],
)
def test_a_key_without_a_unique_constraint(database: Database, columns: str) -> None:
    """The key must have a unique constraint of its own, over all rows and at once: refused at
    start.
    """
    table = database.table(columns)
    with raised(SettingRefused, "SQL_KEY", " (k);", table):
        query_on(database, table).check()
    database.run(f"CREATE UNIQUE INDEX ON {table} (k) WHERE v IS NOT NULL")
    database.run(f"CREATE UNIQUE INDEX ON {table} ((k + 1))")
    with raised(SettingRefused, "SQL_KEY", " (k);", table):
        query_on(database, table).check()


def test_a_row_that_stays_takes_what_a_row_that_goes_had(database: Database) -> None:
    """Of another unique key of the table: in one batch a customer is deleted, and another one gets
    the address. Deleted first, they do not meet.
    """
    table = database.table("k bigint PRIMARY KEY, v text UNIQUE, at bigint")
    database.run(f"INSERT INTO {table} VALUES (1, 'x', 0), (3, 'y', 0)")
    rows = pa.RecordBatch.from_arrays(
        [pa.array([2, 1]), pa.array(["x", "x"]), pa.array([1, 1]), pa.array([False, True])],
        schema=SCHEMA,
    )
    query_on(database, table).write(rows)
    assert sorted(database.rows(f"SELECT k, v FROM {table}")) == [(2, "x"), (3, "y")]
    only_gone = rows.slice(1).set_column(0, "k", pa.array([3]))
    query_on(database, table).write(only_gone)
    assert database.rows(f"SELECT k, v FROM {table}") == [(2, "x")]


def test_large_batches_go_in_pieces(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row once, and in its order: the last one of a key stays."""
    monkeypatch.setattr(encoders, "CHUNK_ROWS", 3)
    table = database.table("id bigint PRIMARY KEY, name text")
    rows = [(number // 2, f"row {number}") for number in range(11)]
    assert database.query(table, mode="upsert", key="id").write(narrow(rows)) == []
    assert sorted(database.rows(f"SELECT * FROM {table}")) == sorted(dict(rows).items())
