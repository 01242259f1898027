"""An older copy of a checkpoint, or another decision log, while a decided epoch waits: neither an
operator's abort nor a start takes it for undecided.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.checkpoint.layout import STAGING
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused
from tests.kit.errors import raised
from tests.kit.transactions.operator import invoke, listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery


@pytest.fixture
def numbers(tmp_path: Path) -> RecordedQuery:
    """Each epoch writes its number into a file in the folder ``out``."""

    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        return [[pa.record_batch({"n": pa.array([batch_id], pa.int64())})]]

    sink = lambda: FileSink(str(tmp_path / "out"), format="json")  # noqa: E731
    return RecordedQuery(tmp_path / "checkpoint", {"files": (sink, (("n", "bigint"),), tasks)})


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
    assert (found["on_record"], "look again" in found["do"]) == (
        "the decision log cannot be asked",
        True,
    )
    transactions("finish", "--checkpoint", numbers.folder, status=0)
    assert written(tmp_path) == [f'{{"n":{n}}}\n' for n in batches]
