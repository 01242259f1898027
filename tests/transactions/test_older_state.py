"""What was decided before, and checkpoint, log and target that do not fit: an older copy, another log. Nobody
takes what is decided for undecided, nor commits it behind later batches (of another guarantee:
``tests/operate``); and ``exactum accept``: what a start refuses is said, asked, taken, and compared again from there.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.checkpoint.layout import DECISIONS, STAGING
from exactum.checkpoint.run_file import RunFile
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.ops import accept as accept_command
from exactum.protocol.ends import Noted
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.query_record import on_file
from tests.kit.transactions.operator import accept, invoke, listed, transactions, typed
from tests.kit.verify.recorded_query import RecordedQuery, of_numbers

UNASKED = "the decision log cannot be asked"


@pytest.fixture
def numbers(tmp_path: Path) -> RecordedQuery:
    return of_numbers(tmp_path)


def written(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in (folder / "out").glob("part-*"))


def test_an_older_copy(numbers: RecordedQuery, tmp_path: Path) -> None:
    """Two epochs, a copy, and two more, of which the last is decided and its driver died. The copy
    is tried twice; then the epoch is finished by the checkpoint itself.
    """
    numbers.run([0, 1])
    shutil.copytree(numbers.folder, tmp_path / "copy")
    numbers.run([2, 3], dies_after_decision=True)
    arguments = ("--checkpoint", tmp_path / "copy")
    told = transactions("abort", *arguments, status=2).output
    assert "has batch 2, and the decision log" in told and "older than the rest" in told
    older = copy.copy(numbers)
    older.folder = tmp_path / "copy"
    with raised(CheckpointRefused, "ENDS_DIFFER", "has batch 2", "decision log"):
        older.run([2])
    transactions("finish", "--checkpoint", numbers.folder, status=0)
    assert written(tmp_path) == [f'{{"n":{n}}}\n' for n in range(4)]


def test_a_place_that_the_query_has_left(numbers: RecordedQuery, tmp_path: Path) -> None:
    """It says where the query is now."""
    numbers.run([0, 1])
    create(str(numbers.folder), tmp_path / "savepoint")
    restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    for command in (("abort",), ("finish",), ("list",)):
        told = transactions(*command, "--checkpoint", numbers.folder, status=2).output
        assert f"is retired: {tmp_path / 'moved'} took its place" in told
    for name in ("verify", "status"):
        told = invoke(name, "--checkpoint", numbers.folder)
        assert (told.exit_code, "is retired" in told.output) == (2, True)
    transactions("finish", "--checkpoint", tmp_path / "moved", status=0)


def test_a_savepoint_takes_no_staged_rows(numbers: RecordedQuery, tmp_path: Path) -> None:
    """It is cut where nothing waits. What a task that died late has left is nobody's."""
    numbers.run([0, 1])
    left = numbers.folder / STAGING / "a" / "0000000001-0-0-b-0123456789abcdef.0.staged"
    left.parent.mkdir(parents=True)
    left.write_text("rows")
    create(str(numbers.folder), tmp_path / "savepoint")
    restore(tmp_path / "savepoint", str(tmp_path / "moved"), Identity.SAME)
    for place in ("savepoint", "moved"):
        assert not list((tmp_path / place).rglob("*.staged")), place


@pytest.mark.parametrize("batches", [[0], [0, 1]])
def test_another_decision_log(numbers: RecordedQuery, tmp_path: Path, batches: list[int]) -> None:
    """By a typing error in --decision-log nothing is called undecided, let alone aborted."""
    numbers.run(batches, dies_after_decision=True)
    other = ("--checkpoint", numbers.folder, "--decision-log", tmp_path / "typo")
    for command in (("abort",), ("finish",)):
        told = transactions(*command, *other, status=2).output
        assert "[DECISION_LOG_OTHER]" in told and "is empty" in told
    (found,) = listed(*other[1:], status=2)
    assert (found["on_record"], "look again" in found["do"]) == (UNASKED, True)
    transactions("finish", "--checkpoint", numbers.folder, status=0)
    assert written(tmp_path) == [f'{{"n":{n}}}\n' for n in batches]


