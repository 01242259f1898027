"""Delta tables as targets: what comes into them, once, whoever else writes and tidies up there."""

from __future__ import annotations

import contextlib
import itertools
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.lake.delta import DeltaSink
from exactum.protocol.inspection import TransactionState
from exactum.protocol.sink import Guarantee
from tests.kit.errors import raised
from tests.kit.files.s3_server import s3_server
from tests.kit.lake.tables import Query, at_once, columns_of, ids, new_table, numbers, read

COLUMNS = (("id", "bigint"),)
STARTS_MAX = 20


def version(table: Path) -> int:
    return DeltaTable(str(table)).version()


# ---- appending -----------------------------------------------------------------------------------


def test_one_version_for_each_epoch(table: Path) -> None:
    """However many tasks and files; with what each file holds, partition by partition."""
    frame = numbers(1, 2, 3, day=["a", "b/ä %=", None])
    query = Query(DeltaSink(table, partition_by="day"), columns_of(frame))
    query.write(0, frame, numbers(4, day=["a"]))
    assert version(table) == 1  # the first one made it
    rows = read(table).to_pylist()
    assert sorted(map(str, rows)) == sorted(
        map(
            str,
            [
                {"id": 1, "day": "a"},
                {"id": 2, "day": "b/ä %="},
                {"id": 3, "day": None},
                {"id": 4, "day": "a"},
            ],
        )
    )
    adds = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    assert sorted((a["num_records"], a["min.id"], a["max.id"], a["null_count.id"]) for a in adds) == [
        (1, 1, 1, 0), (1, 2, 2, 0), (1, 3, 3, 0), (1, 4, 4, 0),
    ]  # fmt: skip


def test_files_are_of_bounded_size(table: Path) -> None:
    texts = [f"{n:0>400}" for n in range(4_000)]
    frame = numbers(*range(4_000), s=texts)
    query = Query(DeltaSink(table, bytes_per_file_max=20_000), columns_of(frame))
    query.write(0, frame)
    sizes = [f.stat().st_size for f in table.glob("*.parquet")]
    assert len(sizes) > 3
    assert max(sizes) < 200_000
    assert read(table).num_rows == 4_000


def test_a_list_of_files_that_is_too_long_for_the_record(table: Path) -> None:
    frame = numbers(*range(300), day=[f"d{n}" for n in range(300)])
    query = Query(DeltaSink(table, partition_by="day"), columns_of(frame))
    assert query.write(0, frame).expired == ()
    assert ids(table) == list(range(300))


def test_rows_that_the_table_cannot_hold_are_put_aside(table: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])
    new_table(table, schema, partition_by=["day"])
    frame = pa.record_batch(
        {"id": pa.array([1, None, 3], pa.int64()), "day": pa.array(["a", "a", ""])}
    )
    query = Query(DeltaSink(table), columns_of(frame))
    query.write(0, frame)
    (rejection,) = query.rejected
    assert rejection.rows.to_pydict() == {"id": [None, 3], "day": ["a", ""]}
    assert "NOT NULL" in rejection.reasons[0]
    assert "empty text" in rejection.reasons[1]
    assert ids(table) == [1]


def test_columns_that_the_frame_has_not_are_null(table: Path) -> None:
    new_table(table, pa.schema([("id", pa.int64()), ("more", pa.string())]))
    Query(DeltaSink(table), COLUMNS).write(0, numbers(1))
    assert read(table).to_pylist() == [{"id": 1, "more": None}]


def test_columns_are_added_where_that_is_asked(table: Path) -> None:
    Query(DeltaSink(table), COLUMNS).write(0, numbers(1))
    frame = numbers(2, more=["x"])
    Query(DeltaSink(table, merge_schema=True), columns_of(frame)).write(1, frame)
    assert sorted(map(str, read(table).to_pylist())) == sorted(
        map(str, [{"id": 1, "more": None}, {"id": 2, "more": "x"}])
    )


