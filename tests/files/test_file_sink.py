"""Files as a target: what readers find, what is refused, and what happens between any two steps."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    ExactumError,
    HeuristicOutcome,
    SettingRefused,
    Unavailable,
)
from exactum.files import folder_place, writer
from exactum.files.sink import FileSink
from exactum.protocol.model import CommitReport
from exactum.protocol.sink import Guarantee
from exactum.testing import Crash, FaultPlan, sweep
from tests.kit.files import epochs_in_files
from tests.kit.files.epochs_in_files import (
    QUERY,
    Nursery,
    OpenedSink,
    World,
    drive,
    duck,
    expected,
    hidden,
    ids_in,
    rows,
    visible,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def dataset(folder: Path) -> pa.Table:
    return pyarrow.dataset.dataset(str(folder), format="parquet", partitioning="hive").to_table()


# ---- what is there already -----------------------------------------------------------------------


def test_a_batch_that_was_published_is_refused_where_its_decision_is_gone(table: Path) -> None:
    """By the batch's marker. Nothing is published twice, and what was staged can be aborted."""
    OpenedSink(FileSink(table, format="json")).commit(rows(0, 0))
    before = visible(table)
    again = OpenedSink(FileSink(table, format="json"))
    with pytest.raises(CheckpointRefused, match="has published batch 0 at .*marker of batch 0"):
        again.participant.verify(again.prepare(rows(0, 0)))
    again.participant.abort(again.participant.list_open())
    assert visible(table) == before
    assert hidden(table) == []


# ---- the happy path ------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [None, "day"])
@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_rows_are_invisible_until_the_commit_and_then_as_they_were(
    table: Path, format_: str, partition_by: str | None
) -> None:
    """DuckDB, whose pattern looks into hidden folders, finds nothing of a prepared task and all
    of a committed one.
    """
    opened = OpenedSink(FileSink(table, format=format_, partition_by=partition_by))
    prepared = opened.participant.verify(opened.prepare(rows(0, 0), rows(0, 1)))
    assert visible(table) == []
    assert not [f for f in hidden(table) if f.endswith((".parquet", ".json", ".csv"))]
    assert {s.identity for s in opened.participant.list_open()} == {p.identity for p in prepared}
    report = opened.participant.commit(opened.permit(prepared), prepared)
    assert report == CommitReport(committed=tuple(prepared))
    wanted = [(i, f"row {i}", f"2026-01-0{1 + i % 2}") for i in expected([0], 2)]
    assert duck(table, "id, text, day::varchar", format_) == wanted
    assert hidden(table) == []
    assert opened.participant.list_open() == []
    assert all(os.path.basename(f).startswith("part-0000000000-0-") for f in visible(table))
    if partition_by:
        assert {os.path.dirname(f) for f in visible(table)} == {"day=2026-01-01", "day=2026-01-02"}


def test_partition_columns_are_not_in_the_files(table: Path) -> None:
    """As Spark writes them; every reader takes them from the folder's name."""
    OpenedSink(FileSink(table, partition_by=["day"])).commit(rows(0, 0))
    assert {tuple(pq.read_schema(table / f).names) for f in visible(table)} == {("id", "text")}
    assert sorted(dataset(table)["id"].to_pylist()) == expected([0])
    assert ids_in(table) == expected([0])


def test_many_batches_become_one_row_group_in_their_order(table: Path) -> None:
    """Spark's Arrow batches are small, row groups are not; the order of rows is kept within a
    folder.
    """
    opened = OpenedSink(FileSink(table))
    task = opened.writer()
    for start in range(0, 5_000, 100):
        task.write(pa.record_batch({"id": pa.array(range(start, start + 100), pa.int64())}))
    prepared = [task.prepare()]
    opened.participant.commit(opened.permit(prepared), prepared)
    [file] = visible(table)
    assert pq.ParquetFile(table / file).num_row_groups == 1
    assert pq.read_table(table / file)["id"].to_pylist() == list(range(5_000))


def test_a_task_without_rows_prepares_nothing(table: Path) -> None:
    """No empty files."""
    opened = OpenedSink(FileSink(table))
    assert opened.prepare(rows(0, 0).slice(0, 0)) == []
    assert opened.participant.list_open() == []


