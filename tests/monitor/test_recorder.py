"""Facts are taken off a query's path: none of those whom they are handed to can hold it back."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from exactum import events
from exactum.monitor import recorder as recorder_module
from exactum.monitor.fact import Fact
from exactum.monitor.recorder import Recorder
from tests.kit.environment import environment
from tests.kit.monitor.facts import Story, read_facts
from tests.kit.waiting import WAIT_MAX_S


class Kept:
    """An outlet that keeps what it was given; where ``go`` is clear it hangs."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.looks = 0
        self.go = threading.Event()
        self.go.set()

    def take(self, facts: Sequence[Fact]) -> None:
        self.go.wait(30)
        self.looks += 1
        self.facts += facts


class Failing:
    def __str__(self) -> str:
        return "the outlet that fails"

    def take(self, facts: Sequence[Fact]) -> None:
        raise OSError("no space left")


def event(number: int) -> events.Event:
    return events.RowsSkipped("q", number, "i", 1)


def await_true(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def numbers(outlet: Kept) -> list[int]:
    return [fact.fields["batch_id"] for fact in outlet.facts]


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Its threads end with the test: what they say would be in the log of another."""
    monkeypatch.setattr(recorder_module, "HAND_ON_EVERY_S", 0.02)
    made = Recorder(queue_max=50)
    yield made
    for each in made._queues:
        made.remove(each.outlet)


def test_every_outlet_gets_every_fact_in_order(recorder: Recorder) -> None:
    """Also none, now and then: an outlet may have to write by the clock. What was told while nobody
    listened is gone, but for how the runs at hand began.
    """
    recorder.observe(event(-1))
    begun = Story().starts("i1").facts[0]
    recorder.put(begun)
    one, two = Kept(), Kept()
    recorder.add(one)
    recorder.add(one)
    for number in range(20):
        recorder.observe(event(number))
    recorder.add(two)
    recorder.observe(event(20))
    recorder.flush()
    await_true(lambda: numbers(one)[-1] == numbers(two)[-1] == 20)
    assert numbers(one) == [0, *range(21)]
    assert one.facts[0] is two.facts[0] is begun
    assert numbers(two)[1:] == [20]
    looks = one.looks
    await_true(lambda: one.looks > looks)
    recorder.remove(one)
    recorder.observe(event(21))
    recorder.flush()
    assert 21 in numbers(two)
    assert 21 not in numbers(one)
    assert recorder.dropped == 0


def test_an_outlet_that_hangs_holds_back_nobody(recorder: Recorder) -> None:
    """Telling takes no time, the others get theirs, and what the queue does not take is counted:
    what was dropped and what came are all there was.
    """
    hanging, sound = Kept(), Kept()
    hanging.go.clear()
    recorder.add(hanging)
    recorder.add(sound)
    try:
        began_s = time.monotonic()
        for number in range(200):
            recorder.observe(event(number))
            if number % 20 == 19:
                await_true(lambda number=number: numbers(sound)[-1:] == [number])
        took_s = time.monotonic() - began_s
        assert numbers(sound) == [*range(200)]
        assert recorder.dropped >= 100
        began_s = time.monotonic()
        recorder.flush(timeout_s=0.2)
        assert time.monotonic() - began_s < 5
        assert took_s < 30
    finally:
        hanging.go.set()
    await_true(lambda: len(hanging.facts) + recorder.dropped == 200)
    dropped = recorder.dropped
    recorder.remove(hanging)
    assert recorder.dropped == dropped  # a counter never goes back


def test_an_outlet_that_fails_is_told_of_once_a_minute(
    recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, with what is missing; the others get theirs."""
    sound = Kept()
    with caplog.at_level(logging.WARNING, "exactum"):
        recorder.add(Failing())
        recorder.add(sound)
        for number in range(10):
            recorder.observe(event(number))
            recorder.flush()
    assert numbers(sound) == [*range(10)]
    assert [record.getMessage() for record in caplog.records] == [
        "the outlet that fails: OSError: no space left. The queries go on; what it would have shown "
        "is missing."
    ]


ENDING = """
import sys
from pathlib import Path
from exactum import events
from exactum.monitor.history import HistoryOutlet
from exactum.storage.folder import Folder
from exactum.monitor.recorder import RECORDER
history = HistoryOutlet()
history.begin("q", Folder(Path(sys.argv[1])))
RECORDER.add(history)
RECORDER.observe(events.RowsSkipped("q", 7, "i", 3))
{end}
"""


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "[][0]"])
def test_the_final_error_of_a_process_are_written(tmp_path: Path, end: str) -> None:
    """However Python ends by itself."""
    subprocess.run(
        [sys.executable, "-c", ENDING.format(end=end), str(tmp_path)],
        check=False,
        capture_output=True,
        env=environment(),
        timeout=WAIT_MAX_S,
    )
    (fact,) = read_facts(tmp_path)
    assert (fact.name, fact.fields["batch_id"], fact.fields["rows"]) == ("RowsSkipped", 7, 3)


def test_a_process_ends_though_an_outlet_hangs(tmp_path: Path) -> None:
    """It is waited for, for two seconds."""
    program = """
import time
from exactum import events
from exactum.monitor.recorder import RECORDER
class Hanging:
    def take(self, facts):
        time.sleep(600)
RECORDER.add(Hanging())
RECORDER.observe(events.RowsSkipped("q", 7, "i", 3))
time.sleep(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment(), timeout=WAIT_MAX_S
    )
    assert done.returncode == 0
