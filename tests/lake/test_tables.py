"""Tables of a lakehouse as targets, in both formats: what comes into them, once, whoever else writes and
tidies up there; and what added files would break, refused by name. (What holds for every staged
target: tests/contract.)
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    FrameRefused,
    HeuristicOutcome,
    OutcomeUnknown,
    SettingRefused,
)
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee
from tests.kit.errors import raised
from tests.kit.lake.iceberg import Lake
from tests.kit.lake.tables import (
    Delta,
    at_once,
    columns_of,
    numbers,
    refusal,
)
from tests.kit.opened_sink import OpenedSink
from tests.kit.transactions.operator import invoke
from tests.kit.verify.recorded_query import RecordedQuery

COLUMNS = (("id", "bigint"),)
IDS = pa.schema([("id", pa.int64())])
Place = Delta | Lake


def opened(place: Place, guarantee: Guarantee = Guarantee.EXACTLY_ONCE, **more: Any) -> OpenedSink:
    return OpenedSink(place.sink(**more), COLUMNS, guarantee)


def written(place: Place, frame: pa.RecordBatch, batch_id: int = 0, **more: Any) -> OpenedSink:
    one = OpenedSink(place.sink(**more), columns_of(frame))
    one.write(frame, batch_id=batch_id)
    return one


def rows_of(place: Place) -> list[dict[str, Any]]:
    return sorted(place.read().to_pylist(), key=lambda row: row["id"])


# ---- rows ----------------------------------------------------------------------------------------


def test_one_version_for_each_epoch(place: Place) -> None:
    """However many tasks and files."""
    frame = numbers(1, 2, 3, day=["a", "b/ä %=", None])
    query = OpenedSink(place.sink(partition_by="day"), columns_of(frame))
    query.write(frame, numbers(4, day=["a"]))
    assert place.versions() == 1
    assert [(row["id"], row["day"]) for row in rows_of(place)] == [
        (1, "a"), (2, "b/ä %="), (3, None), (4, "a"),
    ]  # fmt: skip


def test_rows_that_the_table_cannot_hold_are_put_aside(place: Place) -> None:
    place.create(pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())]))
    frame = pa.record_batch({"id": pa.array([1, None], pa.int64()), "v": ["a", "b"]})
    (rejection,) = written(place, frame).rejections
    assert rejection.rows.to_pydict() == {"id": [None], "v": ["b"]}
    assert "NOT NULL" in rejection.reasons[0]
    assert place.ids() == [1]


def test_columns_that_the_frame_has_not_are_null(place: Place) -> None:
    place.create(pa.schema([("id", pa.int64()), ("more", pa.string())]))
    written(place, numbers(1))
    assert rows_of(place) == [{"id": 1, "more": None}]


def test_columns_are_added_where_that_is_asked(place: Place) -> None:
    written(place, numbers(1))
    written(place, numbers(2, more=["x"]), 1, merge_schema=True)
    assert rows_of(place) == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]


# ---- others at the table, and what dies ------------------------------------------------------------


def race(place: Place, batches: int) -> None:
    """Two drivers carry out each decision at once, while somebody else appends: no row is lost, and
    none is there twice.
    """
    query, successor = opened(place), opened(place)
    stop, theirs = threading.Event(), itertools.count(1_000_000)

    def append() -> None:
        while not stop.is_set():
            place.foreign(next(theirs))

    if isinstance(place, Lake):
        again = {"commit.retry.num-retries": "100", "commit.retry.max-wait-ms": "200"}
        place.table.transaction().set_properties(again).commit_transaction()
    foreign = threading.Thread(target=append)
    foreign.start()
    try:
        for batch_id in range(batches):
            permit = query.decide(numbers(batch_id), batch_id=batch_id)
            at_once(query.commit, successor.commit, permit=permit)
    finally:
        stop.set()
        foreign.join()
        query.participant.close()
        successor.participant.close()
    found = place.ids()
    last = next(theirs)
    assert [i for i in found if i < 1_000_000] == list(range(batches))
    assert [i for i in found if i >= 1_000_000] == list(range(1_000_000, last))
    assert last > 1_000_000


def test_others_append_all_the_time(place: Place) -> None:
    race(place, 8)


def test_compaction_and_the_removal_of_old_files(place: Place) -> None:
    """Of what waits they take nothing; what they have taken of a finished batch does not come again,
    and the marker outlives every version.
    """
    query = opened(place)
    first = query.write(numbers(1))
    query.write(numbers(2), batch_id=1)
    waits = query.decide(numbers(3), batch_id=2)
    place.tidied()
    query.commit(first)
    query.commit(waits)
    assert place.ids() == [1, 2, 3]
    assert query.participant.list_open() == []


def test_a_table_that_was_made_anew(place: Place) -> None:
    """While a batch is written; and between two starts, where the log says what it had."""
    query = opened(place)
    permit = query.write(numbers(1))
    prepared = query.prepare(numbers(2), batch_id=1)
    place.made_anew(IDS)
    with raised(EpochAborted, "made anew"):
        query.participant.verify(prepared)
    later = opened(place).participant
    assert later.last_batch(permit.record.prepared) == -1
    assert later.last_batch() is None


def test_a_table_that_is_gone_is_not_made_anew(place: Place) -> None:
    """It was moved away, dropped, or is not mounted: readers see no empty one, and it can be put back.
    What the log has of another sink, or of none, is in nobody's way.
    """
    permit = opened(place).write(numbers(1))
    others = [replace(p, participant="other") for p in permit.record.prepared]

    def start(committed: Sequence[PreparedTransaction]) -> OpenedSink:
        return OpenedSink(place.sink(), COLUMNS, committed=committed)

    back = place.away()
    with raised(CheckpointRefused, "ENDS_DIFFER", "batch 0", "create it yourself"):
        start(permit.record.prepared)
    assert not place.exists()
    back()
    start(permit.record.prepared)
    assert place.ids() == [1]
    place.away()
    start(others)
    assert place.ids() == []


def dying(place: Place, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
    """The next commit of the table fails as one whose answer is lost, before or after its effect."""
    owner, name = place.commits
    real = getattr(owner, name)

    def once(self: Any, *args: Any, **more: Any) -> None:
        monkeypatch.setattr(owner, name, real)
        if after:
            real(self, *args, **more)
        raise OSError("the answer was lost")

    monkeypatch.setattr(owner, name, once)


@pytest.mark.parametrize("after", [False, True])
def test_an_answer_that_was_lost(
    after: bool, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marker tells: Iceberg's at once, Delta's at the next start."""
    query = opened(place)
    permit = query.decide(numbers(1))
    dying(place, monkeypatch, after=after)
    if isinstance(place, Delta):
        with raised(OutcomeUnknown, "the answer was lost"):
            query.commit(permit)
    else:
        assert query.commit(permit).expired == ()
    opened(place).commit(permit)
    assert place.ids() == [1]
    assert place.versions() == 1


