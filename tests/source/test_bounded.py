"""Backfills: a query reads up to its stops, ends by itself, and can never lose what lies behind
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.source.source_stream import EPOCH_MS, eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RECORDS = 10


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
    eventually(
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
