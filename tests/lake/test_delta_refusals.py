"""What a Delta table has that files which are added to it would break: refused by name, when a query
starts and before each decision.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from exactum.errors import ExactumError, FrameRefused, HeuristicOutcome, SettingRefused
from exactum.lake.delta import DeltaSink
from tests.kit.errors import raised
from tests.kit.lake.tables import (
    Query,
    columns_of,
    commit_by_hand,
    ids,
    new_table,
    numbers,
    with_features,
    with_metadata,
)

COLUMNS = (("id", "bigint"),)
SCHEMA = pa.schema([("id", pa.int64())])
Change = Callable[[Path], None]

BREAKING: dict[str, Change] = {
    "CHECK constraint 'positive'": lambda t: with_metadata(
        t, delta__constraints__positive="id > 0"
    ),
    "generated columns": lambda t: with_metadata(t, {"delta.generationExpression": "1 + 1"}),
    "invariants": lambda t: with_metadata(t, {"delta.invariants": '{"expression": "id > 0"}'}),
    "identity columns": lambda t: with_metadata(t, {"delta.identity.start": 1}),
    "column mapping": lambda t: with_metadata(t, delta__columnMapping__mode="name"),
    "row tracking": lambda t: with_metadata(t, delta__enableRowTracking="true"),
    "delta.setTransactionRetentionDuration": lambda t: with_metadata(
        t, delta__setTransactionRetentionDuration="interval 7 days"
    ),
    "clustering": lambda t: with_features(t, "clustering", "domainMetadata"),
    "rowTracking": lambda t: with_features(t, "rowTracking"),
    "inCommitTimestamp": lambda t: with_features(t, "inCommitTimestamp"),
    "identityColumns": lambda t: with_features(t, "identityColumns"),
    "allowColumnDefaults": lambda t: with_features(t, "allowColumnDefaults"),
    "typeWidening": lambda t: with_features(t, "typeWidening", readers=["typeWidening"]),
    "icebergCompatV2": lambda t: with_features(t, "icebergCompatV2"),
    "catalog-managed": lambda t: with_features(t, "catalogManaged", readers=["catalogManaged"]),
    "of the year 2040": lambda t: with_features(
        t, "of the year 2040", readers=["of the year 2040"]
    ),
}


@pytest.mark.parametrize("named", BREAKING)
def test_what_added_files_would_break_is_refused_at_the_start(named: str, tmp_path: Path) -> None:
    new_table(tmp_path / "t", SCHEMA)
    BREAKING[named](tmp_path / "t")
    with pytest.raises(SettingRefused) as refused:
        Query(DeltaSink(tmp_path / "t"), COLUMNS)
    assert refused.value.code == "LAKE_FEATURE"
    assert named in str(refused.value)


@pytest.mark.parametrize("named", ["CHECK constraint 'positive'", "clustering", "catalog-managed"])
def test_and_before_a_decision(named: str, tmp_path: Path) -> None:
    """The table got it while the query runs: nothing is decided, and nothing is in the table."""
    query = Query(DeltaSink(tmp_path / "t"), COLUMNS)
    prepared = query.prepare(0, numbers(1))
    BREAKING[named](tmp_path / "t")
    with pytest.raises(SettingRefused) as refused:
        query.participant.verify(prepared)
    assert refused.value.code == "LAKE_FEATURE"
    assert named in str(refused.value)
    assert not list((tmp_path / "t").glob("*.parquet"))


def test_and_between_the_last_look_and_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's own conflict check stands there: another version of the settings, and all is looked at
    again.
    """
    query = Query(DeltaSink(tmp_path / "t"), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    real = DeltaTable.create_write_transaction

    def late(self: DeltaTable, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(DeltaTable, "create_write_transaction", real)
        with_metadata(tmp_path / "t", delta__constraints__positive="id > 0")
        real(self, *args, **more)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", late)
    with raised(HeuristicOutcome, "TARGET_REFUSES", "positive"):
        query.commit(permit)
    assert not DeltaTable(str(tmp_path / "t")).file_uris()


def test_and_after_it_nothing_is_lost(tmp_path: Path) -> None:
    """Decided, and then the table got it: the query stops, and goes on when it is gone."""
    query = Query(DeltaSink(tmp_path / "t"), COLUMNS)
    permit = query.decide(0, query.prepare(0, numbers(1)))
    with_metadata(tmp_path / "t", delta__constraints__positive="id > 0")
    with raised(HeuristicOutcome, "TARGET_REFUSES", "positive"):
        query.commit(permit)
    with_metadata(tmp_path / "t")
    query.commit(permit)
    assert ids(tmp_path / "t") == [1]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: with_features(t, "appendOnly", "invariants", "checkConstraints", "columnMapping",
                                "generatedColumns", readers=["columnMapping"]),
        lambda t: with_features(t, "changeDataFeed"),
        lambda t: with_metadata(t, delta__appendOnly="true"),
        lambda t: with_metadata(t, delta__columnMapping__mode="none"),
    ],
)  # fmt: skip
def test_what_is_there_and_not_used_is_taken(change: Change, tmp_path: Path) -> None:
    new_table(tmp_path / "t", SCHEMA)
    change(tmp_path / "t")
    Query(DeltaSink(tmp_path / "t"), COLUMNS).write(0, numbers(1, 2))
    assert ids(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        lambda t: with_metadata(t, delta__appendOnly="true"),
        lambda t: with_features(t, "changeDataFeed"),
        lambda t: with_features(t, "deletionVectors", readers=["deletionVectors"]),
    ],
)
def test_what_an_upsert_would_break(change: Change, tmp_path: Path) -> None:
    new_table(tmp_path / "t", SCHEMA)
    change(tmp_path / "t")
    with pytest.raises(SettingRefused) as refused:
        Query(DeltaSink(tmp_path / "t", mode="upsert", key="id"), COLUMNS)
    assert refused.value.code == "LAKE_FEATURE"