@pytest.mark.parametrize("guarantee", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_weaker_guarantees_leave_no_marker(guarantee: Guarantee, table: Path) -> None:
    query = Query(DeltaSink(table), COLUMNS, guarantee)
    query.participant.deliver(query.prepare(0, numbers(1)))
    assert ids(table) == [1]
    assert query.participant.last_batch() is None


# ---- others at the table -------------------------------------------------------------------------


def test_others_append_all_the_time(table: Path) -> None:
    """Two drivers carry out each decision at once, while somebody else appends: no row is lost, and
    none is there twice.
    """
    query = Query(DeltaSink(table), COLUMNS)
    successor = Query(DeltaSink(table), COLUMNS)
    stop, theirs = threading.Event(), itertools.count(1_000_000)

    def append() -> None:
        while not stop.is_set():
            write_deltalake(str(table), pa.table({"id": [next(theirs)]}), mode="append")

    foreign = threading.Thread(target=append)
    foreign.start()
    try:
        for batch_id in range(15):
            permit = query.decide(batch_id, query.prepare(batch_id, numbers(batch_id)))
            at_once(query.commit, successor.commit, permit=permit)
    finally:
        stop.set()
        foreign.join()
    found = ids(table)
    last = next(theirs)
    assert [i for i in found if i < 1_000_000] == list(range(15))
    assert [i for i in found if i >= 1_000_000] == list(range(1_000_000, last))
    assert last > 1_000_000


def test_compaction_and_vacuum(table: Path) -> None:
    """Of what waits they take nothing; what they have taken of a finished batch does not come
    again.
    """
    query = Query(DeltaSink(table), COLUMNS)
    first = query.decide(0, query.prepare(0, numbers(1)))
    query.commit(first)
    query.write(1, numbers(2))
    waits = query.decide(2, query.prepare(2, numbers(3)))
    DeltaTable(str(table)).optimize.compact()
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not (table / "part-x").exists()
    query.commit(first)
    query.commit(waits)
    assert ids(table) == [1, 2, 3]
    assert query.participant.list_open() == []


def test_a_table_that_was_made_anew(table: Path) -> None:
    """While a batch is written; and between two starts, where the log says what it had."""
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    query.commit(permit)
    prepared = query.prepare(1, numbers(2))
    (log,) = [table / "_delta_log"]
    log.rename(table.parent / "old")
    for file in table.glob("*.parquet"):
        file.unlink()
    new_table(table, pa.schema([("id", pa.int64())]))
    with raised(SettingRefused, "LAKE_TABLE"):
        query.participant.verify(prepared)
    later = Query(DeltaSink(table), COLUMNS).participant
    assert later.last_batch(permit.record.prepared) == -1
    assert later.last_batch() is None


def test_a_batch_that_the_table_has_is_refused(table: Path) -> None:
    """From other files, or a later one: the checkpoint or the log is an older copy."""
    Query(DeltaSink(table), COLUMNS).write(3, numbers(1))
    query = Query(DeltaSink(table), COLUMNS)
    for batch_id in (2, 3):
        prepared = query.prepare(batch_id, numbers(9))
        with pytest.raises(CheckpointRefused):
            query.participant.verify(prepared)
    assert query.participant.last_batch() == 3
    query.participant.forget_batches()
    assert query.participant.last_batch() is None
    query.write(2, numbers(2))
    assert ids(table) == [1, 2]


def test_two_logs_that_decided_the_same_batch(table: Path) -> None:
    one, two = Query(DeltaSink(table), COLUMNS), Query(DeltaSink(table), COLUMNS)
    permits = [q.decide(0, q.prepare(0, numbers(n))) for n, q in enumerate((one, two))]
    one.commit(permits[0])
    with pytest.raises(HeuristicOutcome) as stopped:
        two.commit(permits[1])
    assert stopped.value.code == "TARGET_DIFFERS"
    assert ids(table) == [0]


# ---- what dies, and what is gone -----------------------------------------------------------------


def dying(monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The next commit of the table fails as one whose answer is lost, before or after its effect."""
    real = DeltaTable.create_write_transaction

    def once(self: DeltaTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        if after:
            real(self, *args, **more)
        raise OSError("the answer was lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", once)


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_was_lost(after: bool, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    dying(monkeypatch, after=after)
    with raised(OutcomeUnknown, "the answer was lost"):
        query.commit(permit)
    Query(DeltaSink(table), COLUMNS).commit(permit)
    assert ids(table) == [1]
    assert version(table) == 1


def test_decided_rows_that_somebody_removed(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash between their move and the commit a VACUUM finds files that no version names.
    The query stops and names them, and goes on when they are put back, or when a person says so.
    """
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1, 2), numbers(3)))
    dying(monkeypatch, after=False)
    with pytest.raises(OutcomeUnknown):
        query.commit(permit)
    files = sorted(table.glob("part-*.parquet"))
    assert len(files) == 2
    away = table.parent / files[0].name
    files[0].rename(away)
    for stopped in (query, Query(DeltaSink(table), COLUMNS)):
        expired = stopped.commit(permit).expired
        assert len(expired) == 2
        with pytest.raises(HeuristicOutcome) as gone:
            stopped.participant.salvage(permit, expired)
        assert "with 2 rows" in str(gone.value)
        assert "0000000000-0-0-" in str(gone.value)
    assert not DeltaTable(str(table)).file_uris()
    away.rename(files[0])
    query.commit(permit)
    assert ids(table) == [1, 2, 3]


