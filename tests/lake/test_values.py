"""Every value that a table of a lakehouse holds comes back as it was, lies in the partition that its format
says, and is found by partitions and statistics. What no column holds is refused.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import EqualTo
from pyiceberg.io.pyarrow import schema_to_pyarrow

from exactum.errors import FrameRefused
from exactum.lake.types import arrow_type, spark_type
from tests.kit.errors import raised
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import Delta
from tests.kit.lake.values import CONTEXT, KINDS, Kinds, asked_of, batch_of, rows_of
from tests.kit.opened_sink import OpenedSink

EXACT: Kinds = {
    kind: values
    for kind, values in KINDS.items()
    if "smallint" not in kind and "tinyint" not in kind
}
PARTED: Kinds = {
    kind: values for kind, values in EXACT.items() if kind.partition("<")[0] not in
    ("array", "map", "struct", "float", "double")
}  # fmt: skip
TRANSFORMS: dict[str, tuple[str, ...]] = {
    "bucket(7, {})": (
        "int", "bigint", "string", "binary", "date", "timestamp", "timestamp_ntz", "decimal(9,2)",
    ),
    "truncate(3, {})": ("int", "bigint", "string", "binary", "decimal(9,2)"),
    "years({})": ("date", "timestamp", "timestamp_ntz"),
    "month({})": ("date", "timestamp", "timestamp_ntz"),
    "day({})": ("date", "timestamp", "timestamp_ntz"),
    "hour({})": ("timestamp", "timestamp_ntz"),
    "{}": tuple(PARTED),
}  # fmt: skip


@pytest.fixture(scope="module")
def lake() -> Iterator[Lake]:
    with tempfile.TemporaryDirectory() as name:
        made = Lake(Path(name))
        yield made
        made.close()


def columns_of(batch: pa.RecordBatch, kinds: Kinds) -> tuple[tuple[str, str], ...]:
    return tuple(zip(batch.schema.names, kinds, strict=True))


def written(lake: Lake, batch: pa.RecordBatch, kinds: Kinds, **more: Any) -> None:
    """To a new table: each row in a file of its own."""
    with contextlib.suppress(NoSuchTableError):
        lake.catalog.purge_table(TABLE)
    query = OpenedSink(lake.sink(**more), columns_of(batch, kinds))
    query.write(*(batch.slice(n, 1) for n in range(batch.num_rows)))
    reasons = [reason for each in query.rejections for reason in each.reasons]
    assert all("has no truncation" in reason for reason in reasons)


@pytest.fixture(scope="module")
def delta() -> Iterator[Delta]:
    with tempfile.TemporaryDirectory() as name:
        yield Delta(Path(name))


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=rows_of(KINDS))
def test_every_value_comes_back_from_delta_and_is_found(
    rows: list[tuple[Any, ...]], delta: Delta
) -> None:
    """Also where only the statistics tell a reader which file to open: each row has one of its
    own.
    """
    shutil.rmtree(delta.path, ignore_errors=True)
    batch = batch_of(rows, KINDS)
    query = OpenedSink(delta.sink(), columns_of(batch, KINDS))
    query.write(*(batch.slice(n, 1) for n in range(batch.num_rows)))
    assert not query.rejections
    assert sorted(map(repr, delta.read().to_pylist())) == sorted(map(repr, batch.to_pylist()))
    asked = asked_of(batch, KINDS)
    if asked:
        wanted = [sum(one == v[0] for one in batch.column(c)) for c, v in asked.items()]
        assert delta.found(pa.record_batch(asked)) == wanted


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=rows_of(EXACT))
def test_every_value_comes_back_from_iceberg_and_is_found(
    rows: list[tuple[Any, ...]], lake: Lake
) -> None:
    """Also where only the statistics tell a reader which file to open."""
    batch = batch_of(rows, EXACT)
    written(lake, batch, EXACT)
    assert sorted(map(repr, lake.read().to_pylist())) == sorted(map(repr, batch.to_pylist()))
    for name, value in asked_of(batch, EXACT).items():
        wanted = sum(one == value[0] for one in batch.column(name))
        asked = value[0].as_py()
        if pa.types.is_float32(value.type) and math.isinf(asked):
            continue  # above what pyiceberg takes for a float (literals.py): it asks no file
        assert lake.read(row_filter=EqualTo(name, asked)).num_rows == wanted


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=rows_of(PARTED))
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_partition_is_icebergs(
    transform: str, rows: list[tuple[Any, ...]], lake: Lake
) -> None:
    """As pyiceberg's own transforms have it, and found by them."""
    names = {kind: f"c{n}" for n, kind in enumerate(PARTED)}
    by = [transform.format(names[kind]) for kind in TRANSFORMS[transform]]
    batch = batch_of(rows, PARTED)
    written(lake, batch, PARTED, partition_by=by)
    table = lake.table
    assert len(table.spec().fields) == len(by)
    for task in table.scan().plan_files():
        (row,) = pq.read_table(task.file.file_path.removeprefix("file://")).to_pylist()
        for position, field in enumerate(table.spec().fields):
            source = table.schema().find_field(field.source_id)
            own = field.transform.transform(source.field_type)(_plain(row[source.name], source))
            assert task.file.partition[position] == own, (str(field), row[source.name])
    there = lake.read()
    for name, value in asked_of(batch, PARTED).items():
        wanted = there[name].to_pylist().count(value[0].as_py())
        assert lake.read(row_filter=EqualTo(name, value[0].as_py())).num_rows == wanted


