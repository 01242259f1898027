"""The history beside a checkpoint: what is in it, that it is bounded, and that no trouble with it is a
query's; and that it is followed at the cost of what is new, in order.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.checkpoint.layout import HISTORY
from exactum.monitor import history, job_history
from exactum.monitor.fact import Fact
from exactum.monitor.history import LETTERS_MAX, HistoryOutlet, HistoryWriter
from exactum.monitor.job import read_job
from exactum.monitor.job_history import HistoryReader, JobHistory
from exactum.monitor.query_stats import BATCHES_MAX, QueryStats
from exactum.monitor.recorder import RECORDER
from exactum.storage.folder import Folder
from tests.kit.monitor.facts import QUERY, WHEN_MS, Story, history_files, read_facts
from tests.kit.monitor.made_checkpoint import Checkpoint, ago
from tests.kit.small_disk import small_disk
from tests.kit.spark.query import Query
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import await_true


def fact(number: int, letters: int = 0) -> Fact:
    fields = {"query_id": QUERY, "batch_id": number, "text": "x" * letters}
    return Fact(WHEN_MS + number, "Something", fields)


def numbers(checkpoint: Path) -> list[int]:
    return [found.fields["batch_id"] for found in read_facts(checkpoint)]


def stats_of(checkpoint: Path, query_id: str, now_ms: int) -> QueryStats:
    history = JobHistory(Folder(checkpoint))
    history.read(query_id, now_ms)
    return history.stats()


# ---- what is in it ---------------------------------------------------------------------------


def test_what_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What says nothing once a batch is complete; most of a fast query's reports; other queries'
    facts; the end of long texts.
    """
    outlet = HistoryOutlet()
    outlet.begin(QUERY, Folder(tmp_path))
    story = Story().epoch(0)
    report = {
        "lag_records": 0,
        "state_rows": None,
        "state_bytes": None,
        "event_time_watermark": None,
    }
    for _ in range(10):
        story.after(3).tell("Progress", **report)
    story.ends("SomeError", "halt", "y" * 10 * LETTERS_MAX).tell("Other", query_id="another")
    outlet.take(story.facts)
    kept = read_facts(tmp_path)
    assert [one.name for one in kept] == ["EpochCompleted", *["Progress"] * 3, "RunEnded"]
    assert kept[-1].fields["reason"].endswith(f"[cut: {9 * LETTERS_MAX:,} more characters]")


# ---- it is bounded ---------------------------------------------------------------------------


