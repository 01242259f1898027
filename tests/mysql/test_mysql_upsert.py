"""Upserts: the last row of a key wins, in any order, with deletes, and nothing is doubled."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import SettingRefused
from exactum.protocol.sink import Guarantee
from exactum.sql.mysql.sink import MySQLSink
from tests.kit.mysql.mysql_database import Database
from tests.kit.mysql.mysql_query import Query

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


def upsert(
    database: Database, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **options: Any
) -> Query:
    database.run(
        "CREATE TABLE IF NOT EXISTS t (k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY, n int, at "
        "datetime(6), kept int NOT NULL DEFAULT 7)"
    )
    settings = {"mode": "upsert", "key": ["k"], "delete_when": "gone", **options}
    return Query(
        lambda: MySQLSink(database.url, table="t", **settings), COLUMNS, guarantee=guarantee
    )


def found(database: Database) -> dict[str, int]:
    return dict(database.run("SELECT k, n FROM t"))


def test_the_last_row_of_a_key_wins(database: Database) -> None:
    """Without order_by: by the partition's number, then by the place in it, whichever task ends
    first.
    """
    one = upsert(database).started()
    one.epoch(
        0,
        change(("a", 1, 0, False), ("b", 1, 0, False), ("a", 2, 0, False)),
        [change(("b", 2, 0, False), ("c", 1, 0, False)), change(("c", 2, 0, False))],
    )
    assert found(database) == {"a": 2, "b": 2, "c": 2}
    one.epoch(1, change(("a", 3, 0, False)))
    assert found(database) == {"a": 3, "b": 2, "c": 2}
    one.die()


def test_order_by(database: Database) -> None:
    """The greatest values win; NULL is lowest; ties go to the later row."""
    one = upsert(database, order_by=["at", "n"]).started()
    one.epoch(
        0,
        change(
            ("a", 1, 9, False), ("b", 1, None, False), ("c", 5, 3, False), ("d", 1, None, False)
        ),
        change(("a", 2, 8, False), ("b", 2, 1, False), ("c", 4, 3, False), ("d", 1, None, False)),
    )
    assert found(database) == {"a": 1, "b": 2, "c": 5, "d": 1}
    one.die()


def test_delete_when(database: Database) -> None:
    """A last row with the flag deletes its key; an earlier one does not; NULL is no flag; other
    columns keep.
    """
    one = upsert(database).started()
    one.epoch(0, change(("a", 1, 0, False), ("b", 1, 0, False), ("c", 1, 0, None)))
    database.run("UPDATE t SET kept = 8 WHERE k = 'b'")
    one.epoch(
        1, change(("a", 2, 0, True), ("b", 2, 0, True), ("b", 3, 0, False), ("zz", 1, 0, True))
    )
    assert database.run("SELECT k, n, kept FROM t ORDER BY k") == [("b", 3, 8), ("c", 1, 7)]
    assert database.staged() == 0
    one.die()


def test_keys_are_the_tables_keys(database: Database) -> None:
    """Keys that the table's collation holds equal are one key within an epoch, too."""
    database.run(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, n int, at "
        "datetime(6))"
    )
    one = upsert(database, delete_when="gone").started()
    one.epoch(0, change(("A", 1, 0, False), ("a", 2, 0, False)))
    assert [n for _, n in database.run("SELECT k, n FROM t")] == [2]
    one.epoch(1, change(("A", 3, 0, True)))
    assert database.run("SELECT k, n FROM t") == []
    one.die()


def test_a_key_of_several_columns_and_nothing_else(database: Database) -> None:
    """A table of nothing but its key takes upserts."""
    database.run("CREATE TABLE t (k varchar(20), n int, PRIMARY KEY (k, n))")
    query = Query(
        lambda: MySQLSink(database.url, table="t", mode="upsert", key=["k", "n"]),
        (("k", "string"), ("n", "int")),
    )
    one = query.started()
    rows = pa.record_batch([pa.array(["a", "a", "a"]), pa.array([1, 2, 1], pa.int32())], ["k", "n"])
    one.epoch(0, rows)
    one.epoch(1, rows)
    assert database.run("SELECT k, n FROM t ORDER BY n") == [("a", 1), ("a", 2)]
    one.die()


def test_a_null_key_is_rejected(database: Database) -> None:
    """A row whose key is null names its rule and is not written."""
    database.run("CREATE TABLE t (k varchar(20), n int, at datetime(6), UNIQUE KEY (k))")
    one = upsert(database).started()
    batch = change(("a", 1, 0, False), ("b", 2, 0, False)).set_column(0, "k", pa.array(["a", None]))
    one.epoch(0, batch)
    assert found(database) == {"a": 1}
    assert len(one.rejections) == 1
    assert "'k'" in one.rejections[0].reasons[0]
    one.die()


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_weaker_guarantees(database: Database, guarantee: Guarantee) -> None:
    """Without two phases each task upserts by itself; within a task the last row wins."""
    one = upsert(database, guarantee).started()
    assert (
        one.epoch(
            0, change(("a", 1, 0, False), ("a", 2, 0, False)), change(("b", 1, 0, False))
        ).rows
        == 0
    )
    assert found(database) == {"a": 2, "b": 1}
    one.epoch(1, change(("a", 2, 0, True)))
    assert found(database) == {"b": 1}
    assert database.staged() == 0
    one.die()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("PRIMARY KEY (k), UNIQUE KEY (n)", "another"),
        ("PRIMARY KEY (k), UNIQUE KEY (x(3))", "another"),
        ("PRIMARY KEY (k, n)", "unique"),
        ("KEY (k)", "unique"),
        ("UNIQUE KEY (k(5))", "unique"),
    ],
)
def test_other_unique_keys_are_refused(database: Database, keys: str, message: str) -> None:
    """MySQL upserts by whichever unique key a row hits: exactly one may be there, and it must be
    the key.
    """
    database.run(
        "CREATE TABLE t (k varchar(20) NOT NULL, n int NOT NULL, at datetime, x varchar(9), "
        f"{keys})"
    )
    with pytest.raises(SettingRefused, match=message):
        upsert(database).started()


def test_a_wider_unique_key_is_harmless(database: Database) -> None:
    """A unique key that contains the key can be hit by no other row."""
    database.run(
        "CREATE TABLE t (k varchar(20) PRIMARY KEY, n int, at datetime(6), UNIQUE KEY (n, k))"
    )
    one = upsert(database).started()
    one.epoch(0, change(("a", 1, 0, False)))
    one.epoch(1, change(("a", 2, 0, False)))
    assert found(database) == {"a": 2}
    one.die()


def test_xa_takes_no_upsert(database: Database) -> None:
    """mechanism='prepared' with mode='upsert' is refused, and says why."""
    with pytest.raises(SettingRefused, match="staged"):
        upsert(database, mechanism="prepared").started()