@pytest.mark.parametrize(
    ("lost", "decided"),
    [(0, {2, 3}), (1, {2, 3}), (2, None), (3, {2})],
    ids=str,
)
def test_a_lost_record(
    numbers: RecordedQuery, tmp_path: Path, lost: int, decided: set[int] | None
) -> None:
    """``list`` and ``finish`` say the same of it. Spark has not logged batches 2 and 3, and the driver died
    before it committed 3. Nobody needs a record before these. Where one of them is gone and a later one is
    there the log is damaged, and nothing is called undecided.
    """
    numbers.run([0, 1, 2, 3], dies_after_decision=True)
    (numbers.folder / "commits" / "2").unlink()
    for record in (numbers.folder / DECISIONS).glob(f"{lost:020d}-*"):
        record.unlink()
    at = ("--checkpoint", numbers.folder)
    if decided is None:
        (found,) = listed(numbers.folder, status=2)
        assert (found["on_record"], found["needs_person"]) == (UNASKED, False)
        for command in ("list", "finish", "abort"):
            told = transactions(command, *at, status=2).output
            assert "is damaged: it is missing" in told and f"{lost:020d}-0.json" in told
        return
    found = listed(numbers.folder, status=1)
    assert {t["batch_id"] for t in found if t["on_record"] == "COMMIT on record"} == decided
    finished = transactions("finish", *at, "--json", status=0).json["batches"]
    assert {each["batch_id"] for each in finished} == decided


COLUMNS = (("id", "bigint"), ("name", "string"))


def tasks_of(batch_id: int) -> list[list[pa.RecordBatch]]:
    """One row, of the same key in each batch."""
    name = pa.array([f"of batch {batch_id}"])
    return [[pa.record_batch({"id": pa.array([1], pa.int64()), "name": name})]]


def files(folder: Path) -> RecordedQuery:
    sink = lambda: FileSink(folder / "out", format="json")  # noqa: E731
    return RecordedQuery(folder / "checkpoint", {"out": (sink, COLUMNS, tasks_of)})


def batches_in(folder: Path) -> list[int]:
    """Which batches are visible, each as often as it is."""
    lines = [line for f in (folder / "out").glob("part-*") for line in f.read_text().splitlines()]
    return sorted(int(line.rpartition(" ")[2].rstrip('"}')) for line in lines)


def test_something_that_leaves_no_record(tmp_path: Path) -> None:
    """Spark's own sink wrote batches 1 and 2, or the log has lost batch 2: nobody can tell, so the
    start is refused until somebody accepts it. What batch 1 left is dropped then, or committed
    before by 'finish'.
    """
    for way in ("finish", "accept"):
        folder = tmp_path / way
        folder.mkdir()
        query = files(folder)
        query.run([0, 1], dies_after_decision=True)
        for batch_id in (1, 2):
            (query.folder / "offsets" / str(batch_id)).write_text("v1\n{}\n-\n")
            (query.folder / "commits" / str(batch_id)).write_text("v1\n{}\n")
        for _ in range(2):
            with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 1, "checkpoint", 2):
                query.run([3])
        assert batches_in(folder) == [0]
        if way == "finish":
            transactions("finish", "--checkpoint", query.folder, status=0)
            assert batches_in(folder) == [0, 1]
            assert "dropped" not in accept(query.folder, 3)
        else:
            assert "nothing was changed" in accept(query.folder, 3, status=1, answer="n\n")
            said = accept(query.folder, 3)
            assert "1 transactions of micro-batch 1, which is decided, still wait" in said
            assert "they are dropped. 'exactum transactions finish'" in said
        query.run([3, 4])
        assert batches_in(folder) == ([0, 1, 3, 4] if way == "finish" else [0, 3, 4])


def put_back(folder: Path, query: RecordedQuery, *batches: int) -> None:
    """The sink's folder, to before these batches."""
    kept = folder / "kept"
    shutil.copytree(folder / "out", kept)
    query.run(batches)
    shutil.rmtree(folder / "out")
    kept.rename(folder / "out")


def test_a_target_that_was_put_back(tmp_path: Path) -> None:
    """Refused, said, accepted, and compared again from there on."""
    query = files(tmp_path)
    query.run([0, 1])
    put_back(tmp_path, query, 2, 3)
    with raised(CheckpointRefused, "ENDS_DIFFER", "--batch 4"):
        query.run([4])
    said = accept(query.folder, 4)
    assert "sink 'out' ends with batch 1, and the decision log has batch 3 as committed" in said
    assert (
        "rows of micro-batches 2 to 3 are missing in sink 'out', and are not written again" in said
    )
    assert "accepted: start the query; it goes on with micro-batch 4" in said
    query.run([4, 5])
    assert batches_in(tmp_path) == [0, 1, 4, 5]
    assert "nothing to accept" in accept(query.folder, 6)
    put_back(tmp_path, query, 6)
    with raised(CheckpointRefused, "ENDS_DIFFER", "'out'", 5, "decision log", 6):
        query.run([7])