def _plain(value: Any, source: Any) -> Any:
    """Days and microseconds, as Iceberg counts."""
    kind = schema_to_pyarrow(source.field_type)
    is_time = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    return pa.scalar(value, kind).value if is_time and value is not None else value


@pytest.mark.parametrize(
    ("kind", "lowest", "by"),
    [
        ("int", -(2**31), "truncate(7, v)"),
        ("bigint", -(2**63), "truncate(1000, v)"),
        ("decimal(9,2)", Decimal("-9999999.99"), "truncate(7, v)"),
        ("decimal(38,38)", Decimal("-0." + "9" * 38), "truncate(7, v)"),
    ],
)
def test_the_ends_of_numbers_have_no_truncation(
    kind: str, lowest: Any, by: str, lake: Lake
) -> None:
    """They are put aside, and the next number that has one is not; the highest has one."""
    width, exponent = int(by[9:-4]), Decimal(lowest).as_tuple().exponent
    digits = int(Decimal(lowest).scaleb(-int(exponent), CONTEXT))
    first = -(-digits // width) * width
    numbers = [digits, first - 1, first, -digits - 1]
    exact = [Decimal(n).scaleb(int(exponent), CONTEXT) for n in numbers]
    values = [type(lowest)(number) for number in exact]
    batch = pa.record_batch({"v": pa.array(values, arrow_type(kind))})
    with contextlib.suppress(NoSuchTableError):
        lake.catalog.purge_table(TABLE)
    query = OpenedSink(lake.sink(partition_by=by), [("v", kind)])
    query.write(batch)
    assert sorted(lake.read()["v"].to_pylist()) == sorted(values[2:])
    assert sum(len(each.reasons) for each in query.rejections) == 2


def test_years_that_python_does_not_know_in_delta(tmp_path: Path) -> None:
    """They are written; without a bound in the statistics, which have no text for them."""
    delta = Delta(tmp_path / "lake")
    batch = pa.record_batch(
        {
            "d": pa.array([-800_000, 3_000_000], pa.int32()).view(pa.date32()),
            "t": pa.array([-(2**62), 2**62], pa.int64()).view(pa.timestamp("us", tz="UTC")),
        }
    )
    OpenedSink(delta.sink(), [("d", "date"), ("t", "timestamp")]).write(batch)
    there = delta.read()
    assert there["d"].combine_chunks().view(pa.int32()).to_pylist() == [-800_000, 3_000_000]
    assert there["t"].combine_chunks().view(pa.int64()).to_pylist() == [-(2**62), 2**62]


def test_years_that_python_does_not_know_in_iceberg(lake: Lake) -> None:
    """A column has them. A partition has not, but by bucket: pyiceberg could not commit it."""
    days = pa.array([-800_000, -1, 0, 3_000_000], pa.int32()).view(pa.date32())
    times = pa.array([-(2**62), -1, 0, 2**62], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"d": days, "t": times})
    columns = (("d", "date"), ("t", "timestamp"))
    for by, kept in ((["bucket(3, d)"], 4), (["month(d)"], 2), (["hour(t)"], 2), (["d", "t"], 2)):
        with contextlib.suppress(NoSuchTableError):
            lake.catalog.purge_table(TABLE)
        query = OpenedSink(lake.sink(partition_by=by), columns)
        query.write(batch)
        there = lake.read().sort_by("d")
        own = batch.slice(0 if kept == 4 else 1, kept)
        for name, kind in (("d", pa.int32()), ("t", pa.int64())):
            values = there[name].combine_chunks().view(kind).to_pylist()
            assert values == own.column(name).view(kind).to_pylist()
        assert sum(len(each.reasons) for each in query.rejections) == 4 - kept
    found = [task.file.partition for task in lake.table.scan().plan_files()]
    assert sorted((one[0], one[1]) for one in found) == [(-1, -1), (0, 0)]


