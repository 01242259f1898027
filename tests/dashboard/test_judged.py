"""The page and ``exactum status`` say the same of a checkpoint: word, reason, and what to do."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.ops.dashboard import checkpoint_source
from exactum.ops.dashboard.checkpoint_source import CheckpointSource
from exactum.ops.dashboard.history_tail import HELD_MS
from exactum.ops.dashboard.picture import Judged, judged
from exactum.ops.status.query_status import status_of
from tests.kit.dashboard.checkpoints import MadeCheckpoint

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def made(tmp_path: Path) -> MadeCheckpoint:
    """Batch 5 is decided, Spark has logged 4, and the driver is gone."""
    made = MadeCheckpoint(tmp_path / "c").begin()
    made.spark(5, 4)
    made.decide(5, 0)
    made.write([made.started(NOW_MS - 90_000), made.completed(NOW_MS - 80_000, 4)])
    made.died()
    return made


def both_say(made: MadeCheckpoint) -> Judged:
    """What the page says, which is what the command says."""
    (picture,) = CheckpointSource([made.folder]).pictures()
    shown = judged(picture)
    told = status_of(str(made.folder), now_ms=picture.now_ms).judgement
    assert told is not None
    assert (shown.word, shown.reason, shown.todo) == (told.verdict.value, told.reason, told.todo)
    return shown


def test_damaged_decisions(made: MadeCheckpoint) -> None:
    """Whether the batch is decided is not known: that comes before a start."""
    (record,) = (made.folder / DECISIONS).glob("*5-0.json")
    record.write_text('{"torn')
    shown = both_say(made)
    assert shown.word == "DOWN"
    assert "Whether micro-batch 5 is decided is not known." in shown.reason
    assert shown.todo.startswith("First see to this: ") and record.name in shown.todo


def test_a_history_that_is_destroyed(made: MadeCheckpoint) -> None:
    """The run's file and the decision log have what counts."""
    shutil.rmtree(made.folder / HISTORY)
    shown = both_say(made)
    assert shown.word == "IN DOUBT"
    assert "Micro-batch 5 is decided" in shown.reason
    assert "exactum transactions finish" in shown.todo


def test_a_file_system_without_locks(tmp_path: Path) -> None:
    """No run could leave a file: what it tells shows that it lives."""
    made = MadeCheckpoint(tmp_path / "c").begin()
    made.spark(4, 4)
    now_ms = time.time_ns() // 1_000_000
    made.write([made.started(now_ms - 20_000), made.completed(now_ms - 1_000, 4)])
    assert both_say(made).word == "OK"


def test_a_query_that_lives(made: MadeCheckpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is judged by what was read last, and a page that stays open follows."""
    (record,) = (made.folder / DECISIONS).glob("*5-0.json")
    os.utime(record, (1, 1))
    monkeypatch.setattr(checkpoint_source, "FRESH_S", 0.0)
    source = CheckpointSource([made.folder])
    with made.living():
        assert both_say(made).word == "IN DOUBT"
        assert [judged(picture).word for picture in source.pictures()] == ["IN DOUBT"]
        made.write([made.completed(time.time_ns() // 1_000_000 - 2 * HELD_MS, 5)])
        assert both_say(made).word == "OK"
        assert [judged(picture).word for picture in source.pictures()] == ["OK"]
