"""What only Delta tables do, or do in a way of their own. (What both formats have in common:
test_tables.py.)
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from exactum.errors import (
    FrameRefused,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.lake.delta import DeltaSink
from exactum.lake.types import arrow_type
from exactum.values.times import DAY_FIRST, DAY_LAST
from tests.kit.errors import raised
from tests.kit.files.s3_server import s3_server
from tests.kit.lake.tables import (
    Delta,
    at_once,
    columns_of,
    numbers,
    refusal,
)
from tests.kit.lake.values import KINDS, batch_of
from tests.kit.opened_sink import OpenedSink

COLUMNS = (("id", "bigint"),)
SCHEMA = pa.schema([("id", pa.int64())])
STARTS_MAX = 20
Change = Callable[[Delta], None]


def test_statistics_of_files(delta: Delta) -> None:
    """What each file holds, partition by partition."""
    frame = numbers(1, 2, 3, day=["a", "b/ä %=", None])
    query = OpenedSink(delta.sink(partition_by="day"), columns_of(frame))
    query.write(frame, numbers(4, day=["a"]))
    adds = pa.table(delta.table.get_add_actions(flatten=True)).to_pylist()
    assert sorted((a["num_records"], a["min.id"], a["max.id"], a["null_count.id"]) for a in adds) == [
        (1, 1, 1, 0), (1, 2, 2, 0), (1, 3, 3, 0), (1, 4, 4, 0),
    ]  # fmt: skip


def test_readers_find_nulls_of_a_column_that_the_frame_has_not(delta: Delta) -> None:
    delta.create(pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    OpenedSink(delta.sink(), COLUMNS).write(numbers(1, 2))
    nulls = delta.table.to_pyarrow_dataset().to_table(filter=pc.field("n").is_null())
    assert sorted(nulls["id"].to_pylist()) == [1, 2]


def test_the_empty_text_is_no_partition(delta: Delta) -> None:
    frame = numbers(1, 3, day=["a", ""])
    query = OpenedSink(delta.sink(partition_by="day"), columns_of(frame))
    query.write(frame)
    (rejection,) = query.rejections
    assert rejection.rows.to_pydict() == {"id": [3], "day": [""]}
    assert "empty text" in rejection.reasons[0]
    assert delta.ids() == [1]


def test_files_are_of_bounded_size(delta: Delta) -> None:
    texts = [f"{n:0>400}" for n in range(4_000)]
    frame = numbers(*range(4_000), s=texts)
    query = OpenedSink(delta.sink(bytes_per_file_max=20_000), columns_of(frame))
    query.write(frame)
    sizes = [f.stat().st_size for f in delta.path.glob("*.parquet")]
    assert len(sizes) > 3
    assert max(sizes) < 200_000
    assert delta.read().num_rows == 4_000


def test_hundreds_of_files_of_one_task(delta: Delta) -> None:
    frame = numbers(*range(300), day=[f"d{n}" for n in range(300)])
    query = OpenedSink(delta.sink(partition_by="day"), columns_of(frame))
    assert query.commit(query.decide(frame)).expired == ()
    assert delta.ids() == list(range(300))


def test_a_table_that_became_another_before_a_redelivery(delta: Delta) -> None:
    """Its columns were replaced after the decision: the rows are not added to what they do not
    fit, and are not lost.
    """
    query = OpenedSink(delta.sink(), COLUMNS)
    permit = query.decide(numbers(1))
    write_deltalake(
        str(delta.path), pa.table({"id": ["a"]}), mode="overwrite", schema_mode="overwrite"
    )
    with raised(HeuristicOutcome, "TARGET_REFUSES", "'id'", "bigint"):
        delta.sink().inspector(query.run.query_id, query.participant.name).participant().commit(
            permit, permit.record.prepared
        )
    assert list(delta.path.glob(".exactum/*/*.staged"))


# ---- upserts -------------------------------------------------------------------------------------

CHANGES = pa.schema([("id", pa.int64()), ("v", pa.string()), ("gone", pa.bool_())])


def changes(*rows: tuple[int | None, str | None, bool | None]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    return pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)], schema=CHANGES
    )


def upserting(delta: Delta) -> OpenedSink:
    """A driver that writes ``changes``."""
    sink = delta.sink(mode="upsert", key="id", delete_when="gone")
    return OpenedSink(sink, (*COLUMNS, ("v", "string"), ("gone", "boolean")))


def values(delta: Delta) -> dict[int, str]:
    rows = delta.read().to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def test_upsert(delta: Delta) -> None:
    """The later row of a key counts, also when it deletes, and also in another task."""
    query = upserting(delta)
    query.write(changes((1, "a", None), (2, "b", False), (1, "c", False), (3, "d", True)))
    assert values(delta) == {1: "c", 2: "b"}
    tasks = changes((2, "x", True), (4, "e", None)), changes((2, "again", False), (1, "y", True))
    query.write(*tasks, batch_id=1)
    assert values(delta) == {2: "again", 4: "e"}
    query.write(changes((None, "no key", False), (5, "f", False)), batch_id=2)
    assert values(delta) == {2: "again", 4: "e", 5: "f"}
    assert "key" in query.rejections[0].reasons[0]


@pytest.mark.deep
def test_an_upsert_of_more_text_than_one_array_holds(delta: Delta) -> None:
    """Over 2 GiB in one column of an epoch."""
    large = changes(*[(1, "x" * 1_000_000, None)] * 1_100)
    upserting(delta).write(large, large, changes((1, "last", None)))
    assert values(delta) == {1: "last"}


def test_an_upsert_is_merged_once(delta: Delta) -> None:
    """Redelivered after another batch: the older row does not come back."""
    query = upserting(delta)
    first = query.decide(changes((1, "old", False)))
    query.commit(first)
    query.write(changes((1, "new", False)), batch_id=1)
    upserting(delta).commit(first)
    assert values(delta) == {1: "new"}


@pytest.mark.parametrize(
    "rows", [[(7, None, True)], [(7, "x", False), (7, None, True)]], ids=["not there", "made here"]
)
def test_a_batch_of_deletes_without_effect_is_merged_once(
    rows: list[tuple[int, str | None, bool]], delta: Delta
) -> None:
    """It has its marker all the same: what others write of its keys is not deleted later."""
    query = upserting(delta)
    query.write(changes((1, "a", False)))
    decided = query.decide(changes(*rows), batch_id=1)
    query.commit(decided)
    assert query.participant.last_batch() == 1
    write_deltalake(str(delta.path), pa.table({"id": [7], "v": ["theirs"]}), mode="append")
    upserting(delta).commit(decided)
    assert values(delta) == {1: "a", 7: "theirs"}


def test_an_upsert_leaves_columns_that_it_has_not(delta: Delta) -> None:
    delta.create(pa.schema([("id", pa.int64()), ("v", pa.string()), ("w", pa.int64())]))
    write_deltalake(
        str(delta.path), pa.table({"id": [1, 2], "v": ["a", "b"], "w": [10, 20]}), mode="append"
    )
    query = upserting(delta)
    query.write(changes((1, "x", False), (3, "c", False)))
    rows = sorted(delta.read().to_pylist(), key=lambda row: row["id"])
    assert rows == [
        {"id": 1, "v": "x", "w": 10},
        {"id": 2, "v": "b", "w": 20},
        {"id": 3, "v": "c", "w": None},
    ]


def insist(query: OpenedSink, permit: Any) -> None:
    """As starts one after another: on a busy machine others may come first more often than an
    upsert tries.
    """
    for _ in range(STARTS_MAX):
        with contextlib.suppress(OutcomeUnknown):
            query.commit(permit)
            return
    raise AssertionError("others always came first")


def test_two_drivers_upsert_while_others_append(delta: Delta) -> None:
    query, successor = (upserting(delta) for _ in "12")
    stop, theirs = threading.Event(), itertools.count(1_000_000)

    def append() -> None:
        pause_s = 1.0
        while not stop.wait(pause_s):  # a merge has to fit in between
            pause_s *= 1.5
            row = pa.table({"id": [next(theirs)], "v": ["theirs"]})
            while True:
                try:
                    write_deltalake(str(delta.path), row, mode="append")
                    break
                except CommitFailedError:  # it asks others to write again
                    continue

    foreign = threading.Thread(target=append)
    foreign.start()
    try:
        for batch_id in range(4):
            rows = changes((0, f"{batch_id}", False), (batch_id + 1, "x", False))
            permit = query.decide(rows, batch_id=batch_id)
            at_once(partial(insist, query), partial(insist, successor), permit=permit)
    finally:
        stop.set()
        foreign.join()
    found = values(delta)
    assert found[0] == "3"
    assert sorted(i for i in found if i < 1_000_000) == list(range(5))
    assert sum(i >= 1_000_000 for i in found) == next(theirs) - 1_000_000


@pytest.mark.parametrize("name", ['a "b', "a`b", "sElect", "ä.b"])
def test_names_are_quoted(name: str, delta: Delta) -> None:
    frame = pa.record_batch({name: pa.array([1, 2], pa.int64()), "v": ["a", "b"]})
    if " " in name:
        with pytest.raises(Exception, match="LAKE_COLUMNS"):
            OpenedSink(delta.sink(mode="upsert", key=name), columns_of(frame))
        return
    query = OpenedSink(delta.sink(mode="upsert", key=name), columns_of(frame))
    query.write(frame)
    query.write(pa.record_batch({name: pa.array([2], pa.int64()), "v": ["c"]}), batch_id=1)
    rows = delta.read()
    assert dict(zip(rows[name].to_pylist(), rows["v"].to_pylist(), strict=True)) == {1: "a", 2: "c"}


def test_an_upsert_holds_the_same(delta: Delta) -> None:
    """All that delta-rs rewrites comes back as it was."""
    low, high = date(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    rows = [
        (True, -128, -32768, -(2**31), -(2**63), 0.1, 1e308, "\U00068abf", b"\x00", low,
         high.replace(tzinfo=timezone.utc), high, Decimal("-9999999.99"),
         Decimal("9999999999999999999999999999.9999999999"), Decimal("-1E-38"),
         [1, None], {"k": None, "ä": -0.0}, {"a": None, "b": ["x", ""]}),
        (None, 1, *([None] * (len(KINDS) - 2))),
    ]  # fmt: skip
    batch = batch_of(rows, KINDS)
    columns = tuple(zip(batch.schema.names, KINDS, strict=True))
    query = OpenedSink(delta.sink(mode="upsert", key="c1"), columns)
    for batch_id in range(2):  # inserted, then replaced
        query.write(batch, batch_id=batch_id)
    there = delta.read().to_pylist()
    assert sorted(map(repr, there)) == sorted(map(repr, batch.to_pylist()))


def test_an_upsert_refuses_before_the_decision_what_no_merge_takes(delta: Delta) -> None:
    """delta-rs makes folders for partitions, whose names it escapes, and counts days to a year."""
    texts = ["京" * 27, "x" * 250, "京" * 28, " " * 84, "x" * 251]
    frame = numbers(1, 2, 3, 4, 5, city=texts)
    query = OpenedSink(delta.sink(mode="upsert", key="id", partition_by="city"), columns_of(frame))
    query.write(frame)
    query.write(frame, batch_id=1)
    assert delta.ids() == [1, 2]
    assert [len(each.reasons) for each in query.rejections] == [3, 3]
    assert all("255 bytes" in why for each in query.rejections for why in each.reasons)


DAYS = {
    "date": lambda day: day,
    "array<date>": lambda day: pa.ListArray.from_arrays(range(len(day) + 1), day),
    "struct<a:date,b:map<date,int>>": lambda day: pa.StructArray.from_arrays(
        [pa.nulls(len(day), pa.date32()),
         pa.MapArray.from_arrays(range(len(day) + 1), day, pa.nulls(len(day), pa.int32()))],
        ["a", "b"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAYS)
def test_an_upsert_refuses_days_that_no_merge_counts(kind: str, delta: Delta) -> None:
    """At any depth. Instants of any year are merged."""
    days = [DAY_FIRST, DAY_LAST, DAY_FIRST - 1, DAY_LAST + 1, 2**31 - 1, -(2**31)]
    column = DAYS[kind](pa.array(days, pa.int32()).view(pa.date32()))
    at = pa.array([2**62] * 6, pa.int64()).view(pa.timestamp("us", tz="UTC"))
    columns = (*COLUMNS, ("v", kind), ("at", "timestamp"))
    frame = numbers(1, 2, 3, 4, 5, 6, v=column.cast(arrow_type(kind)), at=at)
    query = OpenedSink(delta.sink(mode="upsert", key="id"), columns)
    for batch_id in range(2):
        query.write(frame, batch_id=batch_id)
        assert sorted(delta.table.to_pyarrow_table()["id"].to_pylist()) == [1, 2]
    assert ["years 1 to 9999" in why for each in query.rejections for why in each.reasons] == [
        True
    ] * 8


# ---- what is refused -----------------------------------------------------------------------------


def test_and_between_the_last_look_and_the_commit(
    delta: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's own conflict check stands there: another version of the settings, and all is looked at
    again.
    """
    query = OpenedSink(delta.sink(), COLUMNS)
    permit = query.decide(numbers(1))
    real = DeltaTable.create_write_transaction

    def late(self: DeltaTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        delta.with_metadata(delta__constraints__positive="id > 0")
        real(self, *args, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "positive"):
        query.commit(permit)
    assert not delta.table.file_uris()


@pytest.mark.parametrize(
    "change",
    [
        lambda delta: delta.with_features("appendOnly", "invariants", "checkConstraints", "columnMapping",
                                "generatedColumns", readers=["columnMapping"]),
        lambda delta: delta.with_features("changeDataFeed"),
        lambda delta: delta.with_metadata(delta__appendOnly="true"),
        lambda delta: delta.with_metadata(delta__columnMapping__mode="none"),
    ],
)  # fmt: skip
def test_what_is_there_and_not_used_is_taken(change: Change, delta: Delta) -> None:
    delta.create(SCHEMA)
    change(delta)
    OpenedSink(delta.sink(), COLUMNS).write(numbers(1, 2))
    assert delta.ids() == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda delta: delta.with_metadata(delta__appendOnly="true"),
        lambda delta: delta.with_features("changeDataFeed"),
        lambda delta: delta.with_features("deletionVectors", readers=["deletionVectors"]),
    ],
)
def test_what_an_upsert_would_break(change: Change, delta: Delta) -> None:
    delta.create(SCHEMA)
    change(delta)
    with pytest.raises(SettingRefused) as refused:
        OpenedSink(delta.sink(mode="upsert", key="id"), COLUMNS)
    assert refused.value.code == "LAKE_FEATURE"


