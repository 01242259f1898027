"""Iceberg tables as targets: what comes into them, once, whoever else writes and tidies up there."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.protocol.inspection import TransactionState
from exactum.protocol.sink import Guarantee
from tests.kit.errors import raised
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import Query, at_once, columns_of, numbers

COLUMNS = (("id", "bigint"),)
TWO = (("id", "bigint"), ("v", "string"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def query_of(lake: Lake, **more: Any) -> Query:
    return Query(lake.sink(**more), COLUMNS)


# ---- appending -----------------------------------------------------------------------------------


def test_one_snapshot_for_each_epoch(lake: Lake) -> None:
    """However many tasks and files; with what each file holds, partition by partition."""
    frame = numbers(1, 2, 3, day=["a", "b/ä %=", None])
    query = Query(lake.sink(partition_by="day"), columns_of(frame))
    query.write(0, frame, numbers(4, day=[""]))
    assert len(lake.table.snapshots()) == 1
    found = lake.read().to_pylist()
    assert sorted((row["id"], row["day"]) for row in found) == [
        (1, "a"), (2, "b/ä %="), (3, None), (4, ""),
    ]  # fmt: skip
    for file in lake.table.inspect.files().to_pylist():
        known = file["readable_metrics"]
        assert file["record_count"] == 1
        assert known["id"]["null_value_count"] == 0
        assert known["id"]["lower_bound"] == known["id"]["upper_bound"]
    for text, wanted in (("a", 1), ("b/ä %=", 2), ("", 4)):
        rows = lake.read(row_filter=EqualTo("day", text))
        assert rows["id"].to_pylist() == [wanted]
    assert lake.read(row_filter="id > 1 and day is null")["id"].to_pylist() == [3]


def test_columns_of_files_have_the_ids_of_the_table(lake: Lake) -> None:
    """So a reader finds them after they were renamed."""
    inner = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.string()))])
    frame = pa.record_batch(
        {"id": [1], "s": pa.array([{"a": 5, "l": ["x"]}], inner)},
        schema=pa.schema([("id", pa.int64()), ("s", inner)]),
    )
    columns = (("id", "bigint"), ("s", "struct<a:bigint,l:array<string>>"))
    Query(lake.sink(), columns).write(0, frame)
    with lake.table.update_schema() as update:
        update.rename_column("id", "number")
        update.rename_column(("s", "a"), "b")
    assert lake.read().to_pylist() == [{"number": 1, "s": {"b": 5, "l": ["x"]}}]


def test_a_file_has_the_sort_order_of_its_table(lake: Lake) -> None:
    frame = pa.record_batch({"id": pa.array([2, 1, None, 3]), "v": ["b", "a", "c", "a"]})
    Query(lake.sink(sort_by=["v desc", "id"]), TWO).write(0, frame)
    (file,) = lake.data.glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [(row["v"], row["id"]) for row in rows] == [("c", None), ("b", 2), ("a", 1), ("a", 3)]
    assert "1 DESC" not in str(lake.table.sort_order())
    assert "2 DESC" in str(lake.table.sort_order())


@pytest.mark.parametrize(("asked", "is_now"), [("gzip", "GZIP"), ("lzo", "ZSTD"), (None, "ZSTD")])
def test_a_file_is_compressed_as_its_table_says(asked: str | None, is_now: str, lake: Lake) -> None:
    known = {} if asked is None else {"write.parquet.compression-codec": asked}
    lake.create(pa.schema([("id", pa.int64())]), **known)
    query_of(lake).write(0, numbers(1))
    (file,) = lake.data.glob("*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == is_now
    assert lake.ids() == [1]


def test_a_branch(lake: Lake) -> None:
    """Of a table whose rows are audited before main has them."""
    lake.create(pa.schema([("id", pa.int64())]))
    lake.foreign(1)
    lake.branch("audit")
    lake.table.transaction().set_properties({"write.wap.enabled": "true"}).commit_transaction()
    query = query_of(lake, branch="audit")
    query.write(0, numbers(2))
    query.write(1, numbers(3))
    assert lake.ids() == [1]
    assert lake.ids("audit") == [1, 2, 3]
    assert sum(lake.sink(branch="audit")._rows_by_task().values()) == 2
    assert lake.sink()._rows_by_task() == {}


def test_rows_that_the_table_cannot_hold_are_put_aside(lake: Lake) -> None:
    lake.create(pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
    frame = pa.record_batch({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]})
    query = Query(lake.sink(), TWO)
    query.write(0, frame)
    (rejection,) = query.rejected
    assert rejection.rows.to_pydict() == {"id": [None], "v": ["b"]}
    assert "NOT NULL" in rejection.reasons[0]
    assert lake.ids() == [1]


def test_columns_that_the_frame_has_not_are_null(lake: Lake) -> None:
    lake.create(pa.schema([("id", pa.int64()), ("more", pa.string())]))
    query_of(lake).write(0, numbers(1))
    assert lake.read().to_pylist() == [{"id": 1, "more": None}]


def test_columns_are_added_where_that_is_asked(lake: Lake) -> None:
    query_of(lake).write(0, numbers(1))
    frame = numbers(2, more=["x"])
    Query(lake.sink(merge_schema=True), columns_of(frame)).write(1, frame)
    rows = sorted(lake.read().to_pylist(), key=lambda row: row["id"])
    assert rows == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_weaker_guarantees_leave_no_marker(guarantee: Guarantee, lake: Lake) -> None:
    query = Query(lake.sink(), COLUMNS, guarantee)
    query.participant.deliver(query.prepare(0, numbers(1)))
    assert lake.ids() == [1]
    assert query.participant.last_batch() is None


def test_what_a_commit_writes_has_a_bound(lake: Lake) -> None:
    """Manifests are merged also where the table does not say it, and old metadata is removed from a
    table that was made here.
    """
    lake.create(pa.schema([("id", pa.int64())]), **{"commit.manifest.min-count-to-merge": "3"})
    query = query_of(lake)
    for batch_id in range(8):
        query.write(batch_id, numbers(batch_id))
    assert lake.ids() == list(range(8))
    assert len(lake.table.inspect.manifests()) <= 3


def test_old_metadata_is_removed(lake: Lake) -> None:
    query = query_of(lake)
    with lake.table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "3"})
    for batch_id in range(8):
        query.write(batch_id, numbers(batch_id))
    assert len(list((lake.data.parent / "metadata").glob("*.metadata.json"))) <= 5
    assert lake.ids() == list(range(8))


# ---- others at the table -------------------------------------------------------------------------


def race(lake: Lake, batches: int) -> None:
    """Two drivers carry out each decision at once, while somebody else appends: no row is lost, and
    none is there twice.
    """
    query, successor = query_of(lake), query_of(lake)
    stop, theirs = threading.Event(), itertools.count(1_000_000)

    def append() -> None:
        while not stop.is_set():
            lake.table.append(pa.table({"id": [next(theirs)]}))

    again = {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "200"}
    lake.table.transaction().set_properties(again).commit_transaction()
    foreign = threading.Thread(target=append)
    foreign.start()
    try:
        for batch_id in range(batches):
            permit = query.decide(batch_id, query.prepare(batch_id, numbers(batch_id)))
            at_once(query.commit, successor.commit, permit=permit)
    finally:
        stop.set()
        foreign.join()
        query.participant.close()
        successor.participant.close()
    found = lake.ids()
    last = next(theirs)
    assert [i for i in found if i < 1_000_000] == list(range(batches))
    assert [i for i in found if i >= 1_000_000] == list(range(1_000_000, last))
    assert last > 1_000_000


def test_others_append_all_the_time(lake: Lake) -> None:
    race(lake, 8)


def foreign_before_the_commit(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, branch: str = "main"
) -> None:
    """Somebody appends between the load of the table and its commit."""
    real = Table._do_commit

    def late(self: Table, *args: Any) -> None:
        monkeypatch.setattr(Table, "_do_commit", real)
        lake.table.append(pa.table({"id": [100]}), branch=branch)
        real(self, *args)

    monkeypatch.setattr(Table, "_do_commit", late)


@pytest.mark.parametrize("step", ["prepared", "verified", "loaded", "committed"])
def test_a_foreign_commit_between_two_steps(
    step: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = query_of(lake)
    prepared = query.prepare(0, numbers(1))
    if step == "prepared":
        lake.foreign(100)
    permit = query.decide(0, prepared)
    if step == "verified":
        lake.foreign(100)
    if step == "loaded":
        foreign_before_the_commit(lake, monkeypatch)
    query.commit(permit)
    if step == "committed":
        lake.foreign(100)
    query_of(lake).commit(permit)
    assert lake.ids() == [1, 100]
    assert len(lake.table.snapshots()) == 2


def test_a_foreign_commit_to_another_branch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves main's snapshot as it was, and takes the number that the next one would have."""
    query = query_of(lake)
    query.write(0, numbers(1))
    lake.branch("other")
    permit = query.decide(1, query.prepare(1, numbers(2)))
    foreign_before_the_commit(lake, monkeypatch, "other")
    assert query.commit(permit).expired == ()
    assert lake.ids() == [1, 2]
    assert lake.ids("other") == [1, 100]