def test_a_text_that_is_no_utf8_is_put_aside(place: Delta | Lake) -> None:
    bad = pa.StringArray.from_buffers(
        2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")
    )
    query = OpenedSink(place.sink(), [("v", "string")])
    query.write(pa.record_batch({"v": bad}))
    assert "UTF-8" in query.rejections[0].reasons[0]
    assert place.read()["v"].to_pylist() == ["a"]


def test_types_have_one_text() -> None:
    for kind in (*KINDS, "map<int,array<struct<x:date,y:map<string,binary>>>>"):
        assert spark_type(arrow_type(kind)) == kind


NOT_HELD = (
    pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ns"), pa.timestamp("ns", tz="UTC"),
    pa.timestamp("ms"), pa.date64(), pa.time64("us"), pa.duration("us"), pa.decimal256(40, 2),
    pa.decimal128(3, 5), pa.decimal128(3, -2), pa.binary(4), pa.null(), pa.uuid(),
    pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.uint16()), pa.struct([]),
    pa.struct([("a", pa.timestamp("ns"))]), pa.map_(pa.string(), pa.uint8()), pa.int8(),
    pa.int32(), pa.list_(pa.int64()),
)  # fmt: skip


def test_types_that_the_column_does_not_hold(place: Delta | Lake) -> None:
    """In a task, whatever the frame has said: nothing is rounded, and nothing written."""
    place.create(pa.schema([("v", pa.int64())]))
    query = OpenedSink(place.sink())
    for kind in NOT_HELD:
        with raised(FrameRefused, "LAKE_COLUMNS"):
            query.prepare(pa.record_batch({"v": pa.nulls(1, kind)}))
    assert not list(place.data.glob("*.parquet"))


NO_COLUMN = (
    "void", "variant", "interval day to second", "interval year to month", "time(6)",
    "geometry(4326)", "struct<>", "decimal(39,2)", "decimal(3,5)", "char(3)",
    "string collate UNICODE", "array<void>", "struct<a:variant>", "array<int", "map<int>",
    "struct<a>", "int>",
)  # fmt: skip


def test_types_of_a_frame_that_no_column_holds(place: Delta | Lake) -> None:
    for kind in NO_COLUMN:
        with pytest.raises(FrameRefused):
            OpenedSink(place.sink(), [("id", "bigint"), ("v", kind)])
        assert not place.exists(), kind


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.binary(4), pa.uuid()])
def test_columns_of_a_table_that_no_frame_has(kind: pa.DataType, tmp_path: Path) -> None:
    """They stay null; and Spark's text does not go into them."""
    lake = Lake(tmp_path / "lake")
    lake.create(pa.schema([("id", pa.int64()), ("v", kind)]))
    OpenedSink(lake.sink(), [("id", "bigint")]).write(pa.record_batch({"id": [1]}))
    assert lake.read().to_pylist() == [{"id": 1, "v": None}]
    with pytest.raises(FrameRefused):
        OpenedSink(lake.sink(), [("id", "bigint"), ("v", "binary")])
