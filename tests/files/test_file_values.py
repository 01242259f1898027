"""Odd but legal values in files: each is read back as it was, or its row is put aside before
anything is decided.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow import dataset

from exactum.errors import FrameRefused, SettingRefused
from exactum.files.sink import FileSink
from exactum.protocol.sink import Rejection
from tests.kit.errors import raised
from tests.kit.files.epochs_in_files import duck, ids_in, visible
from tests.kit.opened_sink import OpenedSink

BAD = pa.array([b"good", b"\xff", b"bad \xc3", None, b"\xed\xa0\x80", b"end"]).view(pa.string())
"""As Spark's CAST(value AS STRING) hands Kafka's bytes over: it does not look at them."""


def written(sink: FileSink, batch: pa.RecordBatch) -> Rejection | None:
    """One task's rows, decided and published."""
    opened = OpenedSink(sink)
    opened.write(batch)
    return opened.rejections[0] if opened.rejections else None


def lines(table: Path) -> list[str]:
    (name,) = visible(table)
    return (table / name).read_text().splitlines()


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_bytes_that_are_no_text_beside_nulls_that_hide_some(tmp_path: Path, format_: str) -> None:
    """The row that is put aside is the one that has them, also where a list that is null hides
    elements: a Python function can make it.
    """
    texts = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4, 5, 6], pa.int32()),
        pa.array([b"a", b"hidden", b"hidden", b"b", b"\xff", b"c"]).view(pa.string()),
        mask=pa.array([False, True, False, False, False]),
    )
    batch = pa.record_batch({"id": pa.array(range(5)), "texts": texts})
    rejection = written(FileSink(tmp_path, format=format_), batch)
    assert rejection is not None
    assert rejection.rows.column("id").to_pylist() == [3]
    assert duck(tmp_path, "id, texts", format_) == [(0, ["a"]), (1, None), (2, ["b"]), (4, ["c"])]


def test_csv_has_an_instant_in_utc(tmp_path: Path) -> None:
    """Whatever the session's zone, whose offset once had seconds; the last second of New York's
    9999 too.
    """
    micros = [-2_717_668_562_000_001, 253_402_318_799_000_000, 253_402_346_000_000_000]
    batch = pa.record_batch(
        {"id": [0, 1, 2], "t": pa.array(micros).view(pa.timestamp("us", "America/New_York"))}
    )
    rejection = written(FileSink(tmp_path, format="csv", options={"header": False}), batch)
    assert lines(tmp_path) == [
        "0,1883-11-18T12:03:57.999999Z",
        "1,9999-12-31T16:59:59.000000-12:00",
    ]
    assert rejection is not None
    assert rejection.reasons == (
        "column 't' is outside the years 1 to 9999, for which readers of csv have no text, "
        "the row has +10000-01-01 12:33:20.000000+00:00",
    )


@pytest.mark.parametrize("zone", ["GMT+2", "UTC+05:30", "PST", "Europe/Berlin", "UTC"])
def test_parquet_has_instants_that_pandas_reads_in_utc(tmp_path: Path, zone: str) -> None:
    """Python does not know every name that Spark's session may have for its time zone."""
    kind = pa.timestamp("us", zone)
    nested = pa.array([{"at": [1]}], pa.struct({"at": pa.list_(kind)}))
    written(FileSink(tmp_path), pa.record_batch({"at": pa.array([1], kind), "nested": nested}))
    read = pq.read_table(tmp_path)
    assert read.to_pandas()["at"].tolist() == [pd.Timestamp(1, unit="us", tz="UTC")]
    assert read.to_pylist()[0]["nested"]["at"] == [pd.Timestamp(1, unit="us", tz="UTC")]


def test_csv_spells_what_is_no_number_as_spark_does(tmp_path: Path) -> None:
    """NaN and the infinities; DuckDB and Python read them as well."""
    values = [float("nan"), float("inf"), float("-inf"), -0.0, 5.0, 1e300, None]
    batch = pa.record_batch(
        {
            "id": range(7),
            "d": pa.array(values),
            "f": pa.array([*values[:5], 0.1, None], pa.float32()),
        }
    )
    assert written(FileSink(tmp_path, format="csv"), batch) is None
    rows = list(csv.reader(lines(tmp_path)))
    assert [r[1] for r in rows[1:]] == ["NaN", "Infinity", "-Infinity", "-0.0", "5.0", "1e+300", ""]
    assert [r[2] for r in rows[1:]] == ["NaN", "Infinity", "-Infinity", "-0.0", "5.0", "0.1", ""]
    assert repr(duck(tmp_path, "d", "csv")) == repr([(v,) for v in values])


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_csv_of_one_column_refuses_null(tmp_path: Path, partition_by: str | None) -> None:
    """Its line would be empty, and readers skip empty lines. The empty text is quoted, and
    stands.
    """
    columns: dict[str, Any] = {"text": ["a", None, ""]} | (
        {"day": ["1"] * 3} if partition_by else {}
    )
    rejection = written(
        FileSink(tmp_path, format="csv", partition_by=partition_by), pa.record_batch(columns)
    )
    assert rejection is not None
    assert rejection.reasons == (
        "column 'text' is null, and readers of CSV skip the empty line of a file with one column",
    )
    assert lines(tmp_path) == ['"text"', '"a"', '""']


@pytest.mark.parametrize(
    "delimiter", [".", "-", " ", "+", ":", "e", "7", "\\", "\0", "\x7f", "ä", "", '"', ";;"]
)
def test_a_delimiter_that_numbers_and_times_are_made_of_is_refused(delimiter: str) -> None:
    """Fields would run together."""
    with raised(SettingRefused, "FILES_ARGUMENT", f"delimiter={delimiter!r}", "ASCII"):
        FileSink("/tmp/x", format="csv", options={"delimiter": delimiter})