def test_a_log_that_was_put_back(tmp_path: Path) -> None:
    """The target is ahead of the log: the batch is written again, where that is accepted."""
    query = files(tmp_path)
    query.run([0, 1, 2])
    query.lose_decision(2)
    with raised(CheckpointRefused, "ENDS_DIFFER", "'out'", 2, "decision log", 1):
        query.run([2])
    said = accept(query.folder, 2, "--yes", answer="")
    assert (
        "micro-batches 2 to 2 are written again: in sink 'out' their rows will be there twice"
        in said
    )
    assert on_file(query.folder).noted == Noted(first=2, accepted=0)
    query.run([2, 3])
    assert batches_in(tmp_path) == [0, 1, 2, 2, 3]


def test_a_decided_batch_without_a_sink(tmp_path: Path) -> None:
    """What somebody removed of it is given up, and the query goes on."""
    query = files(tmp_path)
    query.run([0, 1], dies_after_decision=True)
    for staged in (tmp_path / "out" / ".exactum").glob("*/*.staged"):
        staged.unlink()
    with pytest.raises(HeuristicOutcome):
        query.run([1])
    assert "names sink 'in'; it names out" in accept(query.folder, 1, "--without", "in", status=2)
    said = accept(query.folder, 1, "--without", "out")
    assert "1 transactions with 1 rows of micro-batch 1 are given up in sink 'out'" in said
    query.run([1, 2])
    assert batches_in(tmp_path) == [0, 2]


def test_a_run_that_begins_while_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read the decision before, and bring rows in that were said to stay missing."""
    monkeypatch.setattr(accept_command, "ENDING_S", 0.1)
    query = files(tmp_path)
    query.run([0, 1], dies_after_decision=True)
    run = RunFile(Folder(query.folder), "ab", "0", "4")

    def begins(question: str) -> bool:
        run.hold()
        return True

    with monkeypatch.context() as asked:
        asked.setattr(accept_command.click, "confirm", begins)
        told = accept(query.folder, 1, "--without", "out", status=2)
    assert "is decided without sink 'out'" in told and "Look there when it has ended" in told
    query.run([1])
    run.release()
    assert batches_in(tmp_path) == [0]


@pytest.mark.parametrize("ended", [False, True])
def test_a_query_that_goes_on_while_a_person_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool
) -> None:
    """Somebody else brings the newer state back, and starts it. What it writes is not forgotten.
    (That rows would be doubled: tests/sql/test_lost_commit.py.)
    """
    monkeypatch.setattr(accept_command, "ENDING_S", 0.1)
    query = files(tmp_path)
    query.run([0, 1, 2])
    lost = query.lose_decision(2)
    run = RunFile(Folder(query.folder), "ab", "0", "4")

    def goes_on(question: str) -> bool:
        for path, record in lost.items():
            path.write_bytes(record)
        run.hold()
        query.run([2, 3])
        if ended:
            run.release()
        return True

    with monkeypatch.context() as asked:
        asked.setattr(accept_command.click, "confirm", goes_on)
        told = accept(query.folder, 2, status=2)
    assert ("since it was compared" if ended else "lives. Stop it first") in told
    query.run([4])
    assert batches_in(tmp_path) == [0, 1, 2, 3, 4]
    run.release()


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another batch, a run that lives, a "no", and a checkpoint that is none: nothing is changed."""
    monkeypatch.setattr(accept_command, "ENDING_S", 0.1)
    query = files(tmp_path)
    query.run([0, 1])
    put_back(tmp_path, query, 2)
    before = sorted(p.name for p in (query.folder / DECISIONS).iterdir())
    assert "goes on with micro-batch 3, not with 2" in accept(query.folder, 2, status=2)
    assert "nothing was changed" in accept(query.folder, 3, status=1, answer="n\n")
    run = RunFile(Folder(query.folder), "ab", "0", "4")
    run.hold()
    assert "lives. Stop it first." in accept(query.folder, 3, status=2)
    run.release()
    complete = typed(
        *("accept", "--checkpoint", query.folder, "--batch", 1, "--without", "out", "--yes"),
        status=0,
    )
    assert "micro-batch 1 is complete" in complete.output
    typed("accept", "--checkpoint", tmp_path / "none", "--batch", "3", status=2)
    assert sorted(p.name for p in (query.folder / DECISIONS).iterdir()) == before
    with raised(CheckpointRefused, "ENDS_DIFFER", "batch 1"):
        query.run([3])
