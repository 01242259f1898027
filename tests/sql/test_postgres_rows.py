"""Odd rows on the real server: each arrives exactly as it was, or comes back with its key, column and reason."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from postgres_server import NOTHING, Database
from sql_epochs import Query

from exactum.errors import FrameRefused
from exactum.protocol.sink import Rejection
from exactum.sql.postgres_sink import PostgresSink

pytestmark = pytest.mark.postgres

_queries = itertools.count(1)


def written(database: Database, table: str, spark_type: str, values: Any, **settings: Any) -> list[Rejection]:
    """Run a query of one epoch that writes ``values`` into column ``v``, with ``n`` counted from 0."""
    batch = pa.RecordBatch.from_arrays([pa.array(range(len(values)), pa.int32()), values], names=["n", "v"])
    query = Query(
        lambda: PostgresSink(database.url, table=table, **settings),
        f"rows-{next(_queries)}",
        (("n", "int"), ("v", spark_type)),
        lambda batch_id: [[batch.slice(0, 1), batch.slice(1)]],
    )
    driver = query.start()
    driver.run(0)
    driver.close()
    assert database.leftovers() == NOTHING
    return driver.write.rejections


def test_a_batch_with_other_columns(database: Database) -> None:
    """A batch that lacks a column of its plan, or has one more, is refused whole: nobody's row loses a column."""
    table = database.table("id bigint, name text")
    frames: list[dict[str, Any]] = [
        {"id": [1], "name": ["a"], "more": ["lost"]},
        {"id": [1]},
        {"id": [1], "other": ["a"]},
    ]
    for frame in frames:
        batch = pa.RecordBatch.from_pydict(frame)
        query = Query(
            lambda: PostgresSink(database.url, table=table),
            f"columns-{next(_queries)}",
            tasks=lambda batch_id, batch=batch: [[batch]],
        )
        driver = query.start()
        with pytest.raises(FrameRefused, match=f"has the columns {', '.join(frame)}, and the frame had id, name"):
            driver.run(0)
        driver.close()
    assert database.rows(f"SELECT * FROM {table}") == []
    assert database.leftovers() == NOTHING


def not_utf8(values: list[bytes | None]) -> pa.Array:
    """A string array of bytes that nobody has looked at, as Spark's CAST(value AS STRING) makes it."""
    raw = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


@pytest.mark.parametrize("mechanism", ["staged", "prepared"])
def test_text_that_is_no_utf8_comes_back(database: Database, mechanism: str) -> None:
    """The rows next to it are written; the bytes themselves come back unchanged with the row."""
    table = database.table("n int PRIMARY KEY, v text")
    values = not_utf8([b"good", b"bad \xff", None, b"\xed\xa0\x80"])
    (rejection,) = written(database, table, "string", values, mechanism=mechanism)
    assert sorted(database.rows(f"SELECT n, v FROM {table}")) == [(0, "good"), (2, None)]
    assert rejection.reasons == tuple(f"the row with n={n}: column 'v' (text) takes UTF-8 only" for n in (1, 3))
    assert rejection.rows.column("v").cast(pa.binary()).to_pylist() == [b"bad \xff", b"\xed\xa0\x80"]
