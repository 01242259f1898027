"""What an operator sees of a file sink, in a folder and in an object store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from obstore.store import MemoryStore

from exactum import FileSink
from exactum.protocol.inspection import TransactionState
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Epoch,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.sinks.writer import PAYLOAD_BYTES_MAX
from exactum.testing.memory import permit_of
from exactum.testing.task_job import TaskJob

COLUMNS = (("id", "bigint"), ("day", "string"))
MANY = 400
"""Files of one task: more than a record's payload lists."""


def sinks(folder: Path) -> dict[str, Callable[[], FileSink]]:
    store = MemoryStore()
    return {
        "folder": lambda: FileSink(folder, format="json", partition_by="day"),
        "objects": lambda: FileSink(
            "memory://bucket/out", format="json", partition_by="day", store=store
        ),
    }


@pytest.mark.parametrize("place", ["folder", "objects"])
def test_more_files_than_a_record_lists(tmp_path: Path, place: str) -> None:
    """Staged, committed, and gone: as lists and records show it. Looking makes nothing."""
    make = sinks(tmp_path / "out")[place]
    inspector = make().inspector("q", "out")
    assert inspector.list_open() == []
    assert not (tmp_path / "out").exists()
    run = QueryRun("q", new_incarnation(), Guarantee.EXACTLY_ONCE)
    opened = make().open(run, "out", COLUMNS)
    rows = pa.record_batch({"id": list(range(MANY)), "day": [f"d{i}" for i in range(MANY)]})
    began_ms = time.time() * 1000
    prepared = opened.participant.verify(
        TaskJob(opened.writers, [[rows], [rows]])(WriteOrder(run, 3, 0, 1))
    )
    assert len(prepared[0].payload) < PAYLOAD_BYTES_MAX and '"files"' not in prepared[0].payload
    shown = inspector.list_open()
    assert {view.identity for view in shown} == {p.identity for p in prepared}
    assert {(v.state, v.incarnation) for v in shown} == {
        (TransactionState.PREPARED, run.incarnation)
    }
    for view in shown:  # by the place's clock, in whole seconds perhaps
        assert view.began_ms is not None and abs(view.began_ms - began_ms) < 60_000
    assert {v.state for v in inspector.describe(prepared)} == {TransactionState.PREPARED}
    record = DecisionRecord(Epoch("q", 3), 0, Decision.COMMIT, run.incarnation, tuple(prepared))
    assert inspector.participant().commit(permit_of(record), prepared).committed == prepared
    assert inspector.list_open() == []
    assert {v.state for v in inspector.describe(prepared)} == {TransactionState.COMMITTED}

    later = opened.participant.verify(TaskJob(opened.writers, [[rows]])(WriteOrder(run, 4, 0, 2)))
    inspector.participant().abort(opened.participant.list_open())
    assert [v.state for v in inspector.describe(later)] == [TransactionState.GONE]