def test_a_library_that_fails_after_the_decision(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error that nobody expected: the query stops with its words and a code, nothing is
    lost, and a version that does not fail goes on.
    """
    query = opened(place)
    permit = query.decide(numbers(1))

    def fails(*_: object, **more: object) -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(*place.commits, fails)
        with raised(HeuristicOutcome, "TARGET_REFUSES", "RuntimeError", "a defect"):
            query.commit(permit)
    query.commit(permit)
    assert place.ids() == [1]


def test_decided_rows_that_somebody_removed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash between their move and the commit others find files that no version names, and
    remove them. The query stops and names them, and goes on when they are put back.
    """
    query = opened(place)
    permit = query.decide(numbers(1, 2), numbers(3))

    def dies(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*place.commits, dies)
        with pytest.raises(KeyboardInterrupt):
            query.commit(permit)
    files = sorted(place.data.glob("part-*.parquet"))
    assert len(files) == 2
    away = files[0].rename(place.folder / files[0].name)
    for stopped in (query, opened(place)):
        expired = stopped.commit(permit).expired
        assert len(expired) == 2
        with raised(HeuristicOutcome, "STAGED_GONE", "0000000000-0-0-", "with 2 rows"):
            stopped.participant.salvage(permit, expired)
    away.rename(files[0])
    query.commit(permit)
    assert place.ids() == [1, 2, 3]


# ---- what is refused -----------------------------------------------------------------------------

Change = Callable[[Any], object]


def delta(**settings: str) -> Change:
    return lambda place: place.with_metadata(**settings)


def column(**metadata: Any) -> Change:
    named = {name.replace("_", ".", 1): value for name, value in metadata.items()}
    return lambda place: place.with_metadata(named)


def features(*names: str, readers: tuple[str, ...] = ()) -> Change:
    return lambda place: place.with_features(*names, readers=readers)


def setting(name: str, value: str) -> Change:
    return lambda place: (
        place.table.transaction().set_properties({name: value}).commit_transaction()
    )


def partition(transform: str, source: int) -> Change:
    field = {"source-id": source, "field-id": 1000, "transform": transform, "name": "p"}
    specs = [{"spec-id": 0, "fields": [field]}]
    return lambda place: place.rewritten(**{"partition-specs": specs})


def demanding(document: dict[str, Any]) -> None:
    for schema in document["schemas"]:
        schema["fields"][2]["type"]["fields"][0]["required"] = True


SCHEMA = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("s", pa.struct([("a", pa.int64())]))])
BREAKING: dict[str, dict[str, Change]] = {
    "delta": {
        "CHECK constraint 'positive'": delta(delta__constraints__positive="id > 0"),
        "generated columns": column(delta_generationExpression="1 + 1"),
        "invariants": column(delta_invariants='{"expression": "id > 0"}'),
        "identity columns": lambda place: place.with_metadata({"delta.identity.start": 1}),
        "column mapping": delta(delta__columnMapping__mode="name"),
        "row tracking": delta(delta__enableRowTracking="true"),
        "delta.setTransactionRetentionDuration": delta(
            delta__setTransactionRetentionDuration="interval 7 days"
        ),
        "clustering": features("clustering", "domainMetadata"),
        **{
            name: features(name)
            for name in (
                "rowTracking",
                "inCommitTimestamp",
                "identityColumns",
                "allowColumnDefaults",
                "icebergCompatV2",
            )
        },
        "typeWidening": features("typeWidening", readers=("typeWidening",)),
        "catalog-managed": features("catalogManaged", readers=("catalogManaged",)),
        "of the year 2040": features("of the year 2040", readers=("of the year 2040",)),
    },
    "iceberg": {
        "format version 3": lambda place: place.rewritten(
            **{"format-version": 3, "next-row-id": 0}
        ),
        "write.data.path": setting("write.data.path", "file:///elsewhere"),
        "encryption.key-id": setting("encryption.key-id", "k"),
        "write.wap.enabled": setting("write.wap.enabled", "true"),
        "the partition unknown(id)": partition("zorder", 1),
        "the partition f": partition("identity", 2),
        "the partition s.a": partition("identity", 4),
        "NOT NULL within the column 's'": lambda place: place.amended(demanding),
    },
}
RUNNING = {
    "delta": ["CHECK constraint 'positive'", "clustering", "catalog-managed"],
    "iceberg": ["format version 3", "write.data.path", "write.wap.enabled"],
}
"""What a table gets while a query runs."""
UNDONE: dict[str, tuple[str, Change]] = {
    "delta": ("positive", delta()),
    "iceberg": ("write.wap.enabled", setting("write.wap.enabled", "false")),
}