def test_every_type_that_spark_has(table: Path) -> None:
    """Numbers, texts, dates, times with and without a zone, decimals, binary and nested ones
    come back from Parquet.
    """
    batch = all_types()
    OpenedSink(FileSink(table)).commit(batch)
    found = pq.read_table(table / visible(table)[0])
    assert found.schema == batch.schema
    # repr: NaN is not equal to itself
    assert repr(found.to_pylist()) == repr(batch.to_pylist())


def all_types() -> pa.RecordBatch:
    import datetime
    from decimal import Decimal

    instant = datetime.datetime.fromisoformat("2026-01-02T03:04:05.678901")
    nested = pa.struct(
        [("a", pa.int32()), ("b", pa.list_(pa.string())), ("t", pa.timestamp("us", "UTC"))]
    )
    return pa.record_batch(
        {
            "id": pa.array([1, 2], pa.int64()),
            "text": ['quote " back \\ slash\nline\ttab \x01 ä €', None],
            "small": pa.array([-1, None], pa.int8()),
            "number": pa.array([1.0, float("nan")], pa.float64()),
            "single": pa.array([0.1, float("-inf")], pa.float32()),
            "yes": [True, None],
            "day": pa.array([instant.date(), None]),
            "zoned": pa.array([instant, None], pa.timestamp("us")).cast(
                pa.timestamp("us", "Europe/Berlin")
            ),
            "plain": pa.array([instant, None], pa.timestamp("us")),
            "money": pa.array([Decimal("12345678901234567890.12"), None], pa.decimal128(38, 2)),
            "bytes": pa.array([b"\x00\xff", b""], pa.binary()),
            "nested": pa.array(
                [{"a": 1, "b": ["x", None], "t": instant}, {"a": None, "b": None, "t": None}],
                nested,
            ),
            "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "by_number": pa.array([[(7, 1.5)], None], pa.map_(pa.int32(), pa.float64())),
        }
    )


def test_json_as_spark_writes_it(table: Path) -> None:
    """Null fields left out, instants in UTC with Z, decimals as numbers, binary in base64, NaN
    as text.
    """
    OpenedSink(FileSink(table, format="json")).commit(all_types())
    text = (table / visible(table)[0]).read_text()
    first, second = text.splitlines()
    assert json.loads(first) == {
        "id": 1,
        "text": 'quote " back \\ slash\nline\ttab \x01 ä €',
        "small": -1,
        "number": 1.0,
        "single": 0.1,
        "yes": True,
        "day": "2026-01-02",
        "zoned": "2026-01-02T03:04:05.678901Z",
        "plain": "2026-01-02T03:04:05.678901",
        "money": 12345678901234567890.12,
        "bytes": "AP8=",
        "nested": {"a": 1, "b": ["x", None], "t": "2026-01-02T03:04:05.678901Z"},
        "map": {"k": 1},
        "by_number": {"7": 1.5},
    }
    assert json.loads(second) == {
        "id": 2,
        "number": "NaN",
        "single": "-Infinity",
        "bytes": "",
        "nested": {},
    }
    assert '"money":12345678901234567890.12' in first
    assert '"number":1.0' in first
    assert text.endswith("}\n")


def test_json_texts_survive_every_character(table: Path) -> None:
    """Every ASCII character, one by one and in whole columns without control characters, read by
    Python's json.
    """
    texts = [chr(i) * 2 for i in range(128)] + ["", "plain", 'a"b\\c', "line\r\nend\t", "😀 ä"]
    before: set[str] = set()
    for batch_id, wanted in enumerate((texts, texts[32:], ["plain", None])):
        batch = pa.record_batch({"id": range(len(wanted)), 'na"me': pa.array(wanted, pa.string())})
        OpenedSink(FileSink(table, format="json")).commit(batch, batch_id=batch_id)
        (newest,) = set(visible(table)) - before
        before.add(newest)
        found = [
            json.loads(line).get('na"me')
            for line in (table / newest).read_bytes().decode().split("\n")[:-1]
        ]
        assert found == wanted


def test_csv_tells_null_from_the_empty_text(table: Path) -> None:
    """Quoted fields, line breaks inside, a header, a delimiter of one's own, none of which
    DuckDB is told.
    """
    texts = ["plain", "", None, 'quote " and ; and \n line', "ä"]
    batch = pa.record_batch({"id": range(5), "text": pa.array(texts)})
    OpenedSink(FileSink(table, format="csv", options={"delimiter": ";"})).commit(batch)
    raw = (table / visible(table)[0]).read_text()
    assert raw.startswith('"id";"text"\n')
    assert '\n1;""\n2;\n' in raw
    assert [r[1] for r in duck(table, "id, text", "csv")][3:] == texts[3:]


