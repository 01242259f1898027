"""Backfills: a query reads up to its stops, ends by itself, and can never lose what lies behind
them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import Unavailable
from exactum.local import LocalKafka
from exactum.spark.source import start_position, watched_source
from tests.kit.source.source_stream import EPOCH_MS
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 10


@pytest.mark.in_turn
def test_stop_offsets(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """The query ends exactly at the stops, though a batch reads past them and the topics grow;
    so does its group.
    """
    name, group = topic("stops", partitions=2), "stops"
    topics.give(name, RECORDS)
    stop = {name: {0: 5, 1: 8}}
    frame = stream.read(name, stop=stop, group_id=group, maxOffsetsPerTrigger=6)
    query = stream.start(frame)
    topics.give(name, RECORDS)
    assert stream.end(query) is None
    expected = [(name, 0, o) for o in range(5)] + [(name, 1, o) for o in range(8)]
    assert stream.rows() == expected
    await_true(
        lambda: topics.committed(group, name) == {0: 5, 1: 8},
        "its group is at the stops, not behind them",
    )
    assert (
        stream.run(stream.read(name, stop=stop, group_id=group), processingTime="0 seconds") is None
    )
    assert stream.rows() == expected, "started again it has nothing to do, and ends"
    topics.give(name, 1)  # each of them has something to read
    for another in (None, {name: {0: 15, 1: 8}}, "latest"):
        error = stream.run(stream.read(name, stop=another))
        assert error is not None
        assert "CheckpointRefused" in error
        assert f"give stop={{'{name}': {{0: 5, 1: 8}}}}" in error
        assert f"start={{'{name}': {{0: 5, 1: 8}}}}" in error
    assert stream.rows() == expected


@pytest.mark.in_turn
@pytest.mark.parametrize("trigger", [{"processingTime": "0 seconds"}, {"processingTime": "1 hour"}])
def test_another_stop_and_nothing_new(
    stream: Any, topics: Any, topic: Callable[..., str], trigger: dict[str, str]
) -> None:
    """Rows between the stops were left out before; there is no batch to refuse, and the query must
    not end as if it had read them.
    """
    name = topic("left_out", partitions=2)
    topics.give(name, RECORDS)
    assert stream.run(stream.read(name, stop={name: {0: 5, 1: 8}})) is None
    error = stream.run(stream.read(name, stop={name: {0: 9, 1: 8}}), **trigger)
    assert error is not None
    assert "CheckpointRefused" in error
    assert f"{name}-0 from 5 to 10" in error
    assert f"give stop={{'{name}': {{0: 5, 1: 8}}}}" in error
    assert len(stream.rows()) == 13


@pytest.mark.in_turn
def test_stop_at_latest(
    make_stream: Callable[[], Any], topics: Any, topic: Callable[..., str]
) -> None:
    """ "latest" is where the topic ended when the frame was made; the rest is a new query's,
    from the very offsets.
    """
    name = topic("ends", partitions=2)
    topics.give(name, RECORDS)
    first = make_stream()
    frame = first.read(name, stop="latest")
    topics.give(name, 3)
    assert first.run(frame, processingTime="0 seconds") is None
    assert first.rows() == [(name, p, o) for p in (0, 1) for o in range(RECORDS)]
    second = make_stream()
    assert second.run(second.read(name, start={name: {0: RECORDS, 1: RECORDS}})) is None
    assert second.rows() == [(name, p, o) for p in (0, 1) for o in range(RECORDS, RECORDS + 3)]


@pytest.mark.in_turn
def test_stop_at_latest_behind_an_open_transaction(
    make_stream: Callable[[], Any],
    topics: Any,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A backfill does not end before committed records that lie behind somebody's open
    transaction: read_kafka waits for its end, and where it does not end says whose it is. Readers of
    uncommitted records wait for nobody.
    """
    name = topic("open", partitions=2)
    topics.give(name, 5)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 5)  # committed; in partition 0 the offsets 6 to 10
        with monkeypatch.context() as short:
            short.setattr(start_position, "SETTLE_S", 1.5)
            with caplog.at_level("WARNING", "exactum"), pytest.raises(Unavailable) as caught:
                make_stream().read(name, stop="latest")
            dirty = make_stream()
            level = {"kafka.isolation.level": "read_uncommitted"}
            assert dirty.run(dirty.read(name, stop="latest", **level)) is None
        assert f"{name}-0 at 5, before 11, by producer " in str(caught.value)
        assert f"with transactional id 'open-{name}'" in str(caught.value)
        assert f"{name}-1" not in str(caught.value)
        assert [r.getMessage() for r in caplog.records if "waits up to" in r.getMessage()] == [
            "read_kafka waits up to 2 s for the end of open transactions upstream: readers come to "
            f"{name}-0 at 5."
        ]
        threading.Timer(0.5, transaction.commit_transaction, [30]).start()
        stream = make_stream()
        assert stream.run(stream.read(name, stop="latest"), processingTime="0 seconds") is None
    rows = [(name, 0, o) for o in range(11)] + [(name, 1, o) for o in range(10)]
    assert stream.rows() == rows
    assert dirty.rows() == rows