def test_a_folder_of_somebody_elses_files(delta: Delta) -> None:
    delta.path.mkdir()
    (delta.path / "old.parquet").write_bytes(b"somebody's")
    text = refusal(SettingRefused, delta.sink(), *COLUMNS)
    assert "LAKE_TABLE" in text
    assert "old.parquet" in text


def test_columns_of_another_kind_within(delta: Delta) -> None:
    """What may not be null within a column is not looked at row by row, so it is refused."""
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    delta.create(pa.schema([("id", pa.int64()), ("s", inner)]))
    text = refusal(SettingRefused, delta.sink(), *COLUMNS)
    assert "NOT NULL within the column 's'" in text


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "merge"},
        {"mode": "upsert"},
        {"key": "id"},
        {"delete_when": "gone"},
        {"mode": "upsert", "key": "id", "delete_when": "id"},
        {"bytes_per_file_max": 0},
        {"store": {"region": "eu"}},
    ],
)
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], delta: Delta) -> None:
    with pytest.raises(SettingRefused):
        delta.sink(**arguments)


def test_what_delta_rs_would_spoil_is_refused(delta: Delta) -> None:
    """It spells -1.05 in a partition as -1.-5, and looks for a%20b at "a b"."""
    price = [("id", "bigint"), ("price", "decimal(10,2)")]
    text = refusal(FrameRefused, delta.sink(partition_by="price"), *price)
    assert "price" in text and "decimal(10,2)" in text
    with raised(SettingRefused, "LAKE_ARGUMENT", "a%20b"):
        DeltaSink(delta.folder / "a%20b")
    assert not list(delta.folder.iterdir())


