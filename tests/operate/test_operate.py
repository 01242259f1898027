"""What commands say of each kind of target and do to it: the same for all. What is peculiar to one
stands with its own tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactum import SparkTableSink, TableTransaction, WriteAheadSink
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import HeuristicOutcome
from exactum.ops import verify as verify_command
from exactum.protocol.sink import Guarantee, Rejection, Sink
from exactum.spark.write.dead_letter import dead_letters
from exactum.storage.folder import Folder
from tests.contract.targets import TARGETS, FolderTarget, Kind, Row, Target
from tests.kit.errors import raised
from tests.kit.opened_sink import OpenedSink
from tests.kit.sql.sql_epochs import expected
from tests.kit.transactions.operator import invoke, listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

TASKS, ROWS = 3, 4


SINK = "out"


class SparkTable(FolderTarget):
    """Each micro-batch is a folder of its own, which is written again as it was."""

    counted = finished = False

    def sink(self) -> Sink:
        table = self.table

        def write(rows: Any, transaction: TableTransaction) -> None:
            own = table / transaction.app_id.replace(":", "-") / str(transaction.version)
            rows.write.mode("overwrite").parquet(str(own))

        return SparkTableSink(write, name="table")

    def rows(self) -> list[Row]:
        files = self.table.rglob("*.parquet")
        found = [row for file in files for row in pq.read_table(file).to_pylist()]
        return [(row["id"], row["name"]) for row in found]


@contextmanager
def spark_table(request: pytest.FixtureRequest, folder: Path) -> Iterator[Target]:
    request.getfixturevalue("spark")
    yield SparkTable(folder)


KINDS = {name: kind for name, kind in TARGETS.items() if "upsert" not in name}
KINDS["spark-table"] = Kind(spark_table, (pytest.mark.spark,))


@pytest.fixture(params=[pytest.param(name, marks=kind.marks) for name, kind in KINDS.items()])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    folder = tmp_path / "place"
    folder.mkdir()
    with KINDS[request.param].made(request, folder) as made:
        yield made


def query_of(target: Target, folder: Path) -> RecordedQuery:
    sinks = {SINK: (target.sink, target.columns, target.tasks)}
    return RecordedQuery(folder, sinks, target.staging)


@pytest.fixture(autouse=True)
def looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """``exactum verify`` gives what is in doubt a second; here nobody is at work on it."""
    monkeypatch.setattr(verify_command, "DOUBT_PAUSE_S", 0.0)


@pytest.fixture
def query(target: Target, tmp_path: Path) -> RecordedQuery:
    return query_of(target, tmp_path / "checkpoint")


def seen(target: Target) -> list[str]:
    """The names that readers see."""
    return sorted(name for _, name in target.rows())


def lose(target: Target, query: RecordedQuery, batch_id: int) -> None:
    """What is decided of the batch, behind exactum's back."""
    with closing(QueryPlace.of(query.folder).open_log()) as log:
        prepared = log.read(batch_id)[-1].prepared
    staging = Folder(target.staging)
    own = OpenedSink(
        target.sink(), target.columns, query_id=query.query_id, name=SINK, staging=staging
    )
    with own as opened:
        target.lose(opened.participant, prepared)


def names(*batches: int) -> list[str]:
    return sorted(name for _, name in expected(batches))