@pytest.mark.parametrize(
    ("format_", "options", "ending"),
    [
        ("parquet", {"compression": "zstd", "compression_level": 5}, ".parquet"),
        ("parquet", {"compression": "none"}, ".parquet"),
        ("json", {"compression": "gzip"}, ".json.gz"),
        ("csv", {"compression": "gzip", "header": True}, ".csv.gz"),
    ],
)
def test_compressed_files(table: Path, format_: str, options: dict[str, Any], ending: str) -> None:
    """Readable as they are, under the ending that readers go by."""
    OpenedSink(FileSink(table, format=format_, options=options)).commit(rows(0, 0))
    assert all(f.endswith(ending) for f in visible(table))
    assert [r[0] for r in duck(table, "id", format_)] == expected([0])


def test_special_characters_in_partition_values_and_in_the_path(tmp_path: Path) -> None:
    """Escaped as Spark escapes them; DuckDB and pyarrow read the values back. Null and '' are
    Hive's default.
    """
    table = tmp_path / "a table, 100% 'ours' #1 ä"
    values = [
        "a/b",
        "c=d",
        "50%",
        "x y",
        "ü:€",
        "..",
        "q?*[]{}^\"'#\\",
        "tab\there",
        "+plus",
        None,
        "",
    ]
    batch = pa.record_batch(
        {"id": pa.array(range(len(values)), pa.int64()), "k=/y": pa.array(values)}
    )
    OpenedSink(FileSink(table, partition_by=["k=/y"])).commit(batch)
    assert "k%3D%2Fy=a%2Fb" in os.listdir(table)
    assert sorted(set(os.listdir(table)) - {".exactum"})[0].startswith("k%3D%2Fy=")
    assert len(os.listdir(table)) == len(values)  # null and '' share one, and .exactum
    part = pyarrow.dataset.HivePartitioning(
        pa.schema([("k%3D%2Fy", pa.string())]), segment_encoding="none"
    )
    files = (
        pyarrow.dataset.dataset(str(table), format="parquet", partitioning=part)
        .to_table()
        .to_pylist()
    )
    from urllib.parse import unquote

    raw = {r["id"]: r["k%3D%2Fy"] for r in files}
    assert {i: None if v is None else unquote(v) for i, v in raw.items()} == {
        i: v or None for i, v in enumerate(values)
    }


