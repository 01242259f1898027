"""Quotes, blanks, dots, per cent signs, upper case, and what would be an attack: all are just names."""

from __future__ import annotations

import os

import pyarrow as pa

from tests.kit.sql.sql_database import SqlDatabase

NAMES = [
    "Order ID", 'na"me', "a`b", "100%", "%s", "a.b", "select", "x'; DROP TABLE t; --", "naïve",
    "x'y\"z", "exactum_loaded",
]  # fmt: skip


def quoted(database: SqlDatabase, *names: str) -> str:
    mark = '"' if database.dialect.scheme == "postgres" else "`"
    return ".".join(mark + name.replace(mark, mark * 2) + mark for name in names)


def test_of_tables_and_columns(database: SqlDatabase) -> None:
    """In a schema of its own; by LOAD DATA, and where that is not allowed by INSERT."""
    schema, is_postgres = f"My Schema % {os.getpid()}", database.dialect.scheme == "postgres"
    table = quoted(database, schema, 'T "1" `2` %s')
    database.run(f"CREATE SCHEMA {quoted(database, schema)}")
    columns = ", ".join(f"{quoted(database, name)} varchar(40)" for name in NAMES)
    try:
        database.run(f"CREATE TABLE {table} ({columns})")
        query = database.query(
            table if is_postgres else f'{schema}.T "1" `2` %s', [(name, "string") for name in NAMES]
        )
        query.query_id = 'it\'s "quoted" %'
        query.tasks = lambda batch_id: [[pa.record_batch({name: [name] for name in NAMES})]]
        query.run(0)
        if not is_postgres:
            options = {"connect": {"local_infile": False}}
            query.sink = lambda: database.sink(f'{schema}.T "1" `2` %s', **options)
        query.run(1)
        assert database.rows(f"SELECT * FROM {table}") == [tuple(NAMES)] * 2
        ledger = quoted(database, schema, "exactum_ledger")
        assert database.value(f"SELECT count(*) FROM {ledger}") == 2
    finally:
        cascade = " CASCADE" if is_postgres else ""
        database.run(f"DROP SCHEMA {quoted(database, schema)}{cascade}")


def test_of_an_upsert(database: SqlDatabase) -> None:
    """With order_by and delete_when."""
    key, value, flag = 'K "`%', "V %%", "gone `%s`"
    table = quoted(database, "U %s")
    database.run(
        f"CREATE TABLE {table} ({quoted(database, key)} int PRIMARY KEY, "
        f"{quoted(database, value)} varchar(9))"
    )
    rows = {
        key: pa.array([1, 1, 2], pa.int32()), value: ["b", "a", "c"], flag: [False, True, True]
    }  # fmt: skip
    columns = ((key, "int"), (value, "string"), (flag, "boolean"))
    settings = {"mode": "upsert", "key": key, "order_by": value, "delete_when": flag}
    database.query("U %s", columns, **settings).write(pa.record_batch(rows))
    assert database.rows(f"SELECT * FROM {table}") == [(1, "b")]
