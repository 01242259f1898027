"""What only Iceberg tables do, or do in a way of their own. (What both formats have in common:
test_tables.py.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import StringType

from exactum.errors import (
    EpochAborted,
    FrameRefused,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.lake.iceberg import IcebergSink
from exactum.lake.sink import schema_of
from exactum.protocol.sink import Guarantee
from tests.kit.errors import raised
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import columns_of, numbers, refusal
from tests.kit.opened_sink import OpenedSink
from tests.lake.test_tables import dying

COLUMNS = (("id", "bigint"),)
TWO = (("id", "bigint"), ("v", "string"))
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "lake")
    yield made
    made.close()


def query_of(lake: Lake, **more: Any) -> OpenedSink:
    return OpenedSink(lake.sink(**more), COLUMNS)


def test_statistics_and_partitions_of_files(lake: Lake) -> None:
    """What each file holds; a reader finds it by that."""
    frame = numbers(1, 2, 3, day=["a", "b/ä %=", None])
    query = OpenedSink(lake.sink(partition_by="day"), columns_of(frame))
    query.write(frame, numbers(4, day=[""]))
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
    OpenedSink(lake.sink(), columns).write(frame)
    with lake.table.update_schema() as update:
        update.rename_column("id", "number")
        update.rename_column(("s", "a"), "b")
    assert lake.read().to_pylist() == [{"number": 1, "s": {"b": 5, "l": ["x"]}}]


def test_a_file_has_the_sort_order_of_its_table(lake: Lake) -> None:
    frame = pa.record_batch({"id": pa.array([2, 1, None, 3]), "v": ["b", "a", "c", "a"]})
    OpenedSink(lake.sink(sort_by=["v desc", "id"]), TWO).write(frame)
    (file,) = lake.data.glob("*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [(row["v"], row["id"]) for row in rows] == [("c", None), ("b", 2), ("a", 1), ("a", 3)]
    assert "1 DESC" not in str(lake.table.sort_order())
    assert "2 DESC" in str(lake.table.sort_order())


@pytest.mark.parametrize(("asked", "is_now"), [("gzip", "GZIP"), ("lzo", "ZSTD"), (None, "ZSTD")])
def test_a_file_is_compressed_as_its_table_says(asked: str | None, is_now: str, lake: Lake) -> None:
    known = {} if asked is None else {"write.parquet.compression-codec": asked}
    lake.create(pa.schema([("id", pa.int64())]), **known)
    query_of(lake).write(numbers(1))
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
    query.write(numbers(2))
    query.write(numbers(3), batch_id=1)
    assert lake.ids() == [1]
    assert lake.ids("audit") == [1, 2, 3]
    assert sum(lake.sink(branch="audit")._rows_by_task().values()) == 2
    assert lake.sink()._rows_by_task() == {}


def test_what_a_commit_writes_has_a_bound(lake: Lake) -> None:
    """Manifests are merged also where the table does not say it, and old metadata is removed from a
    table that was made here.
    """
    lake.create(pa.schema([("id", pa.int64())]), **{"commit.manifest.min-count-to-merge": "3"})
    query = query_of(lake)
    for batch_id in range(8):
        query.write(numbers(batch_id), batch_id=batch_id)
    assert lake.ids() == list(range(8))
    assert len(lake.table.inspect.manifests()) <= 3


def test_old_metadata_is_removed(lake: Lake) -> None:
    query = query_of(lake)
    with lake.table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "3"})
    for batch_id in range(8):
        query.write(numbers(batch_id), batch_id=batch_id)
    assert len(list((lake.data.parent / "metadata").glob("*.metadata.json"))) <= 5
    assert lake.ids() == list(range(8))


# ---- others at the table -------------------------------------------------------------------------


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
    prepared = query.prepare(numbers(1))
    if step == "prepared":
        lake.foreign(100)
    permit = query.permit(query.participant.verify(prepared))
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
    query.write(numbers(1))
    lake.branch("other")
    permit = query.decide(numbers(2), batch_id=1)
    foreign_before_the_commit(lake, monkeypatch, "other")
    assert query.commit(permit).expired == ()
    assert lake.ids() == [1, 2]
    assert lake.ids("other") == [1, 100]


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
    query = OpenedSink(lake.sink(), TWO)
    permit = query.decide(numbers(1, v=["a"]))
    change(lake.table)
    query.commit(permit)
    assert lake.read().to_pylist() == [{"id": 1, **CHANGES[change]}]
    if change is replace:
        assert lake.read(row_filter="v is null").num_rows == 1


@pytest.mark.parametrize("change", [rename, drop, replace])
def test_the_schema_changes_before_the_decision(
    change: Callable[[Table], None], lake: Lake
) -> None:
    """Later batches would lose the column: the batch is void, as with a database whose table changes,
    so ``exactum run`` starts the query again, and that sees the table.
    """
    query = OpenedSink(lake.sink(), TWO)
    prepared = query.prepare(numbers(1, v=["a"]))
    change(lake.table)
    with raised(EpochAborted, "'v'", "another one" if change is replace else "is gone"):
        query.participant.verify(prepared)
    assert lake.table.current_snapshot() is None


PLACES = (("id", "bigint"), ("country", "string"), ("city", "string"))
BONN = {"id": 1, "country": "DE", "city": "Bonn"}


def found(lake: Lake, row: Mapping[str, Any]) -> list[int]:
    """How many rows a reader finds for each of its values, by the partitions."""
    return [lake.read(row_filter=EqualTo(name, row[name])).num_rows for name in row]


@pytest.mark.parametrize("version", ["1", "2"])
def test_partitions_that_were_put_back_in_another_order(version: str, lake: Lake) -> None:
    """The first format keeps a void one in the place of what was removed."""
    lake.create(schema_of(PLACES), **{"format-version": version})
    with lake.table.update_spec() as spec:
        spec.add_identity("country")
        spec.add_identity("city")
    query = OpenedSink(lake.sink(), PLACES)
    permit = query.decide(pa.RecordBatch.from_pylist([BONN]))
    with lake.table.update_spec() as spec:
        spec.remove_field("country")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "partition columns"):
        query.commit(permit)
    with lake.table.update_spec() as spec:
        spec.add_identity("country")
    query.commit(permit)
    assert found(lake, BONN) == [1, 1, 1]


def test_a_column_that_is_gone_from_a_void_partition(lake: Lake) -> None:
    """pyiceberg would commit to such a table, and nobody could read it."""
    lake.create(schema_of(PLACES), **{"format-version": "1"})
    with lake.table.update_spec() as spec:
        spec.add_identity("country")
    with lake.table.update_spec() as spec:
        spec.remove_field("country")
    with lake.table.update_schema() as update:
        update.delete_column("country")
    with raised(SettingRefused, "LAKE_FEATURE"):
        OpenedSink(lake.sink(), COLUMNS)


def test_columns_that_count_are_renamed_after_the_decision(lake: Lake) -> None:
    """Those of partitions, and one that is NOT NULL: by their ids they are the same."""
    id_, *others = schema_of(PLACES)
    lake.create(pa.schema([id_.with_nullable(False), *others]))
    with lake.table.update_spec() as spec:
        spec.add_identity("country")
        spec.add_field("city", "truncate[2]")
    query = OpenedSink(lake.sink(), PLACES)
    permit = query.decide(pa.RecordBatch.from_pylist([BONN]))
    with lake.table.update_schema() as update:
        for old, new in (("id", "no"), ("country", "land"), ("city", "town")):
            update.rename_column(old, new)
    query.commit(permit)
    assert found(lake, {"no": 1, "land": "DE", "town": "Bonn"}) == [1, 1, 1]


def test_another_column_of_the_name_is_made_not_null_after_the_decision(lake: Lake) -> None:
    """Rows that have no value for it do not come into the table."""
    query = OpenedSink(lake.sink(), TWO)
    permit = query.decide(numbers(1, v=["a"]))
    drop(lake.table)
    with lake.table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("v", StringType(), required=True)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "'v' is NOT NULL"):
        query.commit(permit)


def test_the_location_changes_while_a_query_runs(lake: Lake) -> None:
    """Files are named where they are. A start with the new one refuses what is decided for the old
    one, and nothing is lost.
    """
    query = query_of(lake)
    old = lake.table.location()

    def move(to: str) -> None:
        lake.catalog.commit_table(lake.table, (), (SetLocationUpdate(location=to),))

    permit = query.decide(numbers(1))
    move(f"file://{lake.folder}/elsewhere")
    query.commit(permit)
    waits = query.decide(numbers(2), batch_id=1)
    assert lake.ids() == [1]
    later = query_of(lake)
    expired = later.commit(waits).expired
    with raised(SettingRefused, "SINK_MOVED", "/shop/orders"):
        later.participant.salvage(waits, expired)
    move(old)
    query_of(lake).commit(waits)
    move(f"file://{lake.folder}/elsewhere")
    query_of(lake).write(numbers(3), batch_id=2)
    assert lake.ids() == [1, 2, 3]
    assert len(list((lake.folder / "elsewhere" / "data").iterdir())) == 1


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_was_lost_without_a_marker(
    after: bool, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell, so nobody tries again: at most once is at most once."""
    query = OpenedSink(lake.sink(), COLUMNS, Guarantee.AT_MOST_ONCE)
    prepared = query.prepare(numbers(1))
    dying(lake, monkeypatch, after=after)
    with raised(OutcomeUnknown, "the answer was lost"):
        query.participant.deliver(prepared)
    assert len(lake.table.snapshots()) == after


