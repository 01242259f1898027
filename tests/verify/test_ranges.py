"""What ``exactum verify`` says of batches that are on no record, though somebody asks for them or a
target has them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactum import FileSink
from exactum.checkpoint.layout import DECISIONS
from exactum.files.slot_log import SlotLog, slot_name
from exactum.protocol.sink import Guarantee
from exactum.storage.folder import Folder
from tests.kit.transactions.operator import invoke
from tests.kit.verify.recorded_query import RecordedQuery


@pytest.fixture
def query(tmp_path: Path) -> RecordedQuery:
    """It writes one row a batch into files."""

    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        return [[pa.record_batch({"n": pa.array([batch_id], pa.int64())})]]

    sink = lambda: FileSink(str(tmp_path / "out"), format="json")  # noqa: E731
    return RecordedQuery(tmp_path / "checkpoint", {"files": (sink, (("n", "bigint"),), tasks)})


def verified(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Its exit status, and what it says in JSON."""
    result = invoke("verify", "--checkpoint", folder, "--json", *more)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, json.loads(result.stdout)


def test_an_older_copy_is_not_exact(query: RecordedQuery, tmp_path: Path) -> None:
    """What it promises is there, and the target has more."""
    query.run([0, 1])
    shutil.copytree(query.folder, tmp_path / "copy")
    query.run([2, 3])
    assert verified(query.folder)[0] == 0
    status, told = verified(tmp_path / "copy")
    assert status == 1
    assert [(e["batch_id"], e["finding"]) for e in told["epochs"]] == [
        (0, "exact"),
        (1, "exact"),
        (3, "extra"),
    ]
    assert "older copy" in told["epochs"][-1]["why"]


def test_batches_that_somebody_names(query: RecordedQuery) -> None:
    """They are all exact only if all of them are on record. Who names none wants what is there."""
    query.run(range(30))
    log = SlotLog(Folder(query.folder / DECISIONS), query.query_id)
    log.prune(25)
    log.close()
    assert verified(query.folder)[0] == 0
    assert verified(query.folder, "--from", "25", "--to", "29")[0] == 0
    status, told = verified(query.folder, "--from", "20")
    assert (status, told["forgotten_below"]) == (2, 25)
    status, told = verified(query.folder, "--to", "30")
    assert (status, told["not_begun"]) == (2, 30)
    query.run([29, 30], dies_before_decision=True)
    assert verified(query.folder)[0] == 0, "nothing is promised of it yet"
    status, told = verified(query.folder, "--to", "30")
    assert (status, told["undecided"]) == (2, [30])
    (query.folder / DECISIONS / slot_name(27, 0)).write_text("{")
    told = invoke("verify", "--checkpoint", query.folder)
    assert (told.exit_code, "[DECISION_LOG_DAMAGED]" in told.stderr) == (2, True)


def test_a_stretch_of_at_least_once(query: RecordedQuery) -> None:
    """Nothing is promised of what it wrote. What was decided before it, and the others, are looked
    at.
    """
    query.run([0, 1], dies_after_decision=True)
    query.run([1, 2], guarantee=Guarantee.AT_LEAST_ONCE)
    query.run([3, 4])
    status, told = verified(query.folder)
    assert (status, told["unrecorded"]) == (2, [2])
    assert [(e["batch_id"], e["finding"]) for e in told["epochs"]] == [
        (0, "exact"),
        (1, "exact"),
        (3, "exact"),
        (4, "exact"),
    ]
    assert verified(query.folder, "--from", "3")[0] == 0
