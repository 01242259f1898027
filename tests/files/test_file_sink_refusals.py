"""What the file sink does not take, said before anything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from exactum.errors import (
    FrameRefused,
    InvariantBroken,
    SettingRefused,
)
from exactum.files.sink import FileSink
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Sink
from tests.kit.errors import raised
from tests.kit.files.epochs_in_files import expected, ids_in, rows
from tests.kit.opened_sink import OpenedSink


@pytest.mark.parametrize(
    ("arguments", "code", "facts"),
    [
        ({"path": ""}, "FILES_PATH", ["FileSink('')", "path"]),
        ({"path": "a\0b"}, "FILES_PATH", [r"FileSink('a\x00b')", "path"]),
        ({"format": "orc"}, "FILES_ARGUMENT", ["format='orc'", "parquet, json, csv"]),
        ({"options": {"header": True}}, "FILES_ARGUMENT", ["'header'", "compression_level"]),
        ({"format": "csv", "options": {"header": "yes"}}, "FILES_ARGUMENT", ["header='yes'"]),
        (
            {"options": {"compression": "lzma"}},
            *("FILES_ARGUMENT", ["compression='lzma'", "parquet", "snappy"]),
        ),
        (
            {"format": "json", "options": {"compression": "snappy"}},
            *("FILES_ARGUMENT", ["compression='snappy'", "gzip, none"]),
        ),
        (
            {"options": {"compression_level": "9"}},
            *("FILES_ARGUMENT", [" compression_level='9'", "number"]),
        ),
        ({"options": {"compression_level": 3}}, "FILES_ARGUMENT", ["'snappy'", "_level=3 ("]),
        (
            {"options": {"compression": None, "compression_level": 3}},
            *("FILES_ARGUMENT", ["'none'", "_level=3 ("]),
        ),
        (
            {"options": {"compression": "gzip", "compression_level": 12}},
            *("FILES_ARGUMENT", ["'gzip'", "_level=12 ("]),
        ),
        (
            {"options": {"compression": "zstd", "compression_level": 2**40}},
            *("FILES_ARGUMENT", ["'zstd'", f"_level={2**40} ("]),
        ),
        ({"bytes_per_file_max": None}, "FILES_ARGUMENT", ["bytes_per_file_max=None", 0]),
        ({"bytes_per_file_max": -1}, "FILES_ARGUMENT", ["bytes_per_file_max=-1", 0]),
        ({"bytes_per_file_max": True}, "FILES_ARGUMENT", ["bytes_per_file_max=True", 0]),
        ({"partition_by": ["day", "Day"]}, "FILES_ARGUMENT", ["=['day', 'Day']", "twice"]),
        ({"partition_by": [""]}, "FILES_ARGUMENT", ["partition_by=['']", "columns"]),
        ({"partition_by": ["_day"]}, "FILES_ARGUMENT", ["'_day'", "'_'"]),
        ({"partition_by": ".day"}, "FILES_ARGUMENT", ["'.day'", "'.'"]),
        ({"path": "hdfs:///x"}, "FILES_PATH", [" hdfs: ", "(s3, gs, az)"]),
        ({"path": "dbfs:/x"}, "FILES_PATH", [" dbfs: ", "(s3, gs, az)"]),
        ({"path": "file://lake/out"}, "FILES_PATH", ["'lake'", "file:///lake/out"]),
        ({"path": "file:///lake/out#1"}, "FILES_PATH", ["'file:///lake/out'", "%23 for #"]),
        ({"path": "file:///lake/out?"}, "FILES_PATH", ["'file:///lake/out'", "%3F for ?"]),
        ({"path": "s3://bucket/out#1"}, "FILES_PATH", ["'s3://bucket/out'", "%23 for #"]),
        ({"path": "s3:bucket/out"}, "FILES_PATH", ["'s3:bucket/out'", "s3://bucket/prefix", "~"]),
        ({"path": "file:lake"}, "FILES_PATH", ["'file:lake'", "file:/lake", "~"]),
        ({"path": "s3://"}, "FILES_PATH", ["'s3://'", "s3://bucket/prefix."]),
        ({"path": "gs:///out"}, "FILES_PATH", ["'gs:///out'", "s3://bucket/prefix."]),
        ({"path": "~/lake"}, "FILES_PATH", ["'~/lake'", "~"]),
    ],
)
def test_settings_that_cannot_be(arguments: dict[str, Any], code: str, facts: list[object]) -> None:
    """Each with one clear message, when the sink is made."""
    with raised(SettingRefused, code, *facts):
        FileSink(**{"path": "/tmp/x", **arguments})


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_fields_that_are_called_as_types_are(format_: str) -> None:
    """They are no types. (Which type goes into which format: tests/abuse.)"""
    for kind in ("struct<a:int,interval:string>", "array<struct<variant:bigint,void:int>>"):
        FileSink("/tmp/x", format=format_).check_columns([("c", kind)])


@pytest.mark.parametrize(
    ("columns", "partition_by", "code", "facts"),
    [
        ([("id", "int"), ("ID", "int")], [], "FILES_COLUMNS", ["'id'", "'ID'"]),
        ([("id", "int"), ("id", "int")], [], "FILES_COLUMNS", ["'id'", "'id'"]),
        ([("id", "int")], ["day"], "FILES_COLUMNS", ["partition_by", "'day'", "'id'"]),
        ([("day", "string"), ("hour", "int")], ["hour", "day"], "FILES_COLUMNS", ["all columns"]),
        ([("id", "int"), ("x", "double")], ["x"], "FILES_COLUMNS", ["'x'", "type double"]),
        ([("id", "int"), ("x", "array<void>")], [], "FILES_TYPE", ["'x'", "type array<void>"]),
        (
            [("id", "int"), ("x", "interval day to second")],
            *(["x"], "FILES_COLUMNS", ["partition column 'x'", "interval day to second"]),
        ),
        (
            [("id", "int"), ("x", "struct<a:int>")],
            *(["x"], "FILES_COLUMNS", ["partition column 'x'", "struct<a:int>"]),
        ),
        (
            [("id", "int"), ("x", "binary")],
            *(["x"], "FILES_COLUMNS", ["partition column 'x'", "binary"]),
        ),
        (
            [("id", "int"), ("x", "timestamp")],
            *(["x"], "FILES_COLUMNS", ["'x'", "timestamp;", "to_date"]),
        ),
        (
            [("id", "int"), ("x", "timestamp_ntz")],
            *(["x"], "FILES_COLUMNS", ["'x'", "timestamp_ntz;", "to_date"]),
        ),
    ],
)
def test_frames_that_cannot_be(
    columns: list[tuple[str, str]], partition_by: list[str], code: str, facts: list[str]
) -> None:
    """Before anything is written."""
    with raised(FrameRefused, code, *facts):
        FileSink("/tmp/x", partition_by=partition_by).check_columns(columns)


def test_partition_columns_of_csv_may_be_anything_that_names_a_folder() -> None:
    """They do not go into the file."""
    FileSink("/tmp/x", format="csv", partition_by="day").check_columns(
        [("id", "int"), ("day", "date")]
    )


def test_dead_letters_fit_parquet_and_json_and_not_csv() -> None:
    """Original bytes are binary."""
    for format_ in ("parquet", "json"):
        sink: Sink = FileSink("/tmp/x", format=format_)
        assert sink.dead_letter_columns == DEAD_LETTER_COLUMNS
        sink.check_columns(sink.dead_letter_columns)
    with raised(FrameRefused, "FILES_TYPE", "binary", "CSV"):
        FileSink("/tmp/x", format="csv").check_columns(DEAD_LETTER_COLUMNS)


def test_paths_are_made_absolute_on_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have a working directory of their own; file: URLs and spaces in them are
    understood.
    """
    monkeypatch.chdir(tmp_path)
    assert FileSink("out").name == f"files:{tmp_path}/out"
    assert FileSink(f"file://{tmp_path}/a%20b").name == f"files:{tmp_path}/a b"
    assert FileSink("file:/tmp/x", name="mine").name == "mine"
    assert FileSink("file://localhost/tmp/x%23%3F").name == "files:/tmp/x#?"
    assert FileSink("./~x").name == f"files:{tmp_path}/~x"
    assert repr(FileSink("/tmp/x", format="csv")) == "FileSink('/tmp/x', format='csv')"