def test_a_table_that_is_gone_while_rows_wait(lake: Lake) -> None:
    query = query_of(lake)
    permit = query.decide(numbers(1))
    location = lake.table.metadata_location
    lake.catalog.drop_table(TABLE)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "not there any more"):
        query.commit(permit)
    with raised(SettingRefused, "LAKE_TABLE"):
        lake.sink().inspector(query.run.query_id, query.participant.name)
    lake.catalog.register_table(TABLE, location)
    query.commit(permit)
    assert lake.ids() == [1]


# ---- what is refused -----------------------------------------------------------------------------


def test_a_type_that_pyiceberg_does_not_know(lake: Lake) -> None:
    """Of a newer format: the table cannot even be loaded."""
    lake.create(SCHEMA)
    at = Path(lake.table.metadata_location.removeprefix("file://"))
    at.write_text(at.read_text().replace('"long"', '"variant"'))
    with raised(SettingRefused, "LAKE_FEATURE", "pyiceberg"):
        OpenedSink(lake.sink(), COLUMNS)


def test_branches_that_are_none(lake: Lake) -> None:
    """A tag; and one that pyiceberg would begin without the rows that the table has."""
    OpenedSink(lake.sink(), COLUMNS).write(numbers(1))
    with raised(SettingRefused, "LAKE_FEATURE", "no branch"):
        OpenedSink(lake.sink(branch="audit"), COLUMNS)
    snapshot = lake.table.current_snapshot()
    lake.table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    with raised(SettingRefused, "LAKE_FEATURE", "tag"):
        OpenedSink(lake.sink(branch="audit"), COLUMNS)