def test_bounded_however_many_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is full is followed by a new one, and the oldest go; the newest are there."""
    monkeypatch.setattr(history, "SEGMENT_BYTES_MAX", 2_000)
    monkeypatch.setattr(history, "HISTORY_BYTES_MAX", 20_000)
    writers = [HistoryWriter(Folder(tmp_path)) for _ in range(3)]
    began_ms = time.time_ns() // 1_000_000
    for number in range(900):
        monkeypatch.setattr(time, "time_ns", lambda n=number: (began_ms + n) * 1_000_000)
        writers[number % 3].write([fact(number, 100)])
    found = numbers(tmp_path)
    assert found[-50:] == [*range(850, 900)]
    slack = 3 * (2_000 + 300)  # each writer's file at hand
    kept = history_files(tmp_path)
    assert sum(path.stat().st_size for path in kept) <= 20_000 + slack
    monkeypatch.setattr(history, "FILES_MAX", 5)  # as where a query is started again and again
    HistoryWriter(Folder(tmp_path)).write([fact(900)])
    assert (len(history_files(tmp_path)), numbers(tmp_path)[-1]) == (5, 900)


def test_a_history_says_what_was_heard(tmp_path: Path) -> None:
    """What the query is judged by is the same as if all had been heard, but for what is not kept.
    Another query's facts are nothing of it.
    """
    story = Story().starts()
    for number in range(2_000):
        story.after(4).epoch(number).lag(number % 7, 1.0, topic="a").lag(3, 2.0, topic="b")
    story.held(story.now_ms)
    HistoryWriter(Folder(tmp_path)).write(story.facts)
    found = stats_of(tmp_path, QUERY, story.now_ms)
    assert found == story.stats
    assert stats_of(tmp_path, "another", story.now_ms).observed_ms is None


# ---- it is damaged, or gone ------------------------------------------------------------------


def test_lines_that_are_none(tmp_path: Path) -> None:
    """Half a line after a crash, bytes of a damaged disk, somebody's own file: the rest is read."""
    HistoryWriter(Folder(tmp_path)).write([fact(number) for number in range(3)])
    (path,) = history_files(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    noise = random.Random(7).randbytes(200).replace(b"\n", b"")
    nones = [
        b"\n",
        b"null\n",
        b"[]\n",
        b'{"at_ms": 5}\n',
        b'{"at_ms":"x","fact":"y"}\n',
        noise + b"\n",
    ]
    path.write_bytes(lines[0] + b"".join(nones) + lines[1] + lines[2][:-20])
    (tmp_path / HISTORY / "notes.jsonl").write_text("mine\n")
    (tmp_path / HISTORY / "a-b.jsonl").write_text("mine\n")
    assert numbers(tmp_path) == [0, 1]
    assert stats_of(tmp_path, QUERY, WHEN_MS).observed_ms == WHEN_MS + 1
    HistoryWriter(Folder(tmp_path)).write([fact(9)])
    assert numbers(tmp_path) == [0, 1, 9]


def test_a_folder_that_was_removed(tmp_path: Path) -> None:
    """The history is begun anew; a checkpoint that is gone is not made anew by a history."""
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    writer = HistoryWriter(Folder(checkpoint))
    writer.write([fact(0)])
    for path in history_files(checkpoint):
        path.unlink()
    (checkpoint / HISTORY).rmdir()
    writer.write([fact(1)])
    assert numbers(checkpoint) == [1]
    checkpoint.rename(tmp_path / "away")
    with pytest.raises(FileNotFoundError, match="is gone"):
        writer.write([fact(2)])
    assert not checkpoint.exists()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as place:
        yield place


def test_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """It is said, the other query's history is written, and what comes once there is room again is
    there.
    """
    (tmp_path / "sound").mkdir()
    outlet = HistoryOutlet()
    outlet.begin(QUERY, Folder(disk))
    outlet.begin("another", Folder(tmp_path / "sound"))
    filler = disk / "filler"
    story = Story().tell("First")
    outlet.take(story.facts)
    with pytest.raises(OSError, match="No space left"):
        filler.write_bytes(bytes(2 << 20))
    more = [Fact(WHEN_MS, "Long", {"query_id": QUERY, "text": "z" * 1_000})] * 100
    other = Fact(WHEN_MS, "Other", {"query_id": "another"})
    with pytest.raises(OSError, match="No space left"):
        outlet.take([*more, other])
    assert [one.name for one in read_facts(tmp_path / "sound")] == ["Other"]
    filler.unlink()
    outlet.take([fact(1), fact(2)])
    found = [one.name for one in read_facts(disk)]
    assert found[0] == "First"
    assert found[-1] == "Something"  # the first one ended the line that was cut off


# ---- a real query ----------------------------------------------------------------------------


def test_a_query_and_its_history(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What happened stands beside the checkpoint. A query whose history cannot be written goes on
    all the same, and one that was told not to keep any leaves none.
    """
    kept, barred, silent = (Query(spark, tmp_path / name) for name in ("kept", "barred", "silent"))

    def runs(query: Query) -> None:
        query.give(*range(5))
        assert query.run(query.exactly_once()) is None
        RECORDER.flush()
        assert query.values() == [*range(5)]

    runs(kept)
    read = lambda: read_facts(kept.checkpoint)  # noqa: E731
    await_true(lambda: any(one.name == "RunEnded" for one in read()), "its end is told")
    facts = read()
    (query_id,) = {one.query_id for one in facts}
    assert query_id == json.loads((kept.checkpoint / "metadata").read_text())["id"]
    told = ["RunStarted", "EpochCompleted", "RunEnded"]
    assert [one.name for one in facts if one.name in told] == told
    begun = next(one for one in facts if one.name == "RunStarted")
    assert (begun.fields["ends"], begun.fields["trigger_ms"]) == (True, 0)

    (barred.checkpoint / HISTORY).parent.mkdir(parents=True)
    (barred.checkpoint / HISTORY).write_text("a file, where the folder should be")
    with caplog.at_level(logging.WARNING, "exactum"):
        runs(barred)
    assert "The queries go on; what it would have shown is missing." in caplog.text

    with configured(spark, {"spark.exactum.history.enabled": "false"}):
        runs(silent)
    assert not (silent.checkpoint / HISTORY).exists()


# ---- it is followed --------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands still at ``WHEN_MS``, for who writes and for who reads."""
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(time, "time_ns", lambda: WHEN_MS * 1_000_000)


@pytest.fixture
def reader(clock: None, tmp_path: Path) -> HistoryReader:
    return HistoryReader(Folder(tmp_path))


def taken(reader: HistoryReader, in_ms: int = 10_000) -> list[int]:
    """What it gives so long after ``WHEN_MS``: by default nothing waits any more."""
    facts: list[Fact] = []
    reader.read(facts.append, WHEN_MS + in_ms)
    return [int(fact.fields["batch_id"]) for fact in facts]


def test_each_fact_comes_once_whoever_wrote_it(reader: HistoryReader, tmp_path: Path) -> None:
    """Two writers, a file that grows, a line whose end is not there yet, a file that goes."""
    driver, supervisor = HistoryWriter(Folder(tmp_path)), HistoryWriter(Folder(tmp_path))
    driver.write([fact(1)])
    assert taken(reader) == [1]
    assert taken(reader) == []
    supervisor.write([fact(3)])
    driver.write([fact(2), fact(4)])
    assert taken(reader) == [2, 3, 4]
    oldest = min((tmp_path / HISTORY).iterdir())
    line = fact(5).to_line()
    with oldest.open("a") as file:
        file.write(line[:40])
    assert taken(reader) == []
    with oldest.open("a") as file:
        file.write(f"{line[40:]}\n{line[:30]}\n")
    assert taken(reader) == [5]
    assert reader.unreadable == 1
    oldest.unlink()
    supervisor.write([fact(6)])
    driver.write([fact(7)])
    assert taken(reader) == [6, 7]


def test_a_file_that_was_made_anew_is_read_from_its_begin(
    reader: HistoryReader, tmp_path: Path
) -> None:
    """By the same name, within the same millisecond."""
    HistoryWriter(Folder(tmp_path)).write([fact(1), fact(2)])
    assert taken(reader) == [1, 2]
    (path,) = history_files(tmp_path)
    path.write_text(f"{fact(3).to_line()}\n")
    assert taken(reader) == [3]


def test_a_fact_waits_a_moment_for_an_older_one(reader: HistoryReader, tmp_path: Path) -> None:
    """A supervisor and a driver write down what they saw up to half a second later."""
    HistoryWriter(Folder(tmp_path)).write([fact(2)])
    assert taken(reader, 500) == []
    HistoryWriter(Folder(tmp_path)).write([fact(1)])
    assert taken(reader) == [1, 2]


def test_a_clock_that_is_ahead_hides_nothing(
    reader: HistoryReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver on another machine: its facts come a moment later, by this one's clock."""
    HistoryWriter(Folder(tmp_path)).write([fact(3_600_000)])
    assert taken(reader) == []
    later_s = time.monotonic() + 1.5
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert taken(reader) == [3_600_000]


def test_of_an_old_part_only_what_is_rare_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a history as long as they get is read at once; and what is kept of it is bounded."""
    monkeypatch.setattr(job_history, "WHOLE_BYTES", 100_000)
    for first in range(0, 3_000, 1_000):
        story = Story(WHEN_MS + first).starts()
        for number in range(first, first + 1_000):
            story.after(0.001).completes(number)
        HistoryWriter(Folder(tmp_path)).write(story.facts)
    stats = stats_of(tmp_path, QUERY, WHEN_MS + 10_000)
    assert (stats.epoch, stats.epochs["committed"]) == (2_999, 1_000)
    assert len(stats.batches) == BATCHES_MAX


def test_another_query_in_the_same_folder_begins_anew(tmp_path: Path) -> None:
    """A checkpoint that was removed and made again: nothing of the old query is shown for it."""
    made = Checkpoint(tmp_path / "c").tells(ago(9).starts().after(1).completes(7))
    history = JobHistory(Folder(made.folder))
    assert read_job(made.folder, history=history).stats.epoch == 7
    (made.folder / "metadata").write_text('{"id": "another"}')
    for path in history_files(made.folder):
        path.unlink()
    stats = read_job(made.folder, history=history).stats
    assert (stats.query_id, stats.epoch, stats.batches) == ("another", None, [])
