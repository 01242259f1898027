"""Files as a target: what happens between any two steps of drivers and tasks."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest

from exactum.errors import (
    EpochAborted,
    HeuristicOutcome,
    SettingRefused,
)
from exactum.files.sink import FileSink
from exactum.protocol.model import CommitReport
from exactum.protocol.participant import delivers
from exactum.protocol.sink import Guarantee
from exactum.sinks import writer
from tests.kit.files.epochs_in_files import (
    QUERY,
    OpenedSink,
    expected,
    hidden,
    ids_in,
    rows,
    visible,
    write_run,
)

pytestmark = pytest.mark.slow


def test_a_driver_that_was_superseded_leaves_nothing(table: Path) -> None:
    """The newer one aborts what it saw; the old one's tasks that have begun a file fail cleanly, and
    nobody shows what the others write later.
    """
    old = OpenedSink(FileSink(table, partition_by="day"))
    zombies = [old.writer(0, t) for t in range(3)]
    for task, zombie in enumerate(zombies):
        zombie.write(rows(0, task))
    write_run(zombies[1])
    write_run(zombies[2])
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
    with pytest.raises(EpochAborted, match="newer run"):
        old.participant.verify([*prepared, late])
    assert [s.identity for s in new.participant.list_open()] == [late.identity]
    new.participant.abort(new.participant.list_open())
    new.commit(rows(0, 0))
    assert ids_in(table) == expected([0])
    assert hidden(table) == []


@pytest.mark.parametrize("left", [0, 10], ids=["emptied", "cut"])
def test_a_staged_file_that_is_cut_is_not_decided(table: Path, left: int) -> None:
    """By a full disk, or by a copy that was put back: the bytes are compared, not only the name."""
    sink = OpenedSink(FileSink(table))
    prepared = sink.prepare(rows(0, 0), rows(0, 1))
    (first, *_) = sorted(table.rglob("*.staged"))
    os.truncate(first, left)
    with pytest.raises(EpochAborted, match=f"{left} bytes"):
        sink.participant.verify(prepared)
    assert visible(table) == []


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
    marks = sorted(os.path.basename(f) for f in hidden(table, "published-"))
    assert len(marks) <= 3
    assert int(marks[-1].removeprefix("published-")) == later


def test_a_marker_never_keeps_a_staged_file_from_readers(table: Path) -> None:
    """What is decided and staged is published, whatever has been marked; what is not decided is
    refused before that.
    """
    opened = OpenedSink(FileSink(table))
    opened.commit(rows(9, 0), batch_id=9)
    decided = opened.prepare(rows(3, 0), batch_id=3)
    assert opened.participant.commit(opened.permit(decided, 3), decided).committed == tuple(decided)
    assert ids_in(table) == expected([3, 9])


@pytest.mark.parametrize("how", ["file", "all", "list"])
def test_a_decided_file_that_is_gone_stops_the_query(
    table: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reported as undone, and salvage says which file, how many rows, and what to do; nothing of the
    epoch is published.
    """
    if how == "list":
        monkeypatch.setattr(writer, "PAYLOAD_BYTES_MAX", 10)
    opened = OpenedSink(FileSink(table, partition_by="day"))
    both = tuple(opened.prepare(rows(0, 0), rows(0, 1)))
    staged = [Path(f) for f in hidden(table) if both[1].identity in f]
    lost = {"file": staged[:1], "all": staged, "list": staged[-1:]}[how]
    for file in lost:
        file.unlink()
    for _ in range(2):
        report = opened.participant.commit(opened.permit(both), both)
        assert report == CommitReport((), both)
    assert visible(table) == []
    with pytest.raises(HeuristicOutcome) as stopped:
        opened.participant.salvage(opened.permit(both), both)
    for file in lost:
        assert f"{file} with {6 if how == 'list' else 3} rows" in str(stopped.value)
    assert str(stopped.value).count(".staged with") == len(lost)
    Path(str(stopped.value).split("create the empty file ")[1]).touch()
    assert opened.participant.commit(opened.permit(both), both).committed == both
    assert len(visible(table)) == (3 if how == "file" else 2)
    assert hidden(table) == []


def test_a_foreign_file_is_never_replaced(table: Path) -> None:
    """A file of that very name with other content stops the commit; a copy of the staged one
    does not.
    """
    opened = OpenedSink(FileSink(table))
    for content, batch_id in ((None, 0), (b"other", 1)):
        [prepared] = opened.prepare(rows(batch_id, 0), batch_id=batch_id)
        [staged] = [Path(f) for f in hidden(table) if prepared.identity in f]
        target = table / f"part-{prepared.identity}-0.parquet"
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
        write_run(task)
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
    with pytest.raises(SettingRefused, match="does not see the staging"):
        task.prepare()
    assert not table.exists()


def test_what_dead_tasks_have_half_written_goes(table: Path) -> None:
    """Of this run or of a run that was killed; what names no transaction an hour later."""
    opened = OpenedSink(FileSink(table))
    for dead in (opened, OpenedSink(FileSink(table))):
        task = dead.writer()
        task.write(rows(0, 0))
        write_run(task)
        assert [Path(f).suffix for f in hidden(table)] == [".tmp"]
        opened.participant.abort(opened.participant.list_open())
        assert hidden(table) == []
        task.abort()
    (scope,) = (table / ".exactum").iterdir()
    left = [scope / ".1.tmp", scope / ".2.tmp"]
    for file in left:
        file.touch()
    os.utime(left[0], (time.time() - 7_200,) * 2)
    OpenedSink(FileSink(table)).commit(rows(0, 0))
    assert [file.name for file in scope.glob("*.tmp")] == [left[1].name]


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_under_weaker_guarantees_the_driver_delivers(table: Path, guarantee: Guarantee) -> None:
    """Without a marker. Nothing stays staged; of an attempt that lacks a file it says so."""
    opened = OpenedSink(FileSink(table, partition_by="day"), guarantee=guarantee)
    prepared = opened.prepare(rows(0, 0), rows(0, 1))
    assert visible(table) == []
    assert delivers(opened.participant)
    opened.participant.deliver(prepared)
    assert ids_in(table) == expected([0], 2)
    assert hidden(table) == hidden(table, "published-") == []
    prepared = opened.prepare(rows(1, 0), batch_id=1)
    opened.participant.abort(opened.participant.list_open())
    with pytest.raises(EpochAborted, match="are gone"):
        opened.participant.deliver(prepared)
    assert ids_in(table) == expected([0], 2)