def of_each(names: Any) -> Any:
    """``place`` and what breaks it."""
    kinds = {"delta": Delta, "iceberg": Lake}
    cases = [(kind, name) for kind, some in names.items() for name in some]
    return pytest.mark.parametrize(
        ("place", "named"),
        [pytest.param(kinds[kind], name, id=f"{kind}-{name}") for kind, name in cases],
        indirect=["place"],
    )


@of_each(BREAKING)
def test_what_added_files_would_break_is_refused_at_the_start(place: Place, named: str) -> None:
    place.create(SCHEMA)
    BREAKING[place.name][named](place)
    with raised(SettingRefused, "LAKE_FEATURE", named):
        opened(place)
    if isinstance(place, Lake):
        with raised(SettingRefused, "LAKE_FEATURE", named):
            list(place.sink().prove())


@of_each(RUNNING)
def test_and_before_a_decision(place: Place, named: str) -> None:
    """The table got it while the query runs: nothing is decided, and nothing is in the table."""
    place.create(SCHEMA)
    query = opened(place)
    prepared = query.prepare(numbers(1))
    BREAKING[place.name][named](place)
    with raised(SettingRefused, "LAKE_FEATURE", named):
        query.participant.verify(prepared)
    assert not list(place.data.glob("*.parquet"))