@pytest.mark.parametrize("delimiter", list(",;|\t\x01/_'#^~!$&()<>=?@[]{}`%*"))
def test_any_other_delimiter_divides(tmp_path: Path, delimiter: str) -> None:
    """Numbers, dates, texts with the delimiter and nulls come apart again."""
    batch = pa.record_batch(
        {
            "n": pa.array([-1.5e-300, None]),
            "t": pa.array([0, -1]).view(pa.timestamp("us", "UTC")),
            "x": pa.array([f'{delimiter}"{delimiter}', None]),
        }
    )
    assert (
        written(FileSink(tmp_path, format="csv", options={"delimiter": delimiter}), batch) is None
    )
    (name,) = visible(tmp_path)
    with (tmp_path / name).open(newline="") as file:
        found = list(csv.reader(file, delimiter=delimiter, strict=True))
    assert found == [
        ["n", "t", "x"],
        ["-1.5e-300", "1970-01-01T00:00:00.000000Z", f'{delimiter}"{delimiter}'],
        ["", "1969-12-31T23:59:59.999999Z", ""],
    ]


def test_a_long_name_of_a_partition_column_is_found_before_the_decision(tmp_path: Path) -> None:
    """What makes a folder's name too long is put aside; a name that leaves no room is refused
    with the frame.
    """
    column = "p" * 250
    numbers = [7, -5, 12345, 123456, None]
    batch = pa.record_batch(
        {"id": pa.array(range(5), pa.int64()), column: pa.array(numbers, pa.int64())}
    )
    rejection = written(FileSink(tmp_path, partition_by=column), batch)
    assert rejection is not None
    assert rejection.rows.column("id").to_pylist() == [2, 3, 4]
    assert "is longer than 255 bytes" in rejection.reasons[0]
    assert ids_in(tmp_path) == [0, 1]
    with raised(FrameRefused, "FILES_COLUMNS", repr("p" * 60), "255 bytes"):
        FileSink(tmp_path, partition_by="p" * 254).check_columns(
            [("id", "int"), ("p" * 254, "int")]
        )


def test_a_long_path_is_found_before_the_decision(tmp_path: Path) -> None:
    """A folder of several levels is put aside; a place that leaves no room is refused at start."""
    levels = {name: ["x" * 20, "x" * 200] for name in "abc"}
    batch = pa.record_batch({"id": pa.array([0, 1], pa.int64()), **levels})
    rejection = written(FileSink(tmp_path, partition_by=list(levels)), batch)
    assert rejection is not None
    assert rejection.rows.column("id").to_pylist() == [1]
    assert "longer than 512 bytes" in rejection.reasons[0]
    assert ids_in(tmp_path) == [0]
    with raised(SettingRefused, "FILES_PATH_LONG", "over 400 bytes"):
        OpenedSink(FileSink(tmp_path / ("d" * 200) / ("e" * 200)))


def test_structs_whose_fields_readers_mix_up_are_refused(tmp_path: Path) -> None:
    """Two fields of one name, at any depth."""
    inner = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "A"])
    batch = pa.record_batch(
        {"id": [0], "s": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), inner)}
    )
    with raised(FrameRefused, "FILES_COLUMNS", "'s'", "structs", "'a'"):
        written(FileSink(tmp_path), batch)
    with raised(FrameRefused, "FILES_TYPE", "'s'", "struct<x:struct<>>"):
        FileSink(tmp_path).check_columns([("id", "int"), ("s", "struct<x:struct<>>")])


def test_good_rows_stand_beside_bad_ones_of_a_later_batch(tmp_path: Path) -> None:
    """Each batch is looked at on its own, also one that is part of a larger one."""
    opened = OpenedSink(FileSink(tmp_path))
    task = opened.writer()
    batch = pa.record_batch({"id": pa.array(range(6), pa.int64()), "text": BAD})
    assert task.write(batch.slice(3, 1)) is None
    assert task.write(batch.slice(5, 1)) is None
    assert task.write(batch.slice(4, 2)).rows.column("id").to_pylist() == [4]
    prepared = [task.prepare()]
    opened.commit(opened.permit(prepared))
    assert [i for (i,) in duck(tmp_path, "id")] == [3, 5, 5]


def test_rows_with_nan_are_found_by_a_filter(tmp_path: Path) -> None:
    """Readers skip what a file's statistics exclude, and Arrow's are without NaN."""
    nan = float("nan")
    columns = (("x", "double"), ("s", "struct<x:double,id:bigint>"), ("id", "bigint"))
    rows = [{"x": x, "s": {"x": x, "id": n}, "id": n} for n, x in enumerate((1.0, 1.0, nan))]
    kinds = {"x": pa.float64(), "s": pa.struct({"x": pa.float64(), "id": pa.int64()})}
    schema = pa.schema([*kinds.items(), ("id", pa.int64())])
    OpenedSink(FileSink(tmp_path), columns).write(pa.RecordBatch.from_pylist(rows, schema))
    (file,) = tmp_path.glob("*.parquet")
    table = dataset.dataset([str(file)])
    for x in (pc.field("x"), pc.field("s", "x")):
        for found in (x != 1.0, pc.is_nan(x), ~(x <= 1.0)):
            assert table.to_table(filter=found)["id"].to_pylist() == [2]
    group = pq.ParquetFile(file).metadata.row_group(0)
    counted = [group.column(n).path_in_schema for n in range(4) if group.column(n).is_stats_set]
    assert counted == ["s.id", "id"]