def test_rows_that_were_loaded_by_hand(tmp_path: Path) -> None:
    """The text of the error is a program that tells the table so."""
    table = tmp_path / "a {table}"
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    for file in table.glob(".exactum/*/*.staged"):
        file.unlink()
    report = query.commit(permit)
    with pytest.raises(HeuristicOutcome) as gone:
        query.participant.salvage(permit, report.expired)
    write_deltalake(str(table), pa.table({"id": [1]}), mode="append")
    exec(str(gone.value).partition("that they are there: ")[2], {})
    assert query.commit(permit).expired == ()
    assert ids(table) == [1]


def test_a_staged_file_that_is_gone_before_the_decision(table: Path) -> None:
    query = Query(DeltaSink(table), COLUMNS)
    prepared = query.prepare(0, numbers(1))
    for file in table.glob(".exactum/*/*.staged"):
        file.unlink()
    with pytest.raises(EpochAborted):
        query.participant.verify(prepared)


def test_what_an_operator_sees(table: Path) -> None:
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    inspector = DeltaSink(table).inspector(query.run.query_id, "lake")
    assert [v.state for v in inspector.list_open()] == [TransactionState.PREPARED]
    inspector.participant().commit(permit, permit.record.prepared)
    assert inspector.list_open() == []
    assert [v.state for v in inspector.describe(permit.record.prepared)] == [
        TransactionState.COMMITTED
    ]
    inspector.close()
    assert ids(table) == [1]


def test_a_table_that_became_another_before_a_redelivery(table: Path) -> None:
    """Its columns were replaced after the decision: the rows are not added to what they do not
    fit, and are not lost.
    """
    query = Query(DeltaSink(table), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    write_deltalake(str(table), pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "'id'", "bigint"):
        DeltaSink(table).inspector(query.run.query_id, "lake").participant().commit(
            permit, permit.record.prepared
        )
    assert list(table.glob(".exactum/*/*.staged"))


# ---- upserts -------------------------------------------------------------------------------------

CHANGES = pa.schema([("id", pa.int64()), ("v", pa.string()), ("gone", pa.bool_())])


def changes(*rows: tuple[int | None, str | None, bool | None]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)], schema=CHANGES
    )


def upsert(table: Path, **more: Any) -> DeltaSink:
    return DeltaSink(table, mode="upsert", key="id", delete_when="gone", **more)


def values(table: Path) -> dict[int, str]:
    rows = read(table).to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_upsert(table: Path) -> None:
    """The later row of a key counts, also when it deletes, and also in another task."""
    query = Query(upsert(table), columns_of(changes((1, "a", None))))
    query.write(0, changes((1, "a", None), (2, "b", False), (1, "c", False), (3, "d", True)))
    assert values(table) == {1: "c", 2: "b"}
    query.write(
        1, changes((2, "x", True), (4, "e", None)), changes((2, "again", False), (1, "y", True))
    )
    assert values(table) == {2: "again", 4: "e"}
    query.write(2, changes((None, "no key", False), (5, "f", False)))
    assert values(table) == {2: "again", 4: "e", 5: "f"}
    assert "key" in query.rejected[0].reasons[0]