def refusal(kind: type[ExactumError], sink: Callable[[], Any], *columns: tuple[str, str]) -> str:
    with pytest.raises(kind) as refused:
        Query(sink(), columns)
    return f"{refused.value}"


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    at = tmp_path / "t"
    assert "create_table" in refusal(
        SettingRefused, lambda: DeltaSink(at, create_table=False), *COLUMNS
    )
    assert not at.exists()
    at.mkdir()
    (at / "old.parquet").write_bytes(b"somebody's")
    text = refusal(SettingRefused, lambda: DeltaSink(at), *COLUMNS)
    assert "LAKE_TABLE" in text
    assert "old.parquet" in text


@pytest.mark.parametrize(
    "columns",
    [
        [("id", "string")],
        [("ID", "bigint")],
        [("id", "bigint"), ("more", "string")],
        [("more", "string")],
    ],
)
def test_columns_that_do_not_fit(columns: list[tuple[str, str]], tmp_path: Path) -> None:
    """Another type, another spelling, one that the table lacks, one that it wants."""
    new_table(tmp_path / "t", pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert "LAKE_COLUMNS" in refusal(FrameRefused, lambda: DeltaSink(tmp_path / "t"), *columns)


def test_columns_of_another_kind_within(tmp_path: Path) -> None:
    """What may not be null within a column is not looked at row by row, so it is refused."""
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    new_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("s", inner)]))
    text = refusal(SettingRefused, lambda: DeltaSink(tmp_path / "t"), *COLUMNS)
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
def test_arguments_that_contradict_each_other(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SettingRefused):
        DeltaSink(tmp_path / "t", **arguments)


def test_what_delta_rs_would_spoil_is_refused(tmp_path: Path) -> None:
    """It spells -1.05 in a partition as -1.-5, and looks for a%20b at "a b"."""
    price = [("id", "bigint"), ("price", "decimal(10,2)")]
    text = refusal(FrameRefused, lambda: DeltaSink(tmp_path / "t", partition_by="price"), *price)
    assert "price" in text and "decimal(10,2)" in text
    with raised(SettingRefused, "LAKE_ARGUMENT", "a%20b"):
        DeltaSink(tmp_path / "a%20b")
    assert not list(tmp_path.iterdir())


def test_partitions_of_another_kind(tmp_path: Path) -> None:
    frame = numbers(1, day=["a"])
    Query(DeltaSink(tmp_path / "t", partition_by="day"), columns_of(frame)).write(0, frame)
    text = refusal(
        SettingRefused, lambda: DeltaSink(tmp_path / "t", partition_by="id"), *columns_of(frame)
    )
    assert "partitioned by ['day']" in text
    text = refusal(FrameRefused, lambda: DeltaSink(tmp_path / "t"), *COLUMNS)
    assert "day" in text
    when = (("id", "bigint"), ("at", "timestamp"))
    refusal(FrameRefused, lambda: DeltaSink(tmp_path / "u", partition_by="at"), *when)


def test_a_version_of_another_writer_is_read(tmp_path: Path) -> None:
    """The kit's versions by hand are versions: what they add is found."""
    new_table(tmp_path / "t", SCHEMA)
    commit_by_hand(tmp_path / "t", {"txn": {"appId": "spark", "version": 3}})
    Query(DeltaSink(tmp_path / "t"), COLUMNS).write(0, numbers(5))
    assert ids(tmp_path / "t") == [5]
