"""Backfills: a query reads up to its stops and ends by itself; its checkpoint goes on from there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

import exactum
from exactum import events
from exactum.errors import SettingRefused, Unavailable
from exactum.spark.source import (
    columnar,
    watched_source,
)
from tests.kit.errors import raised
from tests.kit.source.columnar_ways import PACKED, ROWS, WAYS
from tests.kit.source.source_stream import EPOCH_MS
from tests.kit.spark.files import mounted
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S, await_true

RECORDS = 10


def end_of_checkpoint(stream: Any) -> Any:
    """The offsets at which the newest batch ends."""
    newest = max((stream.checkpoint / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return json.loads(newest.read_text().splitlines()[-1])


@pytest.mark.variants(1)
@pytest.mark.parametrize("way", [ROWS, PACKED])
def test_stop_offsets(stream: Any, topics: Any, way: str) -> None:
    """The query ends exactly at the stops, though the topics grow, and so do its checkpoint and its
    group: a later start with another stop, or none, reads on without a gap or a double.
    """
    name, group = topics.topic("stops", partitions=2), f"stops {way}"
    topics.give(name, RECORDS)

    def rows(first: int, second: int) -> list[tuple[str, int, int]]:
        return [(name, p, o) for p, end in enumerate((first, second)) for o in range(end)]

    with configured(stream.spark, WAYS[way]):
        stop = {name: {0: 5, 1: 8}}
        frame = stream.read(name, stop=stop, group_id=group, maxOffsetsPerTrigger=6)
        query = stream.start(frame)
        topics.give(name, RECORDS)
        assert stream.end(query) is None
        assert stream.rows() == rows(5, 8)
        assert end_of_checkpoint(stream) == {name: {"0": 5, "1": 8}}
        await_true(lambda: topics.committed(group, name) == {0: 5, 1: 8}, "so is its group")
        for trigger in ({"processingTime": "0 seconds"}, {"processingTime": "1 hour"}):
            assert stream.run(stream.read(name, stop=stop), **trigger) is None, "nothing to do"
        assert stream.rows() == rows(5, 8)
        # One is behind where the query is already: nothing is read of that partition.
        raised = stream.read(name, stop={name: {0: 3, 1: 12}}, group_id=group)
        assert stream.run(raised, processingTime="0 seconds") is None
        assert stream.rows() == rows(5, 12)
        await_true(
            lambda: topics.committed(group, name) == {0: 5, 1: 12}, "its group goes not back"
        )
        assert stream.run(stream.read(name, stop="latest")) is None
        assert stream.rows() == rows(20, 20)
        topics.give(name, 1)
        assert stream.run(stream.read(name)) is None
        assert stream.rows() == rows(21, 21)
    await_true(lambda: len(stream.told(events.RunEnded)) == 6, "each end is told")
    assert all(end.has_read_all for end in stream.told(events.RunEnded))


@pytest.mark.deep
def test_partitions_that_come_later(stream: Any, topics: Any) -> None:
    """Nothing of them is read before the stop, whether they come before the query's first start or
    later, or have the stop 0. All of them is read by a start without a stop.
    """
    name = topics.topic("added", partitions=1)

    def add(partitions: int) -> None:
        topics.grow(name, partitions)
        topics.give(name, 5, partitions=partitions)

    topics.give(name, 5, partitions=1)
    before = stream.read(name, stop={name: {0: 3}})
    add(2)
    assert stream.run(before, processingTime="0 seconds") is None
    assert end_of_checkpoint(stream) == {name: {"0": 3, "1": 0}}
    before = stream.read(name, stop={name: {0: 4, 1: 2}})
    add(3)
    assert stream.run(before, processingTime="0 seconds") is None
    assert end_of_checkpoint(stream) == {name: {"0": 4, "1": 2}}
    with raised(SettingRefused, "SOURCE_ARGUMENT", f"{name}-2", f"{{'{name}': {{2: 0}}}}"):
        stream.read(name, stop={name: {0: 6, 1: 2}})
    topics.delete_before(name, 2, 1)
    zero = stream.read(name, stop={name: {0: 6, 1: 2, 2: 0}})
    assert stream.run(zero, processingTime="0 seconds") is None
    assert end_of_checkpoint(stream) == {name: {"0": 6, "1": 2}}
    assert stream.run(stream.read(name, failOnDataLoss=False)) is None
    rows = [(name, 0, o) for o in range(15)] + [(name, 1, o) for o in range(10)]
    assert stream.rows() == rows + [(name, 2, o) for o in range(1, 5)]


@pytest.mark.deep
def test_a_batch_that_was_planned_before(stream: Any, topics: Any) -> None:
    """It is run as it was planned, past a stop that comes later, which then reads no more."""
    name = topics.topic("planned", partitions=2)
    topics.give(name, RECORDS)
    column = f.raise_error(f.lit("broken")).cast("long")
    broken = stream.read(name).withColumn("offset", column)
    assert "broken" in str(stream.run(broken))
    topics.give(name, RECORDS)
    stop = {name: {0: 5, 1: RECORDS}}
    assert stream.run(stream.read(name, stop=stop), processingTime="0 seconds") is None
    assert stream.rows() == [(name, p, o) for p in (0, 1) for o in range(RECORDS)]


def test_without_our_jar(stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own source, which is taken then, knows no stop: where the classes of ours are not
    there, or cannot be made, as where their loader sees no connector.
    """
    name = topics.topic("jar", partitions=1)
    for kind in ("exactum.NoSuchClass", "java.lang.Number"):
        monkeypatch.setattr(columnar, "FORMAT", kind)
        assert columnar.kafka_format(stream.spark) == "kafka"
        assert stream.read(name).isStreaming
        with raised(SettingRefused, "STOP_NEEDS_JAR"):
            stream.read(name, stop="latest")