def test_credentials_in_a_url_are_never_shown() -> None:
    """Not in the name that goes into every decision record, nor in what is printed."""
    sink = FileSink("s3://key:secret@bucket/x")
    assert sink.name == "files:s3://bucket/x"
    assert "secret" not in repr(sink)
    with raised(SettingRefused, "FILES_PATH", "'s3://bucket/x'", "%3F", "store=") as caught:
        FileSink("s3://key:secret@bucket/x?token=secret#secret")
    assert "secret" not in str(caught.value)


def test_a_record_of_another_kind_of_sink_is_not_guessed_at(tmp_path: Path) -> None:
    """The name was given to a file sink, and the epoch to finish is of something else."""
    opened = OpenedSink(FileSink(tmp_path))
    foreign = PreparedTransaction("files", "x", 1, '{"producer_id": 1}')
    with raised(InvariantBroken, "'files'", "ValueError"):
        opened.commit(opened.permit([foreign]))
    [prepared] = opened.prepare(rows(0, 0))
    payload = {**json.loads(prepared.payload), "facts": {"table": ["public", "t"]}}
    of_a_table = replace(prepared, payload=json.dumps(payload))
    with raised(InvariantBroken, prepared.identity, f"'part-{prepared.identity}-0.None'"):
        opened.commit(opened.permit([of_a_table]))


