"""What an Iceberg table has that files which are added to it would break, or that pyiceberg would get
wrong: refused by name, when a query starts and before each decision.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import ExactumError, FrameRefused, HeuristicOutcome, SettingRefused
from exactum.lake.iceberg import IcebergSink
from tests.kit.errors import raised
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import Query, numbers

COLUMNS = (("id", "bigint"),)
SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("s", pa.struct([("a", pa.int64())]))])
Change = Callable[[Lake], None]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def setting(name: str, value: str) -> Change:
    return lambda lake: (
        lake.table.transaction().set_properties({name: value}).commit_transaction() and None
    )


def partition(transform: str, source: int) -> Change:
    field = {"source-id": source, "field-id": 1000, "transform": transform, "name": "p"}
    specs = [{"spec-id": 0, "fields": [field]}]
    return lambda lake: lake.rewritten(**{"partition-specs": specs})


def demanding(document: dict[str, Any]) -> None:
    for schema in document["schemas"]:
        schema["fields"][2]["type"]["fields"][0]["required"] = True


BREAKING: dict[str, Change] = {
    "format version 3": lambda lake: lake.rewritten(**{"format-version": 3, "next-row-id": 0}),
    "write.data.path": setting("write.data.path", "file:///elsewhere"),
    "encryption.key-id": setting("encryption.key-id", "k"),
    "write.wap.enabled": setting("write.wap.enabled", "true"),
    "the partition unknown(id)": partition("zorder", 1),
    "the partition f": partition("identity", 2),
    "the partition s.a": partition("identity", 4),
    "NOT NULL within the column 's'": lambda lake: lake.amended(demanding),
}


@pytest.mark.parametrize("named", BREAKING)
def test_what_added_files_would_break_is_refused_at_the_start(named: str, lake: Lake) -> None:
    lake.create(SCHEMA)
    BREAKING[named](lake)
    with raised(SettingRefused, "LAKE_FEATURE", named):
        Query(lake.sink(), COLUMNS)
    with raised(SettingRefused, "LAKE_FEATURE", named):
        list(lake.sink().prove())


@pytest.mark.parametrize("named", ["format version 3", "write.data.path", "write.wap.enabled"])
def test_and_before_a_decision(named: str, lake: Lake) -> None:
    """The table got it while the query runs: nothing is decided, and nothing is in the table."""
    lake.create(SCHEMA)
    query = Query(lake.sink(), COLUMNS)
    prepared = query.prepare(0, numbers(1))
    BREAKING[named](lake)
    with raised(SettingRefused, "LAKE_FEATURE", named):
        query.participant.verify(prepared)
    assert not list(lake.data.glob("*.parquet"))


def test_and_after_it_nothing_is_lost(lake: Lake) -> None:
    """Decided, and then the table got it: the query stops, and goes on when it is gone."""
    query = Query(lake.sink(), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    setting("write.wap.enabled", "true")(lake)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "write.wap.enabled"):
        query.commit(permit)
    setting("write.wap.enabled", "false")(lake)
    query.commit(permit)
    assert lake.ids() == [1]


def test_a_type_that_pyiceberg_does_not_know(lake: Lake) -> None:
    """Of a newer format: the table cannot even be loaded."""
    lake.create(SCHEMA)
    at = Path(lake.table.metadata_location.removeprefix("file://"))
    at.write_text(at.read_text().replace('"double"', '"variant"'))
    with raised(SettingRefused, "LAKE_FEATURE", "pyiceberg"):
        Query(lake.sink(), COLUMNS)


def test_branches_that_are_none(lake: Lake) -> None:
    """A tag; and one that pyiceberg would begin without the rows that the table has."""
    Query(lake.sink(), COLUMNS).write(0, numbers(1))
    with raised(SettingRefused, "LAKE_FEATURE", "no branch"):
        Query(lake.sink(branch="audit"), COLUMNS)
    snapshot = lake.table.current_snapshot()
    lake.table.manage_snapshots().create_tag(snapshot.snapshot_id, "audit").commit()
    with raised(SettingRefused, "LAKE_FEATURE", "tag"):
        Query(lake.sink(branch="audit"), COLUMNS)


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
    Query(lake.sink(), columns).write(0, frame)
    with lake.table.update_spec() as spec:
        spec.remove_field("v")
    Query(lake.sink(), columns).write(1, frame)
    assert lake.read().to_pylist() == [{"id": 1, "v": "a"}] * 2


def refusal(kind: type[ExactumError], lake: Lake, *columns: tuple[str, str], **more: Any) -> str:
    with pytest.raises(kind) as refused:
        Query(lake.sink(**more), columns)
    return f"{refused.value}"


def test_a_table_that_is_not_there(lake: Lake) -> None:
    text = refusal(SettingRefused, lake, *COLUMNS, create_table=False)
    assert "LAKE_TABLE" in text
    assert not lake.catalog.table_exists(TABLE)


@pytest.mark.parametrize(
    "columns",
    [
        [("id", "string")],
        [("id", "int")],
        [("ID", "bigint")],
        [("id", "bigint"), ("more", "string")],
        [("more", "string")],
    ],
)
def test_columns_that_do_not_fit(columns: list[tuple[str, str]], lake: Lake) -> None:
    """Another type, another spelling, one that the table lacks, one that it wants."""
    lake.create(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert "LAKE_COLUMNS" in refusal(FrameRefused, lake, *columns)


@pytest.mark.parametrize(
    "kind", ["tinyint", "smallint", "array<smallint>", "struct<a:map<string,tinyint>>"]
)
def test_numbers_that_iceberg_has_not(kind: str, lake: Lake) -> None:
    assert "Cast it to int" in refusal(FrameRefused, lake, *COLUMNS, ("v", kind))
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
    text = refusal(SettingRefused, lake, *COLUMNS, partition_by="bucket(4, id)")
    assert "partitioned by []" in text
    with lake.table.update_spec() as spec:
        spec.add_identity("id")
    assert "partitioned by ['id']" in refusal(
        SettingRefused, lake, *COLUMNS, partition_by="bucket(4, id)"
    )
    Query(lake.sink(partition_by="id"), COLUMNS).write(0, numbers(5))
    assert lake.ids() == [5]


@pytest.mark.parametrize("text", ["day(id)", "nowhere", "truncate(3, f)"])
def test_a_new_table_that_cannot_be_parted_so(text: str, lake: Lake) -> None:
    refusal(SettingRefused, lake, ("id", "bigint"), ("f", "double"), partition_by=text)
    assert not lake.catalog.table_exists(TABLE)