@pytest.mark.in_turn
def test_a_trigger_that_ends_before_the_stop(
    stream: Any, topics: Any, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Spark ends the query where readers came to when it began. A backfill that is not complete says
    so, and the same stop reads on.
    """
    name = topic("short", partitions=2)
    stop = {name: {0: 11, 1: 10}}
    topics.give(name, 5)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 5)  # committed; in partition 0 the offsets 6 to 10
        assert stream.run(stream.read(name, stop=stop)) is None
        assert len(stream.rows()) == 15
        await_true(lambda: "has ended before its stop" in caplog.text, "it is told")
        assert f"source 0 is with {name}-0 at 5, before 11." in caplog.text
        assert f"start it again with stop={stop}" in caplog.text
        transaction.commit_transaction(WAIT_MAX_S)
    assert stream.run(stream.read(name, stop=stop)) is None
    assert len(stream.rows()) == 21
    assert caplog.text.count("has ended before its stop") == 1


@pytest.mark.in_turn
@pytest.mark.parametrize("read", [5, 3])
def test_a_topic_that_is_deleted(
    stream: Any,
    topics: Any,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    read: int,
) -> None:
    """Spark forgets how far it was. The query ends when all that is there was read, and says so
    where the rest of it is gone.
    """
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 0.5)
    here, gone = topic("ends-here", partitions=1), topic("ends-gone", partitions=1)
    topics.give(here, 3, partitions=1)
    topics.give(gone, read, partitions=1)
    pattern = re.compile(f"{re.escape(here)}|{re.escape(gone)}")
    frame = stream.read(pattern, stop={here: {0: 8}, gone: {0: 5}}, failOnDataLoss=False)
    query = stream.start(frame, processingTime="0 seconds")
    await_true(lambda: len(stream.rows()) == 3 + read, "what is there is read")
    topics.kafka.delete_topic(gone)
    topics.give(here, 5, partitions=1)
    assert stream.end(query) is None
    rows = [(here, 0, o) for o in range(8)] + [(gone, 0, o) for o in range(read)]
    assert stream.rows() == sorted(rows)
    if read < 5:
        await_true(lambda: "has gone on without" in caplog.text, "it is told")
        assert f"before their stop: {gone}-0 at 3, before 5." in caplog.text
        assert f"start={{'{gone}': {{0: 3}}}}" in caplog.text
    else:
        assert "has gone on without" not in caplog.text


@pytest.mark.in_turn
def test_what_is_short_where_a_topic_was_deleted(
    stream: Any,
    topics: Any,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A trigger that ends before the stop: what was read is not called missing, and the stop that
    is named reads on.
    """
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 0.5)
    here, gone = topic("short-here", partitions=1), topic("short-gone", partitions=1)
    topics.give(here, 3, partitions=1)
    topics.give(gone, 5, partitions=1)
    pattern = re.compile(f"{re.escape(here)}|{re.escape(gone)}")
    frame = stream.read(pattern, stop={here: {0: 8}, gone: {0: 5}}, failOnDataLoss=False)
    query = stream.start(frame, processingTime="0 seconds")
    await_true((stream.checkpoint / "commits/0").exists, "what is there is read")
    query.stop()
    topics.kafka.delete_topic(gone)
    topics.give(here, 1, partitions=1)
    assert stream.run(frame) is None
    await_true(lambda: "has ended before its stop" in caplog.text, "it is told")
    assert f"source 0 is with {here}-0 at 4, before 8. It" in caplog.text
    rest = {here: {0: 8}}
    assert f"start it again with stop={rest}" in caplog.text
    topics.give(here, 4, partitions=1)
    assert stream.run(stream.read(pattern, stop=rest, failOnDataLoss=False)) is None
    rows = [(here, 0, o) for o in range(8)] + [(gone, 0, o) for o in range(5)]
    assert stream.rows() == sorted(rows)
    assert "has gone on without" not in caplog.text


ENDS = """
import sys
import exactum
spark = exactum.local_session("ends", master="local[2]")
frame = exactum.read_kafka(spark, sys.argv[1], bootstrap_servers=sys.argv[2], stop={sys.argv[1]: {0: 9}})
writer = frame.writeStream.foreachBatch(exactum.at_least_once(exactum.FileSink(sys.argv[3], format="json")))
query = writer.option("checkpointLocation", sys.argv[4]).trigger(availableNow=True).start()
query.awaitTermination()
if sys.argv[5] == "stops":
    spark.stop()
"""


