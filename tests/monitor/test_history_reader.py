"""The page follows a history at the cost of what is new, in order, and keeps a bounded part of it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from exactum.checkpoint.layout import HISTORY
from exactum.monitor import job_history
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.monitor.job import read_job
from exactum.monitor.job_history import HistoryReader, JobHistory
from exactum.monitor.query_stats import BATCHES_MAX
from exactum.storage.folder import Folder
from tests.kit.dashboard.checkpoints import MadeCheckpoint

NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def made(tmp_path: Path) -> MadeCheckpoint:
    return MadeCheckpoint(tmp_path / "c").begin()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def taken(reader: HistoryReader, in_ms: int = 2_000) -> list[int]:
    """What it gives so much later: by then nothing waits any more."""
    facts: list[Fact] = []
    reader.read(facts.append, now_ms() + in_ms)
    return [int(fact.fields["batch_id"]) for fact in facts]


def test_each_fact_comes_once_whoever_wrote_it(made: MadeCheckpoint) -> None:
    """Two writers, a file that grows, a line whose end is not there yet, a file that goes."""
    reader = HistoryReader(Folder(made.folder))
    driver, supervisor = HistoryWriter(Folder(made.folder)), HistoryWriter(Folder(made.folder))
    at = now_ms()
    driver.write([made.completed(at, 1)])
    assert taken(reader) == [1]
    assert taken(reader) == []
    supervisor.write([made.completed(at + 3, 3)])
    driver.write([made.completed(at + 2, 2), made.completed(at + 4, 4)])
    assert taken(reader) == [2, 3, 4]
    oldest = min((made.folder / HISTORY).iterdir())
    line = made.completed(at + 5, 5).to_line()
    with oldest.open("a") as file:
        file.write(line[:40])
    assert taken(reader) == []
    with oldest.open("a") as file:
        file.write(f"{line[40:]}\n{line[:30]}\n")
    assert taken(reader) == [5]
    assert reader.unreadable == 1
    oldest.unlink()
    supervisor.write([made.completed(at + 6, 6)])
    driver.write([made.completed(at + 7, 7)])
    assert taken(reader) == [6, 7]


def test_a_file_that_was_made_anew_is_read_from_its_begin(made: MadeCheckpoint) -> None:
    """By the same name, within the same millisecond."""
    reader = HistoryReader(Folder(made.folder))
    at = now_ms()
    made.write([made.completed(at, 1), made.completed(at + 1, 2)])
    assert taken(reader) == [1, 2]
    (path,) = (made.folder / HISTORY).iterdir()
    path.write_text(f"{made.completed(at + 2, 3).to_line()}\n")
    assert taken(reader) == [3]


def test_a_fact_waits_a_moment_for_an_older_one(made: MadeCheckpoint) -> None:
    """A supervisor and a driver write down what they saw up to half a second later."""
    reader = HistoryReader(Folder(made.folder))
    at = now_ms()
    made.write([made.completed(at + 2, 2)])
    assert taken(reader, 0) == []
    made.write([made.completed(at + 1, 1)])
    assert taken(reader) == [1, 2]


def test_a_clock_that_is_ahead_hides_nothing(
    made: MadeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver on another machine: its facts come a moment later, by this one's clock."""
    reader = HistoryReader(Folder(made.folder))
    made.write([made.completed(now_ms() + 3_600_000, 1)])
    assert taken(reader) == []
    later = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert taken(reader) == [1]


def test_of_an_old_part_only_what_is_rare_is_read(
    made: MadeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a history as long as they get is read at once; and what is kept of it is bounded."""
    monkeypatch.setattr(job_history, "WHOLE_BYTES", 100_000)
    for first in range(0, 3_000, 1_000):
        writer = HistoryWriter(Folder(made.folder))
        facts = [made.completed(NOW_MS - 9_000 + n, n) for n in range(first, first + 1_000)]
        writer.write([made.started(NOW_MS - 9_000 + first), *facts])
    stats = read_job(made.folder, history=JobHistory(Folder(made.folder))).stats
    assert (stats.epoch, stats.epochs["committed"]) == (2_999, 1_000)
    assert len(stats.batches) == BATCHES_MAX


def test_another_query_in_the_same_folder_begins_anew(made: MadeCheckpoint) -> None:
    """A checkpoint that was removed and made again: nothing of the old query is shown for it."""
    made.write([made.started(NOW_MS - 9_000), made.completed(NOW_MS - 8_000, 7)])
    history = JobHistory(Folder(made.folder))
    assert read_job(made.folder, history=history).stats.epoch == 7
    (made.folder / "metadata").write_text('{"id": "another"}')
    for path in (made.folder / HISTORY).iterdir():
        path.unlink()
    stats = read_job(made.folder, history=history).stats
    assert (stats.query_id, stats.epoch, stats.batches) == ("another", None, [])
