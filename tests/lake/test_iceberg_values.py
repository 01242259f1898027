"""Every value that an Iceberg table holds comes back as it was, lies in the partition that Iceberg
says, and is found by partitions and statistics.
"""

from __future__ import annotations

import contextlib
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
from exactum.lake.types import arrow_type
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import Query
from tests.kit.lake.values import CONTEXT, KINDS, Kinds, asked_of, batch_of, rows_of

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
        yield Lake(Path(name))


def columns_of(batch: pa.RecordBatch, kinds: Kinds) -> tuple[tuple[str, str], ...]:
    return tuple(zip(batch.schema.names, kinds, strict=True))


def written(lake: Lake, batch: pa.RecordBatch, kinds: Kinds, **more: Any) -> None:
    """To a new table: each row in a file of its own."""
    with contextlib.suppress(NoSuchTableError):
        lake.catalog.purge_table(TABLE)
    query = Query(lake.sink(**more), columns_of(batch, kinds))
    query.write(0, *(batch.slice(n, 1) for n in range(batch.num_rows)))
    reasons = [reason for each in query.rejected for reason in each.reasons]
    assert all("has no truncation" in reason for reason in reasons)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=rows_of(EXACT))
def test_every_value_comes_back_and_is_found(rows: list[tuple[Any, ...]], lake: Lake) -> None:
    """Also where only the statistics tell a reader which file to open."""
    batch = batch_of(rows, EXACT)
    written(lake, batch, EXACT)
    assert sorted(map(repr, lake.read().to_pylist())) == sorted(map(repr, batch.to_pylist()))
    for name, value in asked_of(batch, EXACT).items():
        wanted = sum(one == value[0] for one in batch.column(name))
        assert lake.read(row_filter=EqualTo(name, value[0].as_py())).num_rows == wanted


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
    query = Query(lake.sink(partition_by=by), [("v", kind)])
    query.write(0, batch)
    assert sorted(lake.read()["v"].to_pylist()) == sorted(values[2:])
    assert sum(len(each.reasons) for each in query.rejected) == 2


def test_years_that_python_does_not_know(lake: Lake) -> None:
    """A column has them. A partition has not, but by bucket: pyiceberg could not commit it."""
    days = pa.array([-800_000, -1, 0, 3_000_000], pa.int32()).view(pa.date32())
    times = pa.array([-(2**62), -1, 0, 2**62], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch({"d": days, "t": times})
    columns = (("d", "date"), ("t", "timestamp"))
    for by, kept in ((["bucket(3, d)"], 4), (["month(d)"], 2), (["hour(t)"], 2), (["d", "t"], 2)):
        with contextlib.suppress(NoSuchTableError):
            lake.catalog.purge_table(TABLE)
        query = Query(lake.sink(partition_by=by), columns)
        query.write(0, batch)
        there = lake.read().sort_by("d")
        own = batch.slice(0 if kept == 4 else 1, kept)
        for name, kind in (("d", pa.int32()), ("t", pa.int64())):
            values = there[name].combine_chunks().view(kind).to_pylist()
            assert values == own.column(name).view(kind).to_pylist()
        assert sum(len(each.reasons) for each in query.rejected) == 4 - kept
    found = [task.file.partition for task in lake.table.scan().plan_files()]
    assert sorted((one[0], one[1]) for one in found) == [(-1, -1), (0, 0)]


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.uint8(), pa.uint64(), pa.float16(), pa.timestamp("ns"), pa.timestamp("ms"),
        pa.date64(), pa.time64("us"), pa.decimal256(40, 2), pa.binary(4), pa.null(), pa.uuid(),
        pa.list_(pa.int64()), pa.int32(),
    ],
)  # fmt: skip
def test_types_that_the_column_does_not_hold(kind: pa.DataType, tmp_path: Path) -> None:
    """In a task, whatever the frame has said: nothing is rounded, and nothing written."""
    lake = Lake(tmp_path / "lake")
    lake.create(pa.schema([("v", pa.int64())]))
    query = Query(lake.sink())
    with pytest.raises(FrameRefused) as refused:
        query.prepare(0, pa.record_batch({"v": pa.nulls(1, kind)}))
    assert refused.value.code == "LAKE_COLUMNS"


@pytest.mark.parametrize(
    "kind", ["void", "variant", "time(6)", "struct<>", "decimal(39,2)", "char(3)"]
)
def test_types_of_a_frame_that_no_column_holds(kind: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    with pytest.raises(FrameRefused):
        Query(lake.sink(), [("id", "bigint"), ("v", kind)])
    assert not lake.catalog.table_exists(TABLE)


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.binary(4), pa.uuid()])
def test_columns_of_a_table_that_no_frame_has(kind: pa.DataType, tmp_path: Path) -> None:
    """They stay null; and Spark's text does not go into them."""
    lake = Lake(tmp_path / "lake")
    lake.create(pa.schema([("id", pa.int64()), ("v", kind)]))
    Query(lake.sink(), [("id", "bigint")]).write(0, pa.record_batch({"id": [1]}))
    assert lake.read().to_pylist() == [{"id": 1, "v": None}]
    with pytest.raises(FrameRefused):
        Query(lake.sink(), [("id", "bigint"), ("v", "binary")])
