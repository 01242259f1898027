"""``exactum accept``: what a start refuses is said, asked, taken, and compared again from there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.run_file import RunFile
from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.protocol.ends import Noted
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.query_record import on_file
from tests.kit.transactions.operator import accept, typed
from tests.kit.verify.recorded_query import RecordedQuery

COLUMNS = (("id", "bigint"),)


def tasks_of(batch_id: int) -> list[list[pa.RecordBatch]]:
    return [[pa.record_batch({"id": pa.array([batch_id], pa.int64())})]]


def query_of(folder: Path) -> RecordedQuery:
    def sink() -> FileSink:
        return FileSink(folder / "out", format="csv")

    return RecordedQuery(folder / "checkpoint", {"out": (sink, COLUMNS, tasks_of)})


def batches_in(folder: Path) -> list[int]:
    """Which batches are visible, each as often as it is."""
    files = (folder / "out").glob("part-*")
    return sorted(int(line) for f in files for line in f.read_text().split() if line.isdigit())


def put_back(folder: Path, query: RecordedQuery, *batches: int) -> None:
    """The sink's folder, to before these batches."""
    kept = folder / "kept"
    shutil.copytree(folder / "out", kept)
    query.run(batches)
    shutil.rmtree(folder / "out")
    kept.rename(folder / "out")


def test_a_target_that_was_put_back(tmp_path: Path) -> None:
    """Refused, said, accepted, and compared again from there on."""
    query = query_of(tmp_path)
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
    query = query_of(tmp_path)
    query.run([0, 1, 2])
    (query.folder / "commits" / "2").unlink()
    for record in (query.folder / DECISIONS).glob(f"{2:020d}-*"):
        record.unlink()
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
    query = query_of(tmp_path)
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


def test_what_is_refused(tmp_path: Path) -> None:
    """Another batch, a run that lives, a "no", and a checkpoint that is none: nothing is changed."""
    query = query_of(tmp_path)
    query.run([0, 1])
    put_back(tmp_path, query, 2)
    before = sorted(p.name for p in (query.folder / DECISIONS).iterdir())
    assert "goes on with micro-batch 3, not with 2" in accept(query.folder, 2, status=2)
    assert "nothing was changed" in accept(query.folder, 3, status=1, answer="n\n")
    run = RunFile(Folder(query.folder), "ab", "0", "4")
    run.hold()
    assert "lives. Stop the query first." in accept(query.folder, 3, status=1)
    run.release()
    typed("accept", "--checkpoint", tmp_path / "none", "--batch", "3", status=2)
    assert sorted(p.name for p in (query.folder / DECISIONS).iterdir()) == before
    with raised(CheckpointRefused, "ENDS_DIFFER", "batch 1"):
        query.run([3])