@pytest.mark.in_turn
@pytest.mark.parametrize("way", ["stops", "leaves"])
def test_a_script_that_ends_with_its_query(
    kafka: LocalKafka, topics: Any, topic: Callable[..., str], tmp_path: Path, way: str
) -> None:
    """There is a moment to say that the stop was not reached, with or without Spark."""
    name = topic("ends", partitions=1)
    topics.give(name, 5, partitions=1)
    places = (str(tmp_path / "out"), str(tmp_path / "checkpoint"))
    done = subprocess.run(
        [sys.executable, "-c", ENDS, name, kafka.bootstrap_servers, *places, way],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=True,
    )
    assert f"source 0 is with {name}-0 at 5, before 9." in done.stderr


def test_start_at_latest_behind_an_open_transaction(
    stream: Any, topics: Any, topic: Callable[..., str]
) -> None:
    """ "latest" is as far as readers came when the query first started: whatever they could not see
    then is read when it can be.
    """
    name = topic("open", partitions=1)
    topics.give(name, 5, partitions=1)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 2, partitions=1)
        query = stream.start(stream.read(name, start="latest"), processingTime="0 seconds")
        await_true((stream.checkpoint / "offsets" / "0").exists, "it has begun")
        transaction.commit_transaction(WAIT_MAX_S)
    expected = [(name, 0, offset) for offset in (5, 6, 7)]
    await_true(lambda: stream.rows() == expected, "what lay behind the transaction is read")
    query.stop()


def test_stop_at_a_time(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """Up to the first record at or after the time, from a start that is a time as well."""
    name = topic("times", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, start=EPOCH_MS + 2000, stop=EPOCH_MS + 6000)
    assert stream.run(frame, processingTime="0 seconds") is None
    assert stream.rows() == [(name, p, o) for p in (0, 1) for o in range(2, 6)]


def test_nothing_to_read(
    make_stream: Callable[[], Any], topics: Any, topic: Callable[..., str]
) -> None:
    """An empty topic, and a stop at the start: the query ends without a row, with any trigger."""
    empty, full = topic("empty", partitions=2), topic("full", partitions=2)
    topics.give(full, RECORDS)
    runs = []
    for name, arguments in (
        (empty, {"stop": "latest"}),
        (full, {"start": "latest", "stop": "latest"}),
    ):
        stream = make_stream()
        runs.append(
            (stream, stream.start(stream.read(name, **arguments), processingTime="1 second"))
        )
    for stream, query in runs:
        assert stream.end(query) is None
        assert stream.rows() == []


@pytest.mark.in_turn
def test_two_sources(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """A union ends when both are read; a stop may be raised where nothing between is lost."""
    one, two = topic("one", partitions=2), topic("two", partitions=1)
    topics.give(one, RECORDS)
    topics.give(two, 2, partitions=1)
    frame = stream.read(one, stop={one: {0: 3, 1: 0}}).union(stream.read(two, stop={two: {0: 4}}))
    query = stream.start(frame, processingTime="100 milliseconds")
    assert not query.awaitTermination(3), "the second one is not at its stop"
    topics.give(two, 2, partitions=1)
    assert stream.end(query) is None
    expected = [(one, 0, o) for o in range(3)] + [(two, 0, o) for o in range(4)]
    assert stream.rows() == expected
    more = stream.read(one, stop={one: {0: 3, 1: 0}}).union(stream.read(two, stop={two: {0: 5}}))
    topics.give(two, 1, partitions=1)
    assert stream.run(more, processingTime="100 milliseconds") is None
    assert stream.rows() == [*expected, (two, 0, 4)]


@pytest.mark.in_turn
def test_one_thread_looks(
    make_stream: Callable[[], Any], topics: Any, topic: Callable[..., str]
) -> None:
    """However many bounded sources a session makes, one thread looks after their queries, and
    each of them ends.
    """
    name = topic("many", partitions=2)
    topics.give(name, RECORDS)
    streams = [make_stream() for _ in range(3)]
    frames = [stream.read(name, stop={name: {0: n, 1: n}}) for n, stream in enumerate(streams, 2)]
    for _ in range(20):
        streams[0].read(name, stop="latest")
    assert [thread.name for thread in threading.enumerate()].count("exactum-bounded") == 1
    queries = [
        stream.start(frame, processingTime="0 seconds")
        for stream, frame in zip(streams, frames, strict=True)
    ]
    assert [stream.end(query) for stream, query in zip(streams, queries, strict=True)] == [None] * 3
    assert [len(stream.rows()) for stream in streams] == [4, 6, 8]