@pytest.mark.parametrize("version", ["1", "2"])
def test_what_goes_well_is_taken(version: str, lake: Lake) -> None:
    """The first format too, identifier fields, and a partition that was dropped from it."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
    lake.create(schema, **{"format-version": version})
    with lake.table.update_schema() as update:
        update.set_identifier_fields("id")
    with lake.table.update_spec() as spec:
        spec.add_identity("v")
    frame = pa.record_batch({"id": pa.array([1], pa.int64()), "v": ["a"]})
    columns = (("id", "bigint"), ("v", "string"))
    OpenedSink(lake.sink(), columns).write(frame)
    with lake.table.update_spec() as spec:
        spec.remove_field("v")
    OpenedSink(lake.sink(), columns).write(frame, batch_id=1)
    assert lake.read().to_pylist() == [{"id": 1, "v": "a"}] * 2


@pytest.mark.parametrize(
    "kind", ["tinyint", "smallint", "array<smallint>", "struct<a:map<string,tinyint>>"]
)
def test_numbers_that_iceberg_has_not(kind: str, lake: Lake) -> None:
    assert "Cast it to int" in refusal(FrameRefused, lake.sink(), *COLUMNS, ("v", kind))
    assert not lake.catalog.table_exists(TABLE)


@pytest.mark.parametrize(
    "arguments",
    [
        {"partition_by": "bucket(id)"},
        {"partition_by": "day(3, at)"},
        {"partition_by": "zorder(id)"},
        {"partition_by": "void(id)"},
        {"sort_by": "id up"},
        {"bytes_per_file_max": 0},
        {"store": "s3"},
    ],
)
def test_arguments_that_cannot_be(arguments: dict[str, Any], lake: Lake) -> None:
    with pytest.raises(SettingRefused):
        lake.sink(**arguments)


def test_a_table_has_a_namespace() -> None:
    with raised(SettingRefused, "LAKE_ARGUMENT", "namespace"):
        IcebergSink("orders")


def test_partitions_of_another_kind(lake: Lake) -> None:
    lake.create(SCHEMA)
    text = refusal(SettingRefused, lake.sink(partition_by="bucket(4, id)"), *COLUMNS)
    assert "partitioned by []" in text
    with lake.table.update_spec() as spec:
        spec.add_identity("id")
    text = refusal(SettingRefused, lake.sink(partition_by="bucket(4, id)"), *COLUMNS)
    assert "partitioned by ['id']" in text
    OpenedSink(lake.sink(partition_by="id"), COLUMNS).write(numbers(5))
    assert lake.ids() == [5]


@pytest.mark.parametrize("text", ["day(id)", "nowhere", "truncate(3, f)"])
def test_a_new_table_that_cannot_be_parted_so(text: str, lake: Lake) -> None:
    refusal(SettingRefused, lake.sink(partition_by=text), ("id", "bigint"), ("f", "double"))
    assert not lake.catalog.table_exists(TABLE)