def verified(target: Target, query: RecordedQuery) -> tuple[int, list[str]]:
    """The exit status of ``exactum verify``, and what it finds of each batch."""
    result = invoke("verify", "--checkpoint", query.folder, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, [e["finding"] for e in json.loads(result.stdout)["epochs"]]


def all_exact(target: Target, batches: int) -> tuple[int, list[str]]:
    return (0, ["exact"] * batches) if target.counted else (2, ["unknowable"] * batches)


def test_undecided(target: Target, query: RecordedQuery, tmp_path: Path) -> None:
    """Listed as leftovers, left by finish, no promise to verify, aborted after fencing; and what is
    open of another query at the same target is neither listed nor touched.
    """
    query.run([0, 1], dies_before_decision=True)
    other = query_of(target, tmp_path / "other")
    other.run([0], dies_before_decision=True)
    at = ("--checkpoint", query.folder)
    found = listed(query.folder, status=1)
    assert [(t["on_record"], t["query_id"]) for t in found] == [
        ("nothing on record", query.query_id)
    ] * TASKS
    assert "leftover, undecided" in found[0]["do"]
    assert verified(target, query) == all_exact(target, 1)
    finished = transactions("finish", *at, status=1).output
    assert f"{TASKS} transactions are open and undecided" in finished
    done = transactions("abort", *at, "--json", status=0).json
    assert sorted(done["aborted"]) == sorted(each["identity"] for each in found)
    assert done["fenced_at"] == {"batch_id": 1, "attempt": 0}
    assert listed(query.folder, status=0) == []
    assert len(listed(other.folder, status=1)) == TASKS
    assert seen(target) == names(0)
    query.run([1, 2])
    other.run([0])
    assert seen(target) == sorted(names(0, 1, 2) + names(0))
    assert verified(target, query) == all_exact(target, 3)


def test_decided(target: Target, query: RecordedQuery) -> None:
    """Listed as decided, in doubt to verify; visible once by finish, and no start adds to it."""
    query.run([0, 1], dies_after_decision=True)
    at = ("--checkpoint", query.folder)
    found = listed(query.folder, status=1)
    assert [(t["sink"], t["state"], t["on_record"], t["batch_id"], t["rows"]) for t in found] == [
        (SINK, target.waits, "COMMIT on record", 1, ROWS)
    ] * TASKS
    in_doubt = (1, ["exact", "in doubt"])
    assert verified(target, query) == (in_doubt if target.counted else all_exact(target, 2))
    assert seen(target) == names(0)
    if not target.finished:
        left_to_a_start(target, query)
        return
    typed = transactions("finish", *at, status=0).output
    assert f"{TASKS} transactions with {TASKS * ROWS} rows are committed" in typed
    assert seen(target) == names(0, 1)
    assert verified(target, query) == all_exact(target, 2)
    transactions("finish", *at, status=0)
    knows = target.undone != "unknown"  # whether the target says what became of a transaction
    assert {t["state"] for t in listed(query.folder, status=0 if knows else 1)} == {
        "committed" if knows else "unknown"
    }
    query.run([1, 2])
    assert seen(target) == names(0, 1, 2)
    assert listed(query.folder, status=0) == []


def left_to_a_start(target: Target, query: RecordedQuery) -> None:
    """Finish says that only the query can commit what is decided, and its next start does."""
    result = invoke("transactions", "finish", "--checkpoint", query.folder)
    assert result.exit_code != 0 and "Start the query: it does" in result.output, result.output
    assert seen(target) == names(0)
    query.run([1, 2])
    assert seen(target) == names(0, 1, 2)
    assert listed(query.folder, status=0) == []


def test_undone(target: Target, query: RecordedQuery) -> None:
    """What is decided and was taken away by somebody is no leftover, and is not finished: a start
    has to make it whole, or say what is missing.
    """
    query.run([0, 1], dies_after_decision=True)
    lose(target, query, 1)
    found = listed(query.folder, status=1)
    assert [(t["state"], t["on_record"]) for t in found] == [
        (target.undone, "COMMIT on record")
    ] * TASKS
    at = ("--checkpoint", query.folder)
    assert "nobody was fenced" in transactions("abort", *at, status=0).output
    if target.undone != "unknown":  # else its own commit() takes it for done
        assert "start the query" in found[0]["do"]
        typed = transactions("finish", *at, status=1).output
        assert f"{TASKS} are not" in typed and "undone since" in typed
    assert seen(target) == names(0)
    missing = (1, ["exact", "missing"])
    assert verified(target, query) == (missing if target.counted else all_exact(target, 2))
    if target.undone == "gone":
        with raised(HeuristicOutcome, "STAGED_GONE", found[0]["identity"]):
            query.run([1])
    elif target.undone == "aborted":  # its records are in the log, and are sent again
        query.run([1])
        assert seen(target) == names(0, 1)


def test_lost(target: Target, query: RecordedQuery) -> None:
    """Spark has logged the batch, and its target has lost the commit: listed as decided, left by
    abort, committed again by finish. A write-ahead sink is left to the next start, which sends.
    """
    query.run([0, 1], dies_after_decision=True)
    (query.folder / "commits" / "1").write_text("v1\n{}\n")
    found = listed(query.folder, status=1)
    assert {(t["on_record"], t["batch_id"]) for t in found} == {("COMMIT on record", 1)}
    assert {t["state"] for t in found} <= {"open", "prepared"}
    at = ("--checkpoint", query.folder)
    left = transactions("abort", *at, status=0).output
    assert "nothing is open and undecided" in left
    if not target.finished:
        left_to_a_start(target, query)
        return
    done = transactions("finish", *at, "--json", status=0).json
    sends = isinstance(target.sink(), WriteAheadSink)
    assert (done["committed_again"], done["open_undecided"]) == (0 if sends else TASKS, 0)
    assert seen(target) == (names(0) if sends else names(0, 1))
    assert transactions("finish", *at, "--json", status=0).json["committed_again"] == 0
    if not sends:
        assert verified(target, query) == all_exact(target, 2)
        assert listed(query.folder, status=0) == []


@pytest.mark.variants(2)
@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("then", [Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE])
def test_another_guarantee(
    target: Target, query: RecordedQuery, then: Guarantee, decided: bool
) -> None:
    """What a dead run left is settled before the next one writes: committed once where it is decided,
    else aborted, and nobody's afterwards.
    """
    query.run([0, 1], dies_after_decision=decided, dies_before_decision=not decided)
    query.run([1, 2], guarantee=then)
    assert seen(target) == names(0, 1, 2)
    assert listed(query.folder, status=0) == []


def test_dead_letters(target: Target, tmp_path: Path) -> None:
    """Each has a name of its own, also of two that are equal; one is shown whole. Where no command
    can read them, that is said.
    """
    is_read = target.letters() is not None
    make: Any = target.letters if is_read else target.sink
    columns = tuple(make().dead_letter_columns)
    at = ("--checkpoint", tmp_path / "checkpoint")
    tasks = lambda batch_id: [[put_aside(columns)]] if is_read else []  # noqa: E731
    query = RecordedQuery(at[1], {"dead letters": (make, columns, tasks)})
    query.run([0])
    if not is_read:
        output = invoke("dead-letters", "list", *at)
        assert (output.exit_code, "no command reads them there" in output.output) == (2, True)
        return
    (group,) = json.loads(invoke("dead-letters", "list", *at, "--json").stdout)
    assert (group["count"], group["sink"]) == (3, "table")
    lines = invoke("dead-letters", "list", *at, "--each", "--json").stdout.splitlines()
    each = [json.loads(line) for line in lines]
    assert len({one["identity"] for one in each}) == 3
    assert sorted(bytes.fromhex(one["value"]) for one in each) == [b"bad", b"bad", b"\xff\0"]
    assert {(e["source_topic"], e["source_offset"]) for e in each} == {("in", 7), ("in", 8)}
    shown = invoke("dead-letters", "show", each[0]["identity"], *at, "--json")
    assert json.loads(shown.stdout) == each[0]
    query.run([1], dies_before_decision=True)
    again = invoke("dead-letters", "list", *at, "--each", "--json").stdout.splitlines()
    assert len(again) == 3, "only what readers see"


def put_aside(columns: Any) -> Any:
    """Three, of which two are equal, as a task makes them."""
    rows = pa.record_batch(
        {
            "key": ["a", "a", "b"],
            "value": [b"bad", b"bad", b"\xff\0"],
            "topic": ["in"] * 3,
            "partition": pa.array([0] * 3, pa.int32()),
            "offset": pa.array([7, 7, 8], pa.int64()),
        }
    )
    rejection = Rejection(rows, ("too long",) * 3)
    return dead_letters(rejection, "table", [name for name, _ in columns])
