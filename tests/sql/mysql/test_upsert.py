"""What upserts ask of MySQL alone: collations, and that no other unique key is hit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import SettingRefused
from tests.kit.errors import raised
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import Query

COLUMNS = (("k", "string"), ("n", "int"), ("at", "timestamp"), ("gone", "boolean"))


def change(*rows: tuple[str, int, int | None, bool | None]) -> Any:
    """(key, value, second or None, delete)."""
    keys, numbers, seconds, gone = zip(*rows, strict=True)
    at = [None if s is None else s * 1_000_000 for s in seconds]
    return pa.record_batch(
        [
            pa.array(keys, pa.string()),
            pa.array(numbers, pa.int32()),
            pa.array(at, pa.timestamp("us", "UTC")),
            pa.array(gone, pa.bool_()),
        ],
        ["k", "n", "at", "gone"],
    )


def upsert(database: Database) -> Query:
    return database.query("t", COLUMNS, mode="upsert", key=["k"], delete_when="gone")


def found(database: Database) -> dict[str, int]:
    return dict(database.run("SELECT k, n FROM t"))


def test_keys_are_the_tables_keys(database: Database) -> None:
    """Keys that the table's collation holds equal are one key within an epoch, too."""
    database.run(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n int, at "
        "datetime(6))"
    )
    query = upsert(database)
    query.write(change(("A", 1, 0, False), ("a", 2, 0, False)))
    assert [n for _, n in database.run("SELECT k, n FROM t")] == [2]
    query.write(change(("A", 3, 0, True)), batch_id=1)
    assert database.run("SELECT k, n FROM t") == []


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ("PRIMARY KEY (k), UNIQUE KEY (n)", ["key=: (n)"]),
        ("PRIMARY KEY (k), UNIQUE KEY (x(3))", ["key=: (part of x)"]),
        ("PRIMARY KEY (k, n)", [" (k);", ": k, n."]),
        ("KEY (k)", [" (k);", ": none."]),
        ("UNIQUE KEY (k(5))", [" (k);", ": part of k."]),
    ],
)
def test_other_unique_keys_are_refused(database: Database, keys: str, facts: list[str]) -> None:
    """MySQL upserts by whichever unique key a row hits: exactly one may be there, and it must be
    the key.
    """
    database.run(
        "CREATE TABLE t (k varchar(20) NOT NULL, n int NOT NULL, at datetime, x varchar(9), "
        f"{keys})"
    )
    with raised(SettingRefused, "SQL_KEY", "mode='upsert'", *facts):
        upsert(database).check()


def test_a_wider_unique_key_is_harmless(database: Database) -> None:
    """A unique key that contains the key can be hit by no other row."""
    database.run(
        "CREATE TABLE t (k varchar(20) PRIMARY KEY, n int, at datetime(6), UNIQUE KEY (n, k))"
    )
    query = upsert(database)
    query.write(change(("a", 1, 0, False)))
    query.write(change(("a", 2, 0, False)), batch_id=1)
    assert found(database) == {"a": 2}


LONG = "https://example.org/" + "x" * 1_100
"""The server's max_sort_length is 1,024 bytes by default."""


@pytest.mark.parametrize(
    ("key", "begin"),
    [
        ("k varchar(2000) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY", LONG),
        ("k varchar(768) COLLATE utf8mb4_unicode_ci PRIMARY KEY", LONG[:700]),
        ("k text COLLATE utf8mb4_bin NOT NULL UNIQUE", LONG),
    ],
)
def test_keys_that_begin_alike(database: Database, key: str, begin: str) -> None:
    """Long keys that differ at their end only are different keys: no row is lost, and the last one
    of each wins.
    """
    database.run(f"CREATE TABLE t ({key}, n int, at datetime(6))")
    query = upsert(database)
    rows = [(begin + end, n, 0, False) for n, end in enumerate("abcab")]
    query.write(change(*rows))
    assert found(database) == {begin + "a": 3, begin + "b": 4, begin + "c": 2}
    rows = [(begin + "b", 5, 0, False), (begin + "c", 6, 0, False), (begin + "b", 7, 0, True)]
    query.write(change(*rows), batch_id=1)
    assert found(database) == {begin + "a": 3, begin + "c": 6}


@pytest.mark.parametrize("sql_type", ["varchar(4000)", "text", "longtext"])
def test_an_order_of_long_texts(database: Database, sql_type: str) -> None:
    """The greatest text is the last one, wherever texts begin to differ."""
    database.run(f"CREATE TABLE t (k int PRIMARY KEY, v {sql_type} COLLATE utf8mb4_bin)")
    columns = (("k", "int"), ("v", "string"))
    texts = [LONG + end for end in "132"]
    rows = pa.record_batch([pa.array([1, 1, 1], pa.int32()), pa.array(texts)], ["k", "v"])
    database.query("t", columns, mode="upsert", key="k", order_by="v").write(rows)
    assert database.run("SELECT v FROM t") == [(LONG + "3",)]


def test_blanks_at_the_end_of_a_key_count_in_a_table_of_ours(database: Database) -> None:
    keys = ["a", "a ", "A", "a\t"]
    rows = pa.RecordBatch.from_pydict({"k": keys, "n": pa.array(range(4), pa.int32())})
    columns = (("k", "string"), ("n", "int"))
    database.query("made", columns, mode="upsert", key="k", create_table=True).write(rows)
    assert sorted(database.rows("SELECT k, n FROM made")) == sorted(
        zip(keys, range(4), strict=True)
    )