@pytest.mark.parametrize("folder", ["../out", "/etc", "a/../../b", "a//b", "day=1/.."])
def test_a_record_that_leads_out_of_the_folder(tmp_path: Path, folder: str) -> None:
    """It may have been edited. No file outside of the sink's folder is written."""
    opened = OpenedSink(FileSink(tmp_path / "table"))
    [prepared] = opened.prepare(rows(0, 0))
    payload = json.loads(prepared.payload)
    (size, count, _), extension = payload["files"][0], payload["facts"]["extension"]
    for changed in (
        {"files": [[size, count, {"folder": folder}]]},
        {"facts": {"extension": f"{folder}/{extension}"}},
    ):
        edited = replace(prepared, payload=json.dumps({**payload, **changed}))
        with raised(InvariantBroken, prepared.identity, f"{folder}/"):
            opened.commit(opened.permit([edited]))
    for identity in ("../x", f"../{prepared.identity}", f"{prepared.identity}/../../x"):
        edited = replace(prepared, identity=identity)
        with raised(InvariantBroken, f" {identity} ", "ValueError"):
            opened.commit(opened.permit([edited]))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("owner", ["_spark_metadata", "_delta_log", ".hoodie"])
def test_a_folder_whose_readers_go_by_a_list_is_refused(tmp_path: Path, owner: str) -> None:
    """Spark's own streaming sink, Delta Lake and Hudi: their readers would not see our files."""
    (tmp_path / owner).mkdir()
    (tmp_path / owner / "0").touch()
    with raised(SettingRefused, "FILES_OWNED", f"'{tmp_path}'", f"'{owner}'"):
        OpenedSink(FileSink(tmp_path))
    with raised(SettingRefused, "FILES_OWNED", "'s3://bucket/x'", f"'{owner}'"):
        OpenedSink(FileSink("s3://bucket/x", store=LocalStore(tmp_path)))


def test_a_sink_that_was_pointed_elsewhere_does_not_lose_a_decided_epoch(tmp_path: Path) -> None:
    """It stops, and the message says where it was; pointed back, it goes on."""
    old, new = (OpenedSink(FileSink(tmp_path / name, name="mine")) for name in ("old", "new"))
    prepared = old.prepare(rows(0, 0))
    assert new.commit(old.permit(prepared)).expired == tuple(prepared)
    with raised(SettingRefused, "SINK_MOVED", f"{tmp_path}/new", f"{tmp_path}/old."):
        new.participant.salvage(old.permit(prepared), prepared)
    assert old.commit(old.permit(prepared)).committed == tuple(prepared)
    assert ids_in(tmp_path / "old") == expected([0])
