"""Every value that a Delta table holds comes back as it was, is found by the statistics of its file,
and what no column holds is refused.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from exactum.errors import FrameRefused
from exactum.lake.delta import DeltaSink
from exactum.lake.types import arrow_type, spark_type
from tests.kit.lake.tables import Query, found, new_table, read
from tests.kit.lake.values import KINDS, asked_of, batch_of, rows_of


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=rows_of(KINDS))
def test_every_value_comes_back_and_is_found(rows: list[tuple[Any, ...]], folder: Path) -> None:
    """Also where only the statistics tell a reader which file to open: each row has one of its
    own.
    """
    table = folder / "t"
    shutil.rmtree(table, ignore_errors=True)
    batch = batch_of(rows, KINDS)
    query = Query(DeltaSink(table), tuple(zip(batch.schema.names, KINDS, strict=True)))
    query.write(0, *(batch.slice(n, 1) for n in range(batch.num_rows)))
    assert not query.rejected
    there = read(table).to_pylist()
    assert sorted(map(repr, there)) == sorted(map(repr, batch.to_pylist()))
    asked = asked_of(batch, KINDS)
    if asked:
        wanted = [sum(one == v[0] for one in batch.column(c)) for c, v in asked.items()]
        assert found(table, pa.record_batch(asked)) == wanted


def test_an_upsert_holds_the_same(table: Path) -> None:
    """All that delta-rs rewrites comes back as it was."""
    low, high = date(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    rows = [
        (True, -128, -32768, -(2**31), -(2**63), 0.1, 1e308, "\U00068abf", b"\x00", low,
         high.replace(tzinfo=timezone.utc), high, Decimal("-9999999.99"),
         Decimal("9999999999999999999999999999.9999999999"), Decimal("-1E-38"),
         [1, None], {"k": None, "ä": -0.0}, {"a": None, "b": ["x", ""]}),
        (None, 1, *([None] * (len(KINDS) - 2))),
    ]  # fmt: skip
    batch = batch_of(rows, KINDS)
    columns = tuple(zip(batch.schema.names, KINDS, strict=True))
    query = Query(DeltaSink(table, mode="upsert", key="c1"), columns)
    for batch_id in range(2):  # inserted, then replaced
        query.write(batch_id, batch)
    there = read(table).to_pylist()
    assert sorted(map(repr, there)) == sorted(map(repr, batch.to_pylist()))


@pytest.mark.parametrize(
    "kind",
    [
        pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC"),
        pa.timestamp("ms"), pa.date64(), pa.time64("us"), pa.duration("us"), pa.decimal256(40, 2),
        pa.decimal128(3, 5), pa.decimal128(3, -2), pa.binary(4), pa.null(),
        pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.uint16()), pa.struct([]),
        pa.struct([("a", pa.timestamp("ns"))]), pa.map_(pa.string(), pa.uint8()),
    ],
)  # fmt: skip
def test_types_that_no_column_holds(kind: pa.DataType, table: Path) -> None:
    """In a task, whatever the frame has said: nothing is rounded, and nothing written."""
    new_table(table, pa.schema([("v", pa.int64())]))
    query = Query(DeltaSink(table))
    with pytest.raises(FrameRefused) as refused:
        query.prepare(0, pa.record_batch({"v": pa.nulls(1, kind)}))
    assert refused.value.code == "LAKE_COLUMNS"


@pytest.mark.parametrize(
    "kind",
    [
        "void", "variant", "interval day to second", "interval year to month", "time(6)",
        "geometry(4326)", "struct<>", "decimal(39,2)", "decimal(3,5)", "char(3)",
        "string collate UNICODE", "array<void>", "struct<a:variant>", "array<int", "map<int>",
        "struct<a>", "int>",
    ],
)  # fmt: skip
def test_types_of_a_frame_that_no_column_holds(kind: str, table: Path) -> None:
    with pytest.raises(FrameRefused):
        Query(DeltaSink(table), [("id", "bigint"), ("v", kind)])
    assert not table.exists()


@pytest.mark.parametrize("kind", [*KINDS, "map<int,array<struct<x:date,y:map<string,binary>>>>"])
def test_types_have_one_text(kind: str) -> None:
    assert spark_type(arrow_type(kind)) == kind


def test_a_text_that_is_no_utf8_is_put_aside(table: Path) -> None:
    bad = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    )
    query = Query(DeltaSink(table), [("v", "string")])
    query.write(0, pa.record_batch({"v": bad}))
    assert "UTF-8" in query.rejected[0].reasons[0]
    assert read(table)["v"].to_pylist() == ["a"]


def test_years_that_python_does_not_know(table: Path) -> None:
    """They are written; without a bound in the statistics, which have no text for them."""
    batch = pa.record_batch(
        {
            "d": pa.array([-800_000, 3_000_000], pa.int32()).view(pa.date32()),
            "t": pa.array([-(2**62), 2**62], pa.int64()).view(pa.timestamp("us", tz="UTC")),
        }
    )
    Query(DeltaSink(table), [("d", "date"), ("t", "timestamp")]).write(0, batch)
    there = read(table)
    assert there["d"].combine_chunks().view(pa.int32()).to_pylist() == [-800_000, 3_000_000]
    assert there["t"].combine_chunks().view(pa.int64()).to_pylist() == [-(2**62), 2**62]
