"""Files as a target: what readers find, in every format and of every type, and what limits hold."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import LocalStore

from exactum.files.sink import FileSink
from exactum.protocol.model import CommitReport
from exactum.sinks import writer as staged_writer
from exactum.storage.folder import Folder
from tests.kit.files.epochs_in_files import (
    duck,
    expected,
    hidden,
    ids_in,
    rows,
    visible,
    write_run,
)
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow


# ---- the happy path ------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [None, "day"])
@pytest.mark.parametrize(
    ("ending", "options"),
    [
        (".parquet", {}),
        (".json", {}),
        (".csv", {}),
        # compressed: readable as they are, under the ending that readers go by
        (".parquet", {"compression": "zstd", "compression_level": 5}),
        (".parquet", {"compression": "none"}),
        (".json.gz", {"compression": "gzip"}),
        (".csv.gz", {"compression": "gzip", "header": True}),
    ],
)
def test_rows_are_invisible_until_the_commit_and_then_as_they_were(
    table: Path, ending: str, options: dict[str, Any], partition_by: str | None
) -> None:
    """DuckDB, whose pattern looks into hidden folders, finds nothing of a prepared task and all
    of a committed one. Partition columns are not in the files, as Spark writes them: every reader
    takes them from the folder's name.
    """
    format_ = ending.split(".")[1]
    opened = OpenedSink(FileSink(table, format=format_, options=options, partition_by=partition_by))
    prepared = opened.participant.verify(opened.prepare(rows(0, 0), rows(0, 1)))
    assert visible(table) == []
    assert not [f for f in hidden(table) if f".{format_}" in f]
    assert {s.identity for s in opened.participant.list_open()} == {p.identity for p in prepared}
    report = opened.commit(opened.permit(prepared))
    assert report == CommitReport(committed=tuple(prepared))
    wanted = [(i, f"row {i}", f"2026-01-0{1 + i % 2}") for i in expected([0], 2)]
    assert duck(table, "id, text, day::varchar", format_) == wanted
    assert hidden(table) == []
    assert opened.participant.list_open() == []
    names = [os.path.split(f) for f in visible(table)]
    assert all(n.startswith("part-0000000000-0-") and n.endswith(ending) for _, n in names)
    if partition_by:
        assert {folder for folder, _ in names} == {"day=2026-01-01", "day=2026-01-02"}
    if partition_by and ending == ".parquet":
        assert {tuple(pq.read_schema(table / f).names) for f in visible(table)} == {("id", "text")}
        assert ids_in(table) == expected([0], 2)


def test_many_batches_become_one_row_group_in_their_order(table: Path) -> None:
    """Spark's Arrow batches are small, row groups are not; the order of rows is kept within a
    folder.
    """
    opened = OpenedSink(FileSink(table))
    task = opened.writer()
    for start in range(0, 5_000, 100):
        task.write(pa.record_batch({"id": pa.array(range(start, start + 100), pa.int64())}))
    prepared = [task.prepare()]
    opened.commit(opened.permit(prepared))
    [file] = visible(table)
    assert pq.ParquetFile(table / file).num_row_groups == 1
    assert pq.read_table(table / file)["id"].to_pylist() == list(range(5_000))


def test_csv_tells_null_from_the_empty_text(table: Path) -> None:
    """Quoted fields, line breaks inside, a header, a delimiter of one's own, none of which
    DuckDB is told.
    """
    texts = ["plain", "", None, 'quote " and ; and \n line', "ä"]
    batch = pa.record_batch({"id": range(5), "text": pa.array(texts)})
    OpenedSink(FileSink(table, format="csv", options={"delimiter": ";"})).write(batch)
    raw = (table / visible(table)[0]).read_text()
    assert raw.startswith('"id";"text"\n')
    assert '\n1;""\n2;\n' in raw
    assert [r[1] for r in duck(table, "id, text", "csv")][3:] == texts[3:]


@pytest.mark.parametrize("is_store", [False, True])
def test_special_characters_in_the_path_and_in_names(tmp_path: Path, is_store: bool) -> None:
    """Escaped as Spark escapes them, in a store too; null and the empty text share a folder. (Values:
    tests/abuse.)
    """
    table = tmp_path / "a table, 100% 'ours' #1 ä"
    table.mkdir()
    place = {"path": "memory://b/t", "store": LocalStore(table)} if is_store else {"path": table}
    values = ["a/b%c", "..", "+plus", "x y", None, ""]
    batch = pa.record_batch({"id": pa.array(range(6), pa.int64()), "k=/y": pa.array(values)})
    OpenedSink(FileSink(**place, partition_by=["k=/y"])).write(batch)
    folders = ("a%2Fb%25c", "..", "+plus", "x y", "__HIVE_DEFAULT_PARTITION__")
    assert set(os.listdir(table)) == {".exactum", *(f"k%3D%2Fy={v}" for v in folders)}
    assert [i for (i,) in duck(table, "id")] == ids_in(table) == list(range(6))


def test_several_partition_columns(table: Path) -> None:
    """Outermost first, every combination that there is and no other."""
    n = 5_000
    batch = pa.record_batch(
        {
            "id": pa.array(range(n), pa.int64()),
            "a": [i % 7 for i in range(n)],
            "b": [None if i % 5 == 0 else f"b{i % 5}" for i in range(n)],
            "c": [i % 2 == 0 for i in range(n)],
        }
    )
    OpenedSink(FileSink(table, partition_by=["b", "a", "c"])).write(
        batch.slice(0, 4_000), batch.slice(4_000)
    )
    found = duck(table, "id, a, b, c")
    assert [(i, int(a), b, str(c).lower()) for i, a, b, c in found] == [
        (i, i % 7, f"b{i % 5}" if i % 5 else None, str(i % 2 == 0).lower()) for i in range(n)
    ]
    assert len({os.path.dirname(f) for f in visible(table)}) == 70


# ---- sizes and limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_limit_of_bytes_opens_a_new_file(table: Path, format_: str) -> None:
    """A file ends soon after it has reached its limit."""
    batch = pa.record_batch(
        {
            "id": pa.array(range(40_000), pa.int64()),
            "x": [os.urandom(8).hex() for _ in range(40_000)],
        }
    )
    OpenedSink(FileSink(table, format=format_, bytes_per_file_max=100_000)).write(batch)
    sizes = [(table / f).stat().st_size for f in visible(table)]
    assert len(sizes) >= 5
    assert 100_000 <= sorted(sizes)[1] <= max(sizes) < 300_000
    assert [r[0] for r in duck(table, "id", format_)] == list(range(40_000))


def open_below(folder: Path) -> int:
    """Others of this process's descriptors come and go by themselves."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sum(name.startswith(str(folder)) for name in found)


def test_open_descriptors_are_bounded_and_all_closed(table: Path) -> None:
    """Before and after a task with a thousand partitions, and after one that was aborted, as
    many are open.
    """
    opened = OpenedSink(FileSink(table, partition_by="p"))
    batch = pa.record_batch({"id": pa.array(range(1_000), pa.int64()), "p": range(1_000)})
    before = open_below(table)
    opened.write(batch)
    task = opened.writer(1)
    task.write(batch)
    write_run(task)
    during = open_below(table)
    task.abort()
    task.abort()
    assert during - before <= 2 * (Folder.streams_max + staged_writer.FINISHING_MAX)
    assert open_below(table) == before
    assert hidden(table) == []
    assert opened.participant.list_open() == []


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert FileSink(tmp_path / "out").inspector("q", "out").list_open() == []
    assert not (tmp_path / "out").exists()
