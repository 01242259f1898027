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
from tests.kit.files.epochs_in_files import expected, ids_in, rows
from tests.kit.opened_sink import OpenedSink


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"path": ""}, "path must be"),
        ({"path": "a\0b"}, "path must be"),
        ({"format": "orc"}, "one of parquet, json, csv"),
        ({"options": {"header": True}}, "no option 'header'"),
        ({"format": "csv", "options": {"header": "yes"}}, "True or False"),
        ({"options": {"compression": "lzma"}}, "'lzma' is none that parquet"),
        ({"format": "json", "options": {"compression": "snappy"}}, "gzip, none"),
        ({"options": {"compression_level": "9"}}, "whole number"),
        ({"options": {"compression_level": 3}}, "'snappy' takes no compression_level=3"),
        ({"options": {"compression": None, "compression_level": 3}}, "'none' takes no"),
        ({"options": {"compression": "gzip", "compression_level": 12}}, "'gzip' takes no"),
        ({"options": {"compression": "zstd", "compression_level": 2**40}}, "'zstd' takes no"),
        ({"bytes_per_file_max": None}, "above 0"),
        ({"bytes_per_file_max": -1}, "above 0"),
        ({"bytes_per_file_max": True}, "above 0"),
        ({"partition_by": ["day", "Day"]}, "twice"),
        ({"partition_by": [""]}, "names of columns"),
        ({"partition_by": ["_day"]}, "hidden"),
        ({"partition_by": ".day"}, "hidden"),
        ({"path": "hdfs:///x"}, "Mount it"),
        ({"path": "dbfs:/x"}, "Mount it"),
        ({"path": "file://lake/out"}, "Write file:///lake/out"),
        ({"path": "file:///lake/out#1"}, "%23 for #"),
        ({"path": "file:///lake/out?"}, "%3F for"),
        ({"path": "s3://bucket/out#1"}, "%23 for #"),
        ({"path": "s3:bucket/out"}, "a slash after its colon"),
        ({"path": "file:lake"}, "a slash after its colon"),
        ({"path": "s3://"}, "no bucket"),
        ({"path": "gs:///out"}, "no bucket"),
        ({"path": "~/lake"}, "give the whole path"),
    ],
)
def test_settings_that_cannot_be(arguments: dict[str, Any], match: str) -> None:
    """Each with one clear message, when the sink is made."""
    with pytest.raises(SettingRefused, match=match):
        FileSink(**{"path": "/tmp/x", **arguments})


@pytest.mark.parametrize("format_", ["parquet", "json"])
def test_fields_that_are_called_as_types_are(format_: str) -> None:
    """They are no types. (Which type goes into which format: tests/abuse.)"""
    for kind in ("struct<a:int,interval:string>", "array<struct<variant:bigint,void:int>>"):
        FileSink("/tmp/x", format=format_).check_columns([("c", kind)])


@pytest.mark.parametrize(
    ("columns", "partition_by", "match"),
    [
        ([("id", "int"), ("ID", "int")], [], "'id' and 'ID' differ in case only"),
        ([("id", "int"), ("id", "int")], [], "'id' and 'id'"),
        ([("id", "int")], ["day"], "partition_by names the column 'day', and the frame has 'id'"),
        ([("day", "string"), ("hour", "int")], ["hour", "day"], "nothing is left"),
        ([("id", "int"), ("x", "double")], ["x"], "type double"),
        ([("id", "int"), ("x", "array<void>")], [], "'x' has the type array<void>"),
        ([("id", "int"), ("x", "interval day to second")], ["x"], "partition column 'x'"),
        ([("id", "int"), ("x", "struct<a:int>")], ["x"], "partition column 'x'"),
        ([("id", "int"), ("x", "binary")], ["x"], "partition column 'x'"),
        ([("id", "int"), ("x", "timestamp")], ["x"], "has the type timestamp;.*to_date"),
        ([("id", "int"), ("x", "timestamp_ntz")], ["x"], "has the type timestamp_ntz;.*to_date"),
    ],
)
def test_frames_that_cannot_be(
    columns: list[tuple[str, str]], partition_by: list[str], match: str
) -> None:
    """Before anything is written."""
    with pytest.raises(FrameRefused, match=match):
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
    with pytest.raises(FrameRefused, match="binary"):
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
    with pytest.raises(SettingRefused, match="settings of a store go into") as caught:
        FileSink("s3://key:secret@bucket/x?token=secret#secret")
    assert "secret" not in str(caught.value)


def test_a_record_of_another_kind_of_sink_is_not_guessed_at(tmp_path: Path) -> None:
    """The name was given to a file sink, and the epoch to finish is of something else."""
    opened = OpenedSink(FileSink(tmp_path))
    foreign = PreparedTransaction("files", "x", 1, '{"producer_id": 1}')
    with pytest.raises(InvariantBroken, match="not staged in files"):
        opened.commit(opened.permit([foreign]))
    [prepared] = opened.prepare(rows(0, 0))
    payload = {**json.loads(prepared.payload), "facts": {"table": ["public", "t"]}}
    of_a_table = replace(prepared, payload=json.dumps(payload))
    with pytest.raises(InvariantBroken, match="has the file"):
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
        with pytest.raises(InvariantBroken, match="has the file"):
            opened.commit(opened.permit([edited]))
    for identity in ("../x", f"../{prepared.identity}", f"{prepared.identity}/../../x"):
        edited = replace(prepared, identity=identity)
        with pytest.raises(InvariantBroken, match="no name of a staged file"):
            opened.commit(opened.permit([edited]))
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


@pytest.mark.parametrize("owner", ["_spark_metadata", "_delta_log", ".hoodie"])
def test_a_folder_whose_readers_go_by_a_list_is_refused(tmp_path: Path, owner: str) -> None:
    """Spark's own streaming sink, Delta Lake and Hudi: their readers would not see our files."""
    (tmp_path / owner).mkdir()
    (tmp_path / owner / "0").touch()
    with pytest.raises(SettingRefused, match="would not see"):
        OpenedSink(FileSink(tmp_path))
    with pytest.raises(SettingRefused, match="would not see"):
        OpenedSink(FileSink("s3://bucket/x", store=LocalStore(tmp_path)))


def test_a_sink_that_was_pointed_elsewhere_does_not_lose_a_decided_epoch(tmp_path: Path) -> None:
    """It stops, and the message says where it was; pointed back, it goes on."""
    old, new = (OpenedSink(FileSink(tmp_path / name, name="mine")) for name in ("old", "new"))
    prepared = old.prepare(rows(0, 0))
    assert new.commit(old.permit(prepared)).expired == tuple(prepared)
    with pytest.raises(SettingRefused, match=rf"staged for {tmp_path}/old. Point the sink back"):
        new.participant.salvage(old.permit(prepared), prepared)
    assert old.commit(old.permit(prepared)).committed == tuple(prepared)
    assert ids_in(tmp_path / "old") == expected([0])