def test_partitions_of_another_kind(delta: Delta) -> None:
    frame = numbers(1, day=["a"])
    OpenedSink(delta.sink(partition_by="day"), columns_of(frame)).write(frame)
    text = refusal(SettingRefused, delta.sink(partition_by="id"), *columns_of(frame))
    assert "partitioned by ['day']" in text
    text = refusal(FrameRefused, delta.sink(), *COLUMNS)
    assert "day" in text
    when = (("id", "bigint"), ("at", "timestamp"))
    refusal(FrameRefused, DeltaSink(delta.folder / "u", partition_by="at"), *when)


# ---- object stores -------------------------------------------------------------------------------


def test_an_object_store() -> None:
    """Read back by delta-rs alone, with the same settings."""
    with s3_server("kept") as server:
        sink = DeltaSink("s3://bucket/t", store=server.settings)
        query = OpenedSink(sink, COLUMNS)
        permit = query.decide(numbers(1), numbers(2))
        query.commit(permit)
        OpenedSink(sink, COLUMNS).commit(permit)
        query.write(numbers(3), batch_id=1)
        options = {k: str(v).lower() for k, v in server.settings.items()}
        table = DeltaTable("s3://bucket/t", storage_options=options)
        assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]
        assert not [key for key in server.objects if ".staged" in key]