def test_an_upsert_is_merged_once(table: Path) -> None:
    """Redelivered after another batch: the older row does not come back."""
    query = Query(upsert(table), columns_of(changes((1, "a", None))))
    first = query.decide(0, query.prepare(0, changes((1, "old", False))))
    query.commit(first)
    query.write(1, changes((1, "new", False)))
    Query(upsert(table), columns_of(changes((1, "a", None)))).commit(first)
    assert values(table) == {1: "new"}


def test_an_upsert_leaves_columns_that_it_has_not(table: Path) -> None:
    new_table(table, pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.int64())]))
    write_deltalake(
        str(table), pa.table({"id": [1, 2], "v": ["a", "b"], "w": [10, 20]}), mode="append"
    )
    query = Query(upsert(table), columns_of(changes((1, "a", None))))
    query.write(0, changes((1, "x", False), (3, "c", False)))
    rows = sorted(read(table).to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "v": "x", "w": 10},
        {"id": 2, "v": "b", "w": 20},
        {"id": 3, "v": "c", "w": None},
    ]


def insist(query: Query, permit: Any) -> None:
    """As starts one after another: on a busy machine others may come first more often than an
    upsert tries.
    """
    for _ in range(STARTS_MAX):
        with contextlib.suppress(OutcomeUnknown):
            query.commit(permit)
            return
    raise AssertionError("others always came first")


def test_two_drivers_upsert_while_others_append(table: Path) -> None:
    query, successor = (Query(upsert(table), columns_of(changes((1, "a", None)))) for _ in "12")
    stop, theirs = threading.Event(), itertools.count(1_000_000)

    def append() -> None:
        while not stop.wait(1.0):  # a merge has to fit in between
            row = pa.table({"id": [next(theirs)], "v": ["theirs"]})
            while True:
                try:
                    write_deltalake(str(table), row, mode="append")
                    break
                except CommitFailedError:  # it asks others to write again
                    continue

    foreign = threading.Thread(target=append)
    foreign.start()
    try:
        for batch_id in range(4):
            rows = changes((0, f"{batch_id}", False), (batch_id + 1, "x", False))
            permit = query.decide(batch_id, query.prepare(batch_id, rows))
            at_once(partial(insist, query), partial(insist, successor), permit=permit)
    finally:
        stop.set()
        foreign.join()
    found = values(table)
    assert found[0] == "3"
    assert sorted(i for i in found if i < 1_000_000) == list(range(5))
    assert sum(i >= 1_000_000 for i in found) == next(theirs) - 1_000_000


@pytest.mark.parametrize("name", ['a "b', "a`b", "sElect", "ä.b"])
def test_names_are_quoted(name: str, table: Path) -> None:
    frame = pa.record_batch({name: pa.array([1, 2], pa.int64()), "v": ["a", "b"]})
    if " " in name:
        with pytest.raises(Exception, match="LAKE_COLUMNS"):
            Query(DeltaSink(table, mode="upsert", key=name), columns_of(frame))
        return
    query = Query(DeltaSink(table, mode="upsert", key=name), columns_of(frame))
    query.write(0, frame)
    query.write(1, pa.record_batch({name: pa.array([2], pa.int64()), "v": ["c"]}))
    rows = read(table)
    assert dict(zip(rows[name].to_pylist(), rows["v"].to_pylist(), strict=True)) == {1: "a", 2: "c"}


# ---- object stores -------------------------------------------------------------------------------


def test_an_object_store() -> None:
    """Read back by delta-rs alone, with the same settings."""
    with s3_server("kept") as server:
        sink = DeltaSink("s3://bucket/t", store=server.settings)
        query = Query(sink, COLUMNS)
        permit = query.decide(0, query.prepare(0, numbers(1), numbers(2)))
        query.commit(permit)
        Query(sink, COLUMNS).commit(permit)
        query.write(1, numbers(3))
        options = {k: str(v).lower() for k, v in server.settings.items()}
        table = DeltaTable("s3://bucket/t", storage_options=options)
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
        assert not [key for key in server.objects if ".staged" in key]