def test_compaction_and_expiry(lake: Lake) -> None:
    """Of what waits they take nothing; what they have taken of a finished batch does not come
    again, and the marker outlives every snapshot.
    """
    query = query_of(lake)
    first = query.decide(0, query.prepare(0, numbers(1)))
    query.commit(first)
    query.write(1, numbers(2))
    waits = query.decide(2, query.prepare(2, numbers(3)))
    lake.table.overwrite(lake.read())
    table = lake.table
    old = [s.snapshot_id for s in table.snapshots() if s != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    for file in lake.data.glob("part-*.parquet"):  # as a removal of orphans
        file.unlink()
    query.commit(first)
    query.commit(waits)
    assert lake.ids() == [1, 2, 3]
    assert query.participant.list_open() == []
    assert len(lake.table.snapshots()) == 2


def test_a_table_that_was_made_anew(lake: Lake) -> None:
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    query.commit(permit)
    prepared = query.prepare(1, numbers(2))
    lake.catalog.drop_table(TABLE)
    lake.create(pa.schema([("id", pa.int64())]))
    with raised(SettingRefused, "LAKE_TABLE"):
        query.participant.verify(prepared)
    later = query_of(lake).participant
    assert later.last_batch(permit.record.prepared) == -1
    assert later.last_batch() is None


def test_a_batch_that_the_table_has_is_refused(lake: Lake) -> None:
    """From other files, or a later one: the checkpoint or the log is an older copy."""
    query_of(lake).write(3, numbers(1))
    query = query_of(lake)
    for batch_id in (2, 3):
        prepared = query.prepare(batch_id, numbers(9))
        with pytest.raises(CheckpointRefused):
            query.participant.verify(prepared)
    assert query.participant.last_batch() == 3
    query.participant.forget_batches()
    assert query.participant.last_batch() is None
    query.write(2, numbers(2))
    assert lake.ids() == [1, 2]


def test_two_logs_that_decided_the_same_batch(lake: Lake) -> None:
    one, two = query_of(lake), query_of(lake)
    permits = [q.decide(0, q.prepare(0, numbers(n))) for n, q in enumerate((one, two))]
    one.commit(permits[0])
    with pytest.raises(HeuristicOutcome) as stopped:
        two.commit(permits[1])
    assert stopped.value.code == "TARGET_DIFFERS"
    assert lake.ids() == [0]


# ---- a table that changes while an epoch is in doubt -----------------------------------------------


def rename(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("v", "w")


def drop(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("v")


def replace(table: Table) -> None:
    """Another column of the same name: what a file has for the former is not for this one."""
    drop(table)
    with table.refresh().update_schema() as update:
        update.union_by_name(pa.schema([("v", pa.string())]))


def widen(table: Table) -> None:
    with table.update_schema() as update:
        update.union_by_name(pa.schema([("more", pa.int64())]))


CHANGES: dict[Callable[[Table], None], dict[str, Any]] = {
    rename: {"w": "a"},
    drop: {},
    replace: {"v": None},
    widen: {"v": "a", "more": None},
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_schema_changes_after_the_decision(change: Callable[[Table], None], lake: Lake) -> None:
    """The rows come into the table as if they had come before the change."""
    query = Query(lake.sink(), TWO)
    permit = query.decide(0, query.prepare(0, numbers(1, v=["a"])))
    change(lake.table)
    query.commit(permit)
    assert lake.read().to_pylist() == [{"id": 1, **CHANGES[change]}]
    if change is replace:
        assert lake.read(row_filter="v is null").num_rows == 1


@pytest.mark.parametrize("change", [rename, drop, replace])
def test_the_schema_changes_before_the_decision(
    change: Callable[[Table], None], lake: Lake
) -> None:
    """Later batches would lose the column: the query stops, and a new start sees the table."""
    query = Query(lake.sink(), TWO)
    prepared = query.prepare(0, numbers(1, v=["a"]))
    change(lake.table)
    with raised(SettingRefused, "LAKE_TABLE", "'v'"):
        query.participant.verify(prepared)
    assert lake.table.current_snapshot() is None


def test_the_partitions_change_after_the_decision(lake: Lake) -> None:
    """Nothing is lost: the query stops, and goes on when they are as before."""
    query = Query(lake.sink(), TWO)
    permit = query.decide(0, query.prepare(0, numbers(1, v=["a"])))
    with lake.table.update_spec() as spec:
        spec.add_identity("v")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "partition columns"):
        query.commit(permit)
    with lake.table.update_spec() as spec:
        spec.remove_field("v")
    query.commit(permit)
    assert lake.ids() == [1]


# ---- what dies, and what is gone -----------------------------------------------------------------


def dying(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The next commit of the table fails as one whose answer is lost, before or after its effect."""
    real = Table._do_commit

    def once(self: Table, *args: Any) -> None:
        monkeypatch.setattr(Table, "_do_commit", real)
        if after:
            real(self, *args)
        raise OSError("the answer was lost")

    monkeypatch.setattr(Table, "_do_commit", once)


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_was_lost(after: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker tells, at once."""
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    dying(monkeypatch, after=after)
    assert query.commit(permit).expired == ()
    query_of(lake).commit(permit)
    assert lake.ids() == [1]
    assert len(lake.table.snapshots()) == 1


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_was_lost_without_a_marker(
    after: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell, so nobody tries again: at most once is at most once."""
    query = Query(lake.sink(), COLUMNS, Guarantee.AT_MOST_ONCE)
    prepared = query.prepare(0, numbers(1))
    dying(monkeypatch, after=after)
    with raised(OutcomeUnknown, "the answer was lost"):
        query.participant.deliver(prepared)
    assert len(lake.table.snapshots()) == after


def test_decided_rows_that_somebody_removed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash between their move and the commit a removal of orphans finds files that no
    snapshot names. The query stops and names them, and goes on when they are put back.
    """
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1, 2), numbers(3)))

    def dies(self: Table, *args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", dies)
        with pytest.raises(KeyboardInterrupt):
            query.commit(permit)
    files = sorted(lake.data.glob("part-*.parquet"))
    assert len(files) == 2
    away = lake.folder / files[0].name
    files[0].rename(away)
    for stopped in (query, query_of(lake)):
        expired = stopped.commit(permit).expired
        assert len(expired) == 2
        with pytest.raises(HeuristicOutcome) as gone:
            stopped.participant.salvage(permit, expired)
        assert "with 2 rows" in str(gone.value)
        assert "0000000000-0-0-" in str(gone.value)
    assert lake.table.current_snapshot() is None
    away.rename(files[0])
    query.commit(permit)
    assert lake.ids() == [1, 2, 3]


def test_rows_that_were_loaded_by_hand(lake: Lake) -> None:
    """The text of the error is a program that tells the table so."""
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    for file in lake.staged():
        file.unlink()
    report = query.commit(permit)
    with pytest.raises(HeuristicOutcome) as gone:
        query.participant.salvage(permit, report.expired)
    lake.foreign(1)
    program = str(gone.value).partition("that they are there: ")[2]
    exec(program, {"CATALOG": dict(lake.settings)})
    assert query.commit(permit).expired == ()
    assert lake.ids() == [1]


def test_a_staged_file_that_is_gone_before_the_decision(lake: Lake) -> None:
    query = query_of(lake)
    prepared = query.prepare(0, numbers(1))
    for file in lake.staged():
        file.unlink()
    with pytest.raises(EpochAborted):
        query.participant.verify(prepared)


def test_what_an_operator_sees(lake: Lake) -> None:
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    inspector = lake.sink().inspector(query.run.query_id, "lake")
    assert [v.state for v in inspector.list_open()] == [TransactionState.PREPARED]
    inspector.participant().commit(permit, permit.record.prepared)
    assert inspector.list_open() == []
    assert [v.state for v in inspector.describe(permit.record.prepared)] == [
        TransactionState.COMMITTED
    ]
    inspector.close()
    assert lake.ids() == [1]


def test_a_table_that_is_gone_while_rows_wait(lake: Lake) -> None:
    query = query_of(lake)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    location = lake.table.metadata_location
    lake.catalog.drop_table(TABLE)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "not there any more"):
        query.commit(permit)
    with raised(SettingRefused, "LAKE_TABLE"):
        lake.sink().inspector(query.run.query_id, "lake")
    lake.catalog.register_table(TABLE, location)
    query.commit(permit)
    assert lake.ids() == [1]