def test_and_after_it_nothing_is_lost(place: Place) -> None:
    """Decided, and then the table got it: the query stops, and goes on when it is gone."""
    query = opened(place)
    permit = query.decide(numbers(1))
    named, undo = UNDONE[place.name]
    breaking = BREAKING[place.name]
    next(change for name, change in breaking.items() if named in name)(place)
    with raised(HeuristicOutcome, "TARGET_REFUSES", named) as caught:
        query.commit(permit)
    assert ".." not in str(caught.value) and "Nothing was written" not in str(caught.value)
    undo(place)
    query.commit(permit)
    assert place.ids() == [1]


def test_a_table_that_is_not_there(place: Place) -> None:
    text = refusal(SettingRefused, place.sink(create_table=False), *COLUMNS)
    assert "LAKE_TABLE" in text and "create_table" in text
    assert not place.exists()


@pytest.mark.parametrize(
    "columns",
    [
        [("id", "string")],
        [("ID", "bigint")],
        [("id", "bigint"), ("more", "string")],
        [("more", "string")],
    ],
)
def test_columns_that_do_not_fit(columns: list[tuple[str, str]], place: Place) -> None:
    """Another type, another spelling, one that the table lacks, one that it wants."""
    place.create(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert "LAKE_COLUMNS" in refusal(FrameRefused, place.sink(), *columns)


# ---- commands --------------------------------------------------------------------------------------


def test_rows_that_were_rewritten_are_not_counted(tmp_path: Path, place: Place) -> None:
    """By a compaction, say. The marker has the batches, and nobody can tell their rows; or that the
    table was rolled back.
    """
    tasks = [[numbers(n)] for n in range(2)]
    query = RecordedQuery(
        tmp_path / "checkpoint", {place.name: (place.sink, COLUMNS, lambda _: tasks)}
    )
    query.run([0])
    place.tidied()
    said = invoke("verify", "--checkpoint", query.folder, "--json")
    (each,) = json.loads(said.stdout)["epochs"]
    assert each["finding"] == "unknowable" and "rolled back" in each["why"]
    assert place.ids() == [0, 1]


def test_doctor(tmp_path: Path, place: Place) -> None:
    made = (
        f"DeltaSink({str(place.path)!r})"
        if isinstance(place, Delta)
        else f"IcebergSink('shop.orders', catalog={dict(place.settings)!r})"
    )
    (tmp_path / "sinks.py").write_text(f"import exactum\nSINK = exactum.{made}\n")
    given = ("doctor", "--sinks", f"{tmp_path / 'sinks.py'}:SINK")
    assert "There is no table yet" in invoke(*given).output
    place.create(IDS)
    assert "The table can be written to" in invoke(*given).output
    named = "clustering" if isinstance(place, Delta) else "write.wap.enabled"
    BREAKING[place.name][named](place)
    assert named in invoke(*given).output