def test_partition_values_of_every_type(table: Path) -> None:
    """Named as Spark casts them to text."""
    import datetime
    from decimal import Decimal

    instant = datetime.datetime.fromisoformat("2026-01-02T03:04:05.670000")
    batch = pa.record_batch(
        {
            "id": [1],
            "n": pa.array([-5], pa.int16()),
            "b": [True],
            "d": pa.array([instant.date()]),
            "t": pa.array([instant], pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "m": pa.array([Decimal("0.0000000100")], pa.decimal128(20, 10)),
        }
    )
    OpenedSink(FileSink(table, partition_by=["n", "b", "d", "t", "m"])).commit(batch)
    [file] = visible(table)
    assert (
        os.path.dirname(file)
        == "n=-5/b=true/d=2026-01-02/t=2026-01-02 03%3A04%3A05.67/m=0.0000000100"
    )


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
    OpenedSink(FileSink(table, partition_by=["b", "a", "c"])).commit(
        batch.slice(0, 4_000), batch.slice(4_000)
    )
    found = duck(table, "id, a, b, c")
    assert [(i, int(a), b, str(c).lower()) for i, a, b, c in found] == [
        (i, i % 7, f"b{i % 5}" if i % 5 else None, str(i % 2 == 0).lower()) for i in range(n)
    ]
    assert len({os.path.dirname(f) for f in visible(table)}) == 70


# ---- sizes and limits ----------------------------------------------------------------------------


def test_a_limit_of_rows_opens_a_new_file(table: Path) -> None:
    """Never more than so many rows, and no file without rows."""
    OpenedSink(FileSink(table, rows_per_file_max=4, partition_by="day")).commit(
        rows(0, 0), rows(0, 1)
    )
    counts = sorted(pq.ParquetFile(table / f).metadata.num_rows for f in visible(table))
    assert counts == [3, 3, 3, 3]
    assert ids_in(table) == expected([0], 2)
    table = table / "other"
    OpenedSink(FileSink(table, rows_per_file_max=2)).commit(rows(1, 0), batch_id=1)
    late = [f for f in visible(table) if "part-0000000001" in f]
    assert [pq.ParquetFile(table / f).metadata.num_rows for f in late] == [2, 2, 2]
    assert ids_in(table) == expected([1])


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_limit_of_bytes_opens_a_new_file(table: Path, format_: str) -> None:
    """A file ends soon after it has reached its limit."""
    batch = pa.record_batch(
        {
            "id": pa.array(range(40_000), pa.int64()),
            "x": [os.urandom(8).hex() for _ in range(40_000)],
        }
    )
    OpenedSink(FileSink(table, format=format_, bytes_per_file_max=100_000)).commit(batch)
    sizes = [(table / f).stat().st_size for f in visible(table)]
    assert len(sizes) >= 5
    assert 100_000 <= sorted(sizes)[1] <= max(sizes) < 300_000
    assert [r[0] for r in duck(table, "id", format_)] == list(range(40_000))


def test_a_thousand_partitions_with_few_open_files(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one used longest ago is closed; every row is where it belongs; the list of files is a
    file of its own.
    """
    opened = OpenedSink(FileSink(table, partition_by="p"))
    monkeypatch.setattr(writer, "RUN_ROWS_MAX", 2_500)
    task = opened.writer()
    highest = 0
    for start in range(0, 10_000, 500):
        ids = range(start, start + 500)
        task.write(
            pa.record_batch({"id": pa.array(ids, pa.int64()), "p": [i * 7 % 1_000 for i in ids]})
        )
        highest = max(highest, len(task._open))
    prepared = [task.prepare()]
    assert 0 < highest <= folder_place.OPEN_FILES_MAX
    assert len(prepared[0].payload) < 400
    assert prepared[0].rows == 10_000
    prepared = opened.participant.verify(prepared)
    other = OpenedSink(FileSink(table, partition_by="p"))
    assert other.participant.commit(other.permit(prepared), prepared).committed == tuple(prepared)
    assert duck(table, "count(*), count(distinct p), sum(id)", order="1") == [
        (10_000, 1_000, sum(range(10_000)))
    ]
    assert duck(table, "count(*) filter (where id * 7 % 1000 != p)", order="1") == [(0,)]
    assert hidden(table) == []
    assert other.participant.commit(other.permit(prepared), prepared).committed == tuple(prepared)


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
    opened.commit(batch)
    task = opened.writer(1)
    task.write(batch)
    task._write_run()
    during = open_below(table)
    task.abort()
    task.abort()
    assert during - before <= 2 * (folder_place.OPEN_FILES_MAX + writer.FINISHING_MAX)
    assert open_below(table) == before
    assert hidden(table) == []
    assert opened.participant.list_open() == []


def test_a_partition_value_too_long_for_a_folder_is_rejected(table: Path) -> None:
    """Only its rows, with the reason; they are for the dead letters."""
    opened = OpenedSink(FileSink(table, partition_by="k"))
    task = opened.writer()
    values = ["a", "x" * 300, "b", "ä/" * 60, "y" * 100]
    rejection = task.write(pa.record_batch({"id": pa.array(range(5), pa.int64()), "k": values}))
    assert rejection.rows.column("id").to_pylist() == [1, 3]
    assert all("longer than 255 bytes" in r for r in rejection.reasons)
    prepared = [task.prepare()]
    opened.participant.commit(opened.permit(prepared), prepared)
    assert ids_in(table) == [0, 2, 4]


# ---- the protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize("partition_by", [None, pytest.param("day", marks=pytest.mark.deep)])
def test_a_fault_at_every_call(memory: Path, partition_by: str | None) -> None:
    """Crash, lost reply or repetition at any port call: the next incarnation makes it exactly
    once, nothing staged.
    """

    def scenario(plan: FaultPlan) -> None:
        table = memory / f"{plan.fault.name}-{plan.at}"
        world = World(lambda: FileSink(table, partition_by=partition_by), tasks=2, retried=1)
        with contextlib.suppress(Crash, ExactumError):
            world.drive([0, 1], plan)
        world.drive(range(world.storage.floor, 3))
        assert ids_in(table) == expected([0, 1, 2], 2)
        assert hidden(table) == []

    print(f"{sweep(scenario)} runs")


def test_a_fault_in_the_recovery(memory: Path) -> None:
    """The incarnation that redelivers is itself struck at every call, then a third comes."""

    def scenario(plan: FaultPlan) -> None:
        table = memory / f"{plan.fault.name}-{plan.at}"
        world = World(lambda: FileSink(table), tasks=2)
        with pytest.raises(Crash):
            world.drive([0], _dies_in_commit())
        with contextlib.suppress(Crash, ExactumError):
            world.drive([0], plan)
        world.drive([0, 1])
        assert ids_in(table) == expected([0, 1], 2)
        assert hidden(table) == []

    print(f"{sweep(scenario)} runs")


def _dies_in_commit() -> FaultPlan:
    from exactum.testing import Fault

    class AtCommit(FaultPlan):
        def around(self, label: str, call: Callable[[], object]) -> object:
            if label == "commit":
                raise Crash("before the commit")
            return call()

    return AtCommit(Fault.CRASH_BEFORE, 0)


def test_a_driver_that_was_superseded_leaves_nothing(table: Path) -> None:
    """The newer one aborts what it saw; the old one's tasks, still writing, fail cleanly and
    show nothing.
    """
    old = OpenedSink(FileSink(table, partition_by="day"))
    zombies = [old.writer(0, t) for t in range(3)]
    for task, zombie in enumerate(zombies):
        zombie.write(rows(0, task))
    zombies[1]._write_run()
    zombies[2]._write_run()
    prepared = [zombies[2].prepare()]
    new = OpenedSink(FileSink(table, partition_by="day"))
    seen = new.participant.list_open()
    assert len(seen) == 2
    assert {s.incarnation for s in seen} == {old.incarnation}
    new.participant.abort(seen)
    new.participant.abort(seen)
    assert new.participant.list_open() == []
    with pytest.raises(EpochAborted, match="newer run"):
        old.participant.verify(prepared)
    with pytest.raises(EpochAborted, match="its staged files are gone"):
        zombies[1].prepare()
    zombies[1].abort()
    late = zombies[0].prepare()  # it had begun nothing yet: the next sweep gets it
    assert [s.identity for s in new.participant.list_open()] == [late.identity]
    new.participant.abort(new.participant.list_open())
    new.commit(rows(0, 0))
    assert ids_in(table) == expected([0])
    assert hidden(table) == []


def test_a_late_commit_changes_nothing(table: Path) -> None:
    """An old driver wakes up and commits an epoch that others have finished: done, no file
    twice.
    """
    old = OpenedSink(FileSink(table))
    prepared = old.prepare(rows(0, 0), rows(0, 1))
    new = OpenedSink(FileSink(table))
    assert new.participant.commit(old.permit(prepared), prepared).expired == ()
    new.commit(rows(1, 0), batch_id=1)
    before = visible(table)
    for _ in range(2):
        assert old.participant.commit(old.permit(prepared), prepared).committed == tuple(prepared)
    assert visible(table) == before
    assert ids_in(table) == expected([0], 2) + expected([1])


@pytest.mark.parametrize("later", [0, 1, 40])
def test_a_redelivery_after_a_compaction_job_took_the_files(table: Path, later: int) -> None:
    """Days later, and with the epoch's own marker gone: committed, and nothing comes back."""
    opened = OpenedSink(FileSink(table))
    prepared = opened.commit(rows(0, 0))
    for batch_id in range(1, later + 1):
        opened.commit(rows(batch_id, 0), batch_id=batch_id)
    for file in visible(table):
        (table / file).unlink()
    assert opened.participant.commit(opened.permit(prepared), prepared).committed == tuple(prepared)
    assert visible(table) == []
    marks = sorted(os.path.basename(f) for f in hidden(table, "committed"))
    assert len(marks) <= 16
    assert int(marks[-1]) == later


def test_a_marker_never_keeps_a_staged_file_from_readers(table: Path) -> None:
    """What is decided and staged is published, whatever has been marked; what is not decided is
    refused before that.
    """
    opened = OpenedSink(FileSink(table))
    opened.commit(rows(9, 0), batch_id=9)
    decided = opened.prepare(rows(3, 0), batch_id=3)
    assert opened.participant.commit(opened.permit(decided, 3), decided).committed == tuple(decided)
    assert ids_in(table) == expected([3, 9])


@pytest.mark.parametrize("how", ["file", "folder", "manifest"])
def test_a_decided_file_that_is_gone_stops_the_query(
    table: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported as undone, and salvage says which file, how many rows, and what to do; the rest
    is not published.
    """
    if how == "manifest":
        monkeypatch.setattr(writer, "PAYLOAD_BYTES_MAX", 10)
    opened = OpenedSink(FileSink(table, partition_by="day"))
    kept, lost = opened.prepare(rows(0, 0), rows(0, 1))
    staged = Path(next(f for f in hidden(table) if lost.identity in f)).parent
    for file in [staged / "0.staged"] if how == "file" else list(staged.iterdir()):
        file.unlink()
    if how == "folder":
        staged.rmdir()
    for _ in range(2):
        report = opened.participant.commit(opened.permit([kept, lost]), [kept, lost])
        assert report == CommitReport((kept,), (lost,))
    assert ids_in(table) == expected([0])
    count = 1 if how == "file" else 2
    with pytest.raises(HeuristicOutcome, match=rf"{count} of 2 files \(6 rows") as stopped:
        opened.participant.salvage(opened.permit([kept, lost]), [lost])
    mark = table / str(stopped.value).split("create the empty file ")[1].split(" and start")[0]
    mark.touch()
    assert opened.participant.commit(opened.permit([kept, lost]), [kept, lost]).expired == ()


def test_a_foreign_file_is_never_replaced(table: Path) -> None:
    """A file of that very name with other content stops the commit; a copy of the staged one
    does not.
    """
    opened = OpenedSink(FileSink(table))
    for content, batch_id in ((None, 0), (b"other", 1)):
        [prepared] = opened.prepare(rows(batch_id, 0), batch_id=batch_id)
        [staged] = [Path(f) for f in hidden(table) if prepared.identity in f]
        target = table / f"part-{batch_id:010d}-0-{prepared.identity}-0.parquet"
        target.write_bytes(content or staged.read_bytes())
        if content is None:
            opened.participant.commit(opened.permit([prepared], batch_id), [prepared])
            assert not staged.exists()
            continue
        with pytest.raises(HeuristicOutcome, match="other content"):
            opened.participant.commit(opened.permit([prepared], batch_id), [prepared])
        assert target.read_bytes() == b"other"


def test_drivers_that_commit_at_the_same_time_agree(table: Path) -> None:
    """Eight participants commit one epoch with two hundred files at once: all succeed, each row
    stands once.
    """
    batch = pa.record_batch({"id": pa.array(range(200), pa.int64()), "p": range(200)})
    for batch_id in range(3):
        opened = [OpenedSink(FileSink(table / str(batch_id), partition_by="p")) for _ in range(8)]
        prepared = opened[0].prepare(batch.slice(0, 100), batch.slice(100))
        permit = opened[0].permit(prepared)
        with ThreadPoolExecutor(8) as pool:
            reports = list(
                pool.map(lambda o, p=permit, t=prepared: o.participant.commit(p, t), opened)
            )
        assert {r.committed for r in reports} == {tuple(prepared)}
        assert ids_in(table / str(batch_id)) == list(range(200))
        assert hidden(table / str(batch_id)) == []


def test_two_queries_share_a_folder_and_never_touch_each_other(table: Path) -> None:
    """Scopes are matched exactly: neither lists nor aborts what the other has staged."""
    one, two = OpenedSink(FileSink(table)), OpenedSink(FileSink(table), query_id=QUERY + "-eu")
    prepared = one.prepare(rows(0, 0))
    assert two.participant.list_open() == []
    two.commit(rows(1, 0))
    one.participant.commit(one.permit(prepared), prepared)
    assert ids_in(table) == expected([0, 1])
    scopes = [json.loads(Path(f).read_text()) for f in map(str, table.glob(".exactum/*/scope"))]
    assert sorted(s["query_id"] for s in scopes) == [QUERY, QUERY + "-eu"]


def test_a_failing_task_removes_what_it_staged(table: Path) -> None:
    """Also after it has prepared: another sink of the same task may fail then."""
    opened = OpenedSink(FileSink(table))
    for prepares in (False, True):
        task = opened.writer()
        task.write(rows(0, 0))
        task._write_run()
        assert hidden(table)
        if prepares:
            task.prepare()
        task.abort()
        task.abort()
        assert hidden(table) == []
    assert opened.participant.list_open() == []


def test_an_executor_that_does_not_see_the_folder_is_told(table: Path) -> None:
    """It never writes to a folder of its own of the same name."""
    opened = OpenedSink(FileSink(table))
    os.rename(table, table.with_name("elsewhere"))
    task = opened.writer()
    task.write(rows(0, 0))
    with pytest.raises(SettingRefused, match="does not see the folder"):
        task.prepare()
    assert not table.exists()


def test_the_folders_of_dead_incarnations_go(table: Path) -> None:
    """Starting a hundred times leaves no hundred folders, and no file of a start that was
    killed.
    """
    OpenedSink(FileSink(table))
    [scope] = (table / ".exactum").iterdir()
    left = [scope / "staged" / "temporary-1", scope / "staged" / "temporary-2"]
    for file in left:
        file.touch()
    os.utime(left[0], (time.time() - 7_200,) * 2)
    for batch_id in range(10):
        last = OpenedSink(FileSink(table))
        last.commit(rows(batch_id, 0), batch_id=batch_id)
    assert {p.name for p in (scope / "staged").iterdir()} - {"temporary-2"} <= {last.incarnation}
    assert left[1].exists()
    assert last.participant.list_open() == []


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_weaker_guarantees_show_their_files_at_prepare(table: Path, guarantee: Guarantee) -> None:
    """No transaction is reported, nothing stays staged, and what a task that died has left goes
    after a day.
    """
    opened = OpenedSink(FileSink(table, partition_by="day"), guarantee=guarantee)
    assert opened.prepare(rows(0, 0)) == []
    assert ids_in(table) == expected([0])
    dead = opened.writer(1)
    dead.write(rows(1, 0))
    dead._write_run()
    assert len(hidden(table, "plain")) == 2
    OpenedSink(FileSink(table), guarantee=guarantee)
    assert len(hidden(table, "plain")) == 2
    for folder in {os.path.dirname(f) for f in hidden(table, "plain")}:
        os.utime(folder, (time.time() - 100_000,) * 2)
    OpenedSink(FileSink(table), guarantee=guarantee)
    assert hidden(table, "plain") == []
    assert ids_in(table) == expected([0])
    dead.abort()


def test_the_writer_factory_pickles(table: Path) -> None:
    """It goes to the executors as it is, without the user's function."""
    sink = FileSink(table, rows=lambda frame: frame, options={"compression": "zstd"})
    factory = OpenedSink(sink).opened.writers
    assert pickle.loads(pickle.dumps(factory)) == factory


# ---- processes that die --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.parametrize("partition_by", [(), ("day",)])
def test_a_kill_before_every_file_system_call(
    partition_by: Sequence[str], memory: Path, nursery: Nursery
) -> None:
    """SIGKILL before the n-th call that changes the file system, for every n of an epoch: exact
    after a restart.
    """
    at = 0
    while True:
        at += 1
        folder = memory / str(at)
        folder.mkdir()
        nursery.start(folder, [0], at, partition_by)
        code = nursery.wait()
        assert code in (0, -signal.SIGKILL)
        drive(str(folder), [0, 1], None, partition_by)
        assert ids_in(folder / "table") == expected([0, 1]), f"killed before call {at}"
        assert hidden(folder / "table") == [], f"killed before call {at}"
        if code == 0:
            break
    print(f"{at} runs")
    assert at > 30


def test_random_kills_with_readers_all_along(memory: Path, nursery: Nursery) -> None:
    """Drivers are killed at random moments; readers that list and open every file meet whole
    files, each row once.
    """
    seed = int(os.environ.get("EXACTUM_SEED", random.randrange(2**32)))
    print(f"EXACTUM_SEED={seed}")
    moments = random.Random(seed)
    stop, failures = threading.Event(), []
    seen = [0, 0]
    table = memory / "table"

    def read() -> None:
        while not stop.is_set():
            try:
                ids = [
                    i for f in visible(table) for i in pq.read_table(table / f)["id"].to_pylist()
                ]
                assert len(ids) == len(set(ids))
                assert len(ids) % (ROWS_OF_A_FILE) == 0
                seen[0] += 1
                seen[1] = max(seen[1], len(ids))
            except Exception as error:
                failures.append(repr(error))
                return

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        kills = 0
        while kills < 20 or (_first(memory) <= 10 and kills < 400):
            kills += 1
            pid = nursery.start(memory, range(_first(memory), 100_000), None, ("day",))
            time.sleep(moments.random() * 0.2)
            os.kill(pid, signal.SIGKILL)
            assert nursery.wait() == -signal.SIGKILL
        last = _first(memory) + 1
        drive(str(memory), range(_first(memory), last + 1), None, ("day",))
    finally:
        stop.set()
        for reader in readers:
            reader.join(30)
    assert failures == []
    assert ids_in(table) == expected(range(last + 1))
    assert hidden(table) == []
    assert last > 10
    print(f"{last + 1} epochs, {seen[0]} readings, up to {seen[1]} rows")


ROWS_OF_A_FILE = epochs_in_files.ROWS // 2


def _first(folder: Path) -> int:
    """Where Spark would go on: the first batch that no driver has reported as done."""
    try:
        return int(json.loads((folder / "done").read_text())) + 1
    except (FileNotFoundError, ValueError):  # not yet there, or torn by the kill
        return max([0, *(int(p.name[:20]) for p in (folder / "log").glob("0*.json"))])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: for tests in which no disk fails."""
    import tempfile

    shm = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
        yield Path(name)


# ---- a full disk ---------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB; needs the right to mount one."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def finish(task: Any, batch: pa.RecordBatch) -> None:
    task.write(batch)
    task.prepare()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
def test_a_full_disk_aborts_the_epoch_and_is_cleaned_up(small_disk: Path, format_: str) -> None:
    """The message names the folder and the room left; earlier rows stand; with room again all
    goes on.
    """
    opened = OpenedSink(FileSink(small_disk, format=format_, options={"compression": "none"}))
    opened.commit(rows(0, 0))
    noise = pa.record_batch(
        {
            "id": pa.array(range(5_000), pa.int64()),
            "text": [os.urandom(1_000).hex() for _ in range(5_000)],
            "day": ["2026-01-01"] * 5_000,
        }
    )
    task = opened.writer(1)
    with pytest.raises(
        EpochAborted,
        match=rf"could not write to {small_disk}: .*No space left.*bytes and .* are free",
    ):
        finish(task, noise)
    task.abort()
    assert hidden(small_disk) == []
    assert opened.participant.list_open() == []
    opened.commit(rows(1, 0), batch_id=1)
    assert [r[0] for r in duck(small_disk, "id", format_)] == expected([0, 1])


def test_a_disk_that_becomes_read_only(small_disk: Path) -> None:
    """No restart mends it: the refusal says so; with the right to write again all goes on."""
    opened = OpenedSink(FileSink(small_disk))
    opened.commit(rows(0, 0))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    try:
        task = opened.writer(1)
        with pytest.raises(SettingRefused, match=r"may not be written here: .*Read-only"):
            finish(task, rows(1, 0))
        task.abort()
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    opened.commit(rows(1, 0), batch_id=1)


def test_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    """Opening says so and leaves nothing; with room again it opens."""
    opened = OpenedSink(FileSink(small_disk))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    with pytest.raises(Unavailable, match="No space left"):
        OpenedSink(FileSink(small_disk))
    assert list(small_disk.rglob("temporary-*")) == []
    filler.unlink()
    opened.commit(rows(0, 0))
    assert [r[0] for r in duck(small_disk, "id", "parquet")] == expected([0])


def test_a_disk_that_is_full_at_the_commit_is_no_loss(small_disk: Path) -> None:
    """A decided epoch that finds no room for its folders waits for it: Unavailable, then carried
    out.
    """
    opened = OpenedSink(FileSink(small_disk, partition_by="day"))
    prepared = opened.prepare(rows(0, 0))
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        fill(filler)
    with pytest.raises(Unavailable, match="No space left"):
        opened.participant.commit(opened.permit(prepared), prepared)
    filler.unlink()
    assert opened.participant.commit(opened.permit(prepared), prepared).committed == tuple(prepared)
    assert ids_in(small_disk) == expected([0])
