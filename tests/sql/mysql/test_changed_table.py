"""A table of MySQL that is changed while a query writes to it, its columns' types aside."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted
from exactum.protocol.sink import Guarantee
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import Incarnation

COLUMNS = (("k", "string"), ("n", "bigint"), ("at", "timestamp"))


def one_row(key: str, number: int | None, second: int | None) -> Any:
    at = None if second is None else second * 1_000_000
    return pa.record_batch(
        [
            pa.array([key]),
            pa.array([number], pa.int64()),
            pa.array([at], pa.timestamp("us", "UTC")),
        ],
        ["k", "n", "at"],
    )


def started(database: Database, **settings: Any) -> Incarnation:
    database.run("CREATE TABLE t (k varchar(20), n bigint NULL, at timestamp(6) NULL)")
    return database.query("t", COLUMNS, **settings).start()


@pytest.mark.parametrize(
    "became",
    [
        "MODIFY n bigint NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY (n)",
        "MODIFY at timestamp(6) NOT NULL DEFAULT current_timestamp(6)",
    ],
)
def test_null_becomes_no_other_value(database: Database, became: str) -> None:
    """A column that fills in what is null was one that could be null: the batch is refused, and the
    next start puts such rows aside.
    """
    one = started(database)
    one.epoch(0, one_row("first", 1, 1))
    database.run(f"ALTER TABLE t {became}")
    with pytest.raises(EpochAborted, match=r"(?s)column '(n|at)' .*NOT NULL.*start the query"):
        one.epoch(1, one_row("second", None, None))
    one.close()
    assert database.run("SELECT k FROM t") == [("first",)]


UPSERT = {"mode": "upsert", "key": ["k"]}


@pytest.mark.parametrize(
    ("guarantee", "became", "key", "words"),
    [
        (
            Guarantee.EXACTLY_ONCE,
            "DROP PRIMARY KEY",
            "first",
            r"unique constraint on exactly \(k\)",
        ),
        (
            Guarantee.AT_LEAST_ONCE,
            "ADD UNIQUE KEY (n)",
            "second",
            r"another one than key=: \(n\)",
        ),
    ],
)
def test_a_key_that_is_another_one(
    database: Database, guarantee: Guarantee, became: str, key: str, words: str
) -> None:
    """Without its key a row would be there twice; by another one it would replace a different row,
    and not be there itself.
    """
    database.run("CREATE TABLE t (k varchar(20) PRIMARY KEY, n bigint, at timestamp(6) NULL)")
    query = database.query("t", COLUMNS, **UPSERT)
    query.guarantee = guarantee
    one = query.start()

    def write(batch_id: int, row: Any) -> None:
        query.tasks = lambda _: [[row]]
        one.carry_out(batch_id)

    write(0, one_row("first", 1, 1))
    database.run(f"ALTER TABLE t {became}")
    with pytest.raises(EpochAborted, match=f"(?s){words}.*start the query"):
        write(1, one_row(key, 1, None))
    one.close()
    assert database.run("SELECT k, n, at IS NULL FROM t") == [("first", 1, 0)]


def test_a_key_that_collates_otherwise(database: Database) -> None:
    """Two texts that were two keys are one now: the staging would sort them as two, and the wrong
    row could win.
    """
    database.run(
        "CREATE TABLE t (k varchar(20) COLLATE utf8mb4_bin PRIMARY KEY, n bigint, at timestamp(6) "
        "NULL) CHARACTER SET utf8mb4"
    )
    one = database.query("t", COLUMNS, **UPSERT).start()
    one.epoch(0, one_row("A", 1, 1))
    database.run("ALTER TABLE t MODIFY k varchar(20) COLLATE utf8mb4_general_ci")
    with pytest.raises(EpochAborted, match="(?s)column 'k' .*start the query"):
        one.epoch(1, one_row("a", 2, 2))
    one.close()
    assert database.run("SELECT k, n FROM t") == [("A", 1)]
