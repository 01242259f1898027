"""Facts are taken off a query's path: nothing that becomes of its history can hold it back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from exactum import events
from exactum.monitor import recorder as recorder_module
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryOutlet
from exactum.monitor.recorder import Recorder
from exactum.storage.folder import Folder
from tests.kit.monitor.facts import read_facts
from tests.kit.python import python
from tests.kit.waiting import WAIT_MAX_S, await_true


class Kept(HistoryOutlet):
    """Keeps what it was given; where ``go`` is clear it hangs, and ``error`` is what it raises."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: list[Fact] = []
        self.looks = 0
        self.go = threading.Event()
        self.go.set()
        self.error: OSError | None = None

    def take(self, facts: Sequence[Fact]) -> None:
        self.looks += 1
        self.go.wait(WAIT_MAX_S)
        if self.error is not None:
            raise self.error
        self.facts += facts


def event(number: int) -> events.Event:
    return events.RowsSkipped("q", number, "i", 1)


def numbers(kept: Kept) -> list[int]:
    return [fact.fields["batch_id"] for fact in kept.facts]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def recorder(kept: Kept, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recorder:
    monkeypatch.setattr(recorder_module, "HAND_ON_EVERY_S", 0.02)
    made = Recorder(kept, queue_max=50)
    made.begin("q", Folder(tmp_path))
    made.begin("q", Folder(tmp_path))
    return made


def test_every_fact_comes_in_order(recorder: Recorder, kept: Kept) -> None:
    """Also none, now and then: a history may have to be written by the clock."""
    for number in range(20):
        recorder.observe(event(number))
    recorder.flush()
    await_true(lambda: len(kept.facts) == 20, "they are written")
    assert numbers(kept) == [*range(20)]
    looks = kept.looks
    await_true(lambda: kept.looks > looks, "it is called without facts")
    assert (recorder.dropped, recorder.stats.queries["q"].rows_skipped) == (0, 20)


def test_a_history_that_hangs_holds_back_nobody(recorder: Recorder, kept: Kept) -> None:
    """Telling takes no time, the numbers are whole, and what the queue does not take is counted:
    what was dropped and what came are all there was.
    """
    kept.go.clear()
    looks = kept.looks
    await_true(lambda: kept.looks > looks, "it hangs")
    try:
        for number in range(200):
            recorder.observe(event(number))
        recorder.flush(timeout_s=0.2)
        assert kept.facts == [], "it hangs still"
        assert recorder.dropped >= 100
        assert recorder.stats.queries["q"].rows_skipped == 200
    finally:
        kept.go.set()
    await_true(lambda: len(kept.facts) + recorder.dropped == 200, "the rest is written")


def test_a_history_that_fails_is_told_of_once_a_minute(
    recorder: Recorder,
    kept: Kept,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the log, with what is missing."""
    # A machine that others share may stand still for two minutes.
    monkeypatch.setattr(recorder_module, "WARN_EVERY_S", WAIT_MAX_S)
    kept.error = OSError("no space left")
    with caplog.at_level(logging.WARNING, "exactum"):
        for number in range(10):
            recorder.observe(event(number))
            recorder.flush()
        await_true(lambda: recorder.dropped == 10, "it has failed on each")
    kept.error = None
    assert [record.getMessage() for record in caplog.records] == [
        "the history could not be written: OSError: no space left. The queries go on; what it would "
        "have shown is missing."
    ]


ENDING = """
import sys, time
from pathlib import Path
from exactum import events
from exactum.monitor.history import HistoryOutlet
from exactum.monitor.recorder import Recorder
from exactum.storage.folder import Folder
class Hanging(HistoryOutlet):
    def take(self, facts):
        time.sleep(600)
recorder = Recorder({outlet})
recorder.begin("q", Folder(Path(sys.argv[1])))
recorder.observe(events.RowsSkipped("q", 7, "i", 3))
{end}
"""


@pytest.mark.parametrize(
    ("outlet", "end", "status"),
    [
        ("", "", 0),
        ("", "raise SystemExit(3)", 3),
        ("", "[][0]", 1),
        ("Hanging()", "time.sleep(1)", 0),
    ],
)
def test_the_end_of_a_process(tmp_path: Path, outlet: str, end: str, status: int) -> None:
    """However Python ends by itself, what was heard is written. A history that hangs is waited for, for
    two seconds.
    """
    python(ENDING.format(outlet=outlet, end=end), tmp_path, status=status)
    written = [(fact.name, fact.fields["batch_id"]) for fact in read_facts(tmp_path)]
    assert written == ([] if outlet else [("RowsSkipped", 7)])