def test_another_sink(stream: Any, topics: Any, tmp_path: Path) -> None:
    """No batch of a query that exactum does not write reads past the stop. It ends with a trigger
    that ends.
    """
    name = topics.topic("elsewhere", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, stop="latest")
    topics.give(name, 5)
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
    assert stream.end(query) is None
    assert end_of_checkpoint(stream) == {name: {"0": RECORDS, "1": RECORDS}}


def test_a_checkpoint_that_only_hadoop_finds(stream: Any, topics: Any, tmp_path: Path) -> None:
    name = topics.topic("mounted", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, stop="latest")
    topics.give(name, 5)
    place = mounted(stream.spark, tmp_path)
    stream.checkpoint = tmp_path / "checkpoint"
    for _ in range(2):
        once = exactum.exactly_once(
            exactum.FileSink(stream.out, format="json"),
            decision_log=tmp_path / "decisions",
            staging=tmp_path / "staging",
        )
        query = once.start(frame.writeStream, checkpoint=f"{place}/checkpoint")
        assert stream.end(query) is None
        assert end_of_checkpoint(stream) == {name: {"0": RECORDS, "1": RECORDS}}


def test_stop_behind_an_open_transaction(make_stream: Callable[[], Any], topics: Any) -> None:
    """ "latest" is as far as readers come. A time behind the transaction is refused, to be tried again:
    committed records would be left out. Readers of uncommitted records wait for nobody.
    """
    name, waits = topics.topic("open", partitions=2), {"processingTime": "0 seconds"}
    topics.give(name, 5)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 5)  # committed; in partition 0 the offsets 6 to 10
        stream, dirty = make_stream(), make_stream()
        level = {"kafka.isolation.level": "read_uncommitted"}
        assert dirty.run(dirty.read(name, stop="latest", **level), **waits) is None
        assert stream.run(stream.read(name, stop="latest"), **waits) is None
        assert stream.rows() == [(name, p, o) for p, end in ((0, 5), (1, 10)) for o in range(end)]
        with raised(Unavailable, EPOCH_MS + 8000, f"{name}-0", 5):
            stream.read(name, stop=EPOCH_MS + 8000)
        transaction.commit_transaction(WAIT_MAX_S)
    assert stream.run(stream.read(name, stop=EPOCH_MS + 8000), **waits) is None
    assert stream.rows() == [(name, p, o) for p, end in ((0, 8), (1, 10)) for o in range(end)]
    assert len(dirty.rows()) == 21


def test_a_trigger_that_ends_before_the_stop(stream: Any, topics: Any) -> None:
    """Spark ends the query where readers came to when it began; the same stop reads on."""
    name = topics.topic("short", partitions=2)
    stop = {name: {0: 11, 1: 10}}
    topics.give(name, 5)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 5)  # committed; in partition 0 the offsets 6 to 10
        assert stream.run(stream.read(name, stop=stop)) is None
        assert len(stream.rows()) == 15
        transaction.commit_transaction(WAIT_MAX_S)
    assert stream.run(stream.read(name, stop=stop)) is None
    assert len(stream.rows()) == 21


@pytest.mark.deep
def test_a_topic_that_is_deleted(stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark forgets how far it was. One that was read up to its stop holds nothing up."""
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 0.5)
    here, gone = topics.topic("ends-here", partitions=1), topics.topic("ends-gone", partitions=1)
    topics.give(here, 3, partitions=1)
    topics.give(gone, 5, partitions=1)
    pattern = re.compile(f"{re.escape(here)}|{re.escape(gone)}")
    frame = stream.read(pattern, stop={here: {0: 8}, gone: {0: 5}}, failOnDataLoss=False)
    query = stream.start(frame, processingTime="0 seconds")
    await_true(lambda: len(stream.rows()) == 8, "what is there is read")
    topics.kafka.delete_topic(gone)
    topics.give(here, 5, partitions=1)
    assert stream.end(query) is None
    rows = [(here, 0, o) for o in range(8)] + [(gone, 0, o) for o in range(5)]
    assert stream.rows() == sorted(rows)


def test_start_at_latest_behind_an_open_transaction(stream: Any, topics: Any) -> None:
    """ "latest" is as far as readers came when the query first started: whatever they could not see
    then is read when it can be.
    """
    name = topics.topic("open", partitions=1)
    topics.give(name, 5, partitions=1)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 2, partitions=1)
        query = stream.start(stream.read(name, start="latest"), processingTime="0 seconds")
        await_true((stream.checkpoint / "offsets" / "0").exists, "it has begun")
        transaction.commit_transaction(WAIT_MAX_S)
    expected = [(name, 0, offset) for offset in (5, 6, 7)]
    await_true(lambda: stream.rows() == expected, "what lay behind the transaction is read")
    query.stop()


def test_nothing_to_read(make_stream: Callable[[], Any], topics: Any) -> None:
    """An empty topic, and a stop at the start: the query ends without a row, with any trigger."""
    empty, full = topics.topic("empty", partitions=2), topics.topic("full", partitions=2)
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


@pytest.mark.deep
def test_two_sources(stream: Any, topics: Any) -> None:
    """A union ends when both are read; a later start may raise one of the stops."""
    one, two = topics.topic("one", partitions=2), topics.topic("two", partitions=1)
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
