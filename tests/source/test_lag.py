"""How far a query is behind its topics, in records and in seconds: what the event ``InputLag``
says.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords, MemoryRecordsBuilder
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from exactum import events
from exactum.java.program import SMALL_OPTIONS
from exactum.kafka.log_requests import batch_time_ms
from exactum.local import LocalKafka
from exactum.monitor.job import read_job
from exactum.monitor.verdict import judge
from exactum.spark.run import housekeeping
from exactum.spark.source import watch
from exactum.spark.source.lag import (
    LOOKS_MAX,
    LagTable,
    StallTracker,
    TopicLag,
)
from tests.kit.source.source_stream import EPOCH_MS, Stream, Topics
from tests.kit.waiting import WAIT_MAX_S, await_true

P = ("orders", 0)
FIRST_ONLY = {"processingTime": "1 hour"}
"""One batch, and then the query waits."""


@pytest.fixture
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.4)
    monkeypatch.setattr(housekeeping, "TICK_S", 0.2)


def lags(stream: Stream) -> list[events.InputLag]:
    return stream.told(events.InputLag)


@contextmanager
def running(stream: Stream, frame: Any, **trigger: Any) -> Iterator[StreamingQuery]:
    query = stream.start(frame, **(trigger or {"processingTime": "100 milliseconds"}))
    try:
        yield query
    finally:
        query.stop()


def until_lag(stream: Stream, what: str, holds: Callable[[events.InputLag], bool]) -> Any:
    """The last event, once it is like that; only those from now on count."""
    seen = len(lags(stream))

    def now() -> bool:
        return len(lags(stream)) > seen and holds(lags(stream)[-1])

    try:
        await_true(now, what)
    except AssertionError:
        raise AssertionError(f"{what}; the last ones were {lags(stream)[-3:]}") from None
    return lags(stream)[-1]


# ---- the table -------------------------------------------------------------------------------


def test_the_moment_lies_between_two_looks() -> None:
    """Where the end passed the position, in proportion; an end that stood still passed it after
    the last look that saw it there.
    """
    table = LagTable()
    for at_s, end in ((0.0, 100), (5.0, 100), (10.0, 200), (20.0, 300)):
        table.saw({P: end}, at_s)
    assert table.behind({P: 100}) == {P: 200}
    assert table.passed_s(P, 100) == 5.0
    assert table.passed_s(P, 150) == 7.5
    assert table.passed_s(P, 299) == pytest.approx(19.9)
    assert table.passed_s(P, 300) is None
    assert table.behind({P: 301}) == {P: 0}


def test_nobody_knows_what_no_look_reaches_back_to() -> None:
    """After a restart in the midst of a lag the age is unknown until it is learned, and never 0."""
    table = LagTable()
    table.saw({P: 500}, 1000.0)
    assert (table.behind({P: 100}), table.passed_s(P, 100)) == ({P: 400}, None)
    table.learned(P, 100, 400.0)
    table.saw({P: 500}, 1005.0)
    assert table.passed_s(P, 100) == 400.0
    assert table.passed_s(P, 300) == 400.0  # no younger than what is known of an older record
    assert not table.reaches_back(P, 300)
    table.learned(P, 300, 700.0)
    assert table.passed_s(P, 300) == 700.0
    table.saw({P: 600}, 1010.0)
    assert table.passed_s(P, 500) == 1005.0
    assert table.passed_s(P, 299) is None  # a position never goes back


def test_a_log_that_lost_records_is_another_log() -> None:
    """What was seen before an end went back says nothing about what comes after it."""
    table = LagTable()
    table.saw({P: 100}, 0.0)
    table.saw({P: 200}, 5.0)
    table.saw({P: 150}, 10.0)
    assert table.passed_s(P, 120) is None


def test_partitions_that_are_gone_are_forgotten() -> None:
    table = LagTable()
    table.saw({P: 100, ("other", 0): 5}, 0.0)
    table.saw({P: 100}, 5.0)
    assert table.behind({P: 0, ("other", 0): 0}) == {P: 100}


def test_two_sources_of_one_topic() -> None:
    """Records add up, the older age counts, and what one of them does not know is not known."""
    one, two = TopicLag(2, 5, 1.0, 0), TopicLag(2, 7, 9.0, 3)
    assert one.plus(two) == TopicLag(4, 12, 9.0, 3)
    assert one.plus(TopicLag(2, 7, None, 0)).seconds is None


@given(
    steps=st.lists(
        st.tuples(st.floats(0.1, 60), st.integers(0, 1000)), min_size=2, max_size=LOOKS_MAX * 5
    ),
    share=st.floats(0, 1),
)
def test_the_moment_is_right_within_the_looks_around_it(
    steps: list[tuple[float, int]], share: float
) -> None:
    """However the end moves and however long the lag lasts: what is said lies between two looks
    that were made, the earlier of which saw the end at or before the position, and is bounded.
    """
    table, now_s, end = LagTable(), 0.0, 0
    looks = []
    for pause_s, more in steps:
        now_s, end = now_s + pause_s, end + more
        table.saw({P: end}, now_s)
        looks.append((now_s, end))
    position = looks[0][1] + round((end - looks[0][1]) * share)
    assert len(table._looks[P]) <= LOOKS_MAX + 1
    found = table.passed_s(P, position)
    if position >= end:
        assert found is None
        return
    assert found is not None
    before = max(at_s for at_s, seen in looks if seen <= position)
    after = min(at_s for at_s, seen in looks if seen > position)
    if len(looks) <= LOOKS_MAX:
        assert before - 1e-6 <= found <= after + 1e-6
    else:  # thinned: coarser, but of these looks
        assert looks[0][0] - 1e-6 <= found <= now_s + 1e-6


def test_stall_tracker() -> None:
    """A last stable offset that stands still below the high watermark is told of once, and so is
    its end.
    """
    tracker, p = StallTracker(), ("t", 0)
    assert tracker.update({p: 5}, {p: 9}, 0) == ([], [])
    assert tracker.update({p: 6}, {p: 9}, 20) == ([], []), "it moved"
    assert tracker.update({p: 6}, {p: 10}, 49) == ([], [])
    (stall,), over = tracker.update({p: 6}, {p: 12}, 50)
    assert (stall.partition, stall.last_stable_offset, stall.lso_gap, stall.since_s, over) == (
        p,
        6,
        6,
        20,
        [],
    )
    assert tracker.update({p: 6}, {p: 13}, 99) == ([], [])
    began, (ended,) = tracker.update({p: 13}, {p: 13}, 100)
    assert (began, ended.since_s) == ([], 20)
    assert tracker.update({p: 13}, {p: 13}, 200) == ([], [])


def test_a_batch_without_a_time() -> None:
    """Nothing, a part of a batch, and a format that is older than transactions."""
    old = MemoryRecordsBuilder(1, 0, 1_000)
    old.append(1_234, None, b"value")
    old.close()
    batch = bytes(old.buffer())
    firsts = [MemoryRecords(each).next_batch() for each in (b"", batch[:30], batch)]
    assert [batch_time_ms(each) for each in firsts] == [None] * 3


# ---- real topics -----------------------------------------------------------------------------


@pytest.mark.usefixtures("look_often")
def test_a_transactional_topic_is_read_to_its_end(stream: Stream, topics: Topics) -> None:
    """Each transaction ends with a control marker, which is no record: all the same the lag comes
    to 0. What an open transaction hides is not lag, and is told beside it.
    """
    name = topics.topic("lag", partitions=2)
    producer = topics.initialised(f"lag-{name}")
    for number in range(4):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(name, b"x", partition=partition)
        assert producer.flush(WAIT_MAX_S) == 0
        if number % 2:
            producer.abort_transaction(WAIT_MAX_S)
        else:
            producer.commit_transaction(WAIT_MAX_S)
    with running(stream, stream.read(name)):
        read = until_lag(stream, "all is read", lambda e: e.lag_records == 0)
        assert (read.topic, read.partitions, read.lag_seconds) == (name, 2, 0.0)
        assert read.lso_gap_records == 0
        with topics.open_transaction(name) as other:
            hidden = until_lag(stream, "one is hidden", lambda e: e.lso_gap_records == 1)
            assert (hidden.lag_records, hidden.lag_seconds) == (0, 0.0)
            other.commit_transaction(WAIT_MAX_S)
        until_lag(stream, "it is read", lambda e: e.lag_records == 0 and not e.lso_gap_records)
    assert len(stream.rows()) == 5


@pytest.mark.deep
@pytest.mark.usefixtures("look_often")
def test_a_lag_is_as_old_as_its_oldest_record(stream: Stream, topics: Topics) -> None:
    """A query begins, and begins again, in the midst of a lag: the records there know how old they
    are, and no look says 0. A new record's age is known from the looks alone.
    """
    name = topics.topic("behind", partitions=2)
    topics.give(name, 20)
    frame = stream.read(name, maxOffsetsPerTrigger=4)
    for life in (1, 2):
        stream.events.clear()
        with running(stream, frame, **FIRST_ONLY):
            left = 40 - 4 * life
            event = until_lag(stream, "it waits", lambda e, left=left: e.lag_records == left)
            age_s = time.time() - EPOCH_MS / 1000
            assert event.lag_seconds == pytest.approx(age_s, abs=60)
        assert all(e.lag_seconds is None or e.lag_seconds > 60 for e in lags(stream))
    stream.events.clear()
    with running(stream, stream.read(name)):
        until_lag(stream, "all is read", lambda e: e.lag_records == 0)
    topics.give(name, 1)  # the first batch, whole: it does not begin between the two
    began_s = time.monotonic()
    with running(stream, stream.read(name), **FIRST_ONLY):
        until_lag(stream, "it waits again", lambda e: e.lag_records == 0)
        topics.give(name, 3)
        event = until_lag(stream, "three are behind", lambda e: e.lag_records == 6)
        assert event.lag_seconds <= time.monotonic() - began_s, "as old as a look, not an hour"
        later = until_lag(stream, "they grow old", lambda e: e.lag_seconds > event.lag_seconds)
        assert later.lag_records == 6


@pytest.mark.usefixtures("look_often")
def test_what_is_not_to_be_read_is_no_lag(
    stream: Stream, make_stream: Callable[[], Stream], topics: Topics
) -> None:
    """A backfill is behind its stop and not the topic's end. A source that reads uncommitted
    records is behind the high watermark, and nothing is hidden from it.
    """
    name = topics.topic("bounded", partitions=1)
    topics.give(name, 20, partitions=1)
    bounded = stream.read(name, maxOffsetsPerTrigger=2, stop={name: {0: 12}})
    with running(stream, bounded, **FIRST_ONLY):
        until_lag(stream, "ten before the stop", lambda e: e.lag_records == 10)
    plain = make_stream()
    uncommitted = topics.by_spark(plain.spark, subscribe=name)
    with topics.open_transaction(name) as other, running(plain, uncommitted):
        event = until_lag(plain, "all is read", lambda e: e.lag_records == 0)
        assert event.lso_gap_records == 0
        other.abort_transaction(WAIT_MAX_S)
    assert len(plain.rows()) == 21


@pytest.fixture
def other_cluster() -> Iterator[LocalKafka]:
    with LocalKafka(jvm_options=SMALL_OPTIONS) as cluster:
        yield cluster


@pytest.mark.usefixtures("look_often")
def test_what_is_not_counted_is_named(
    stream: Stream, topics: Topics, tmp_path: Path, other_cluster: LocalKafka
) -> None:
    """A lag of 0 says nothing of files, of topics that the driver cannot ask about, and of a cluster
    that does not answer.
    """
    (tmp_path / "files").mkdir()
    name, unasked = (topics.topic(each, partitions=1) for each in ("seen", "unasked"))
    other = Topics(other_cluster)
    away = other.topic("away", partitions=1)
    known = {"kafka.isolation.level": "read_committed"}
    files = stream.spark.readStream.schema("topic string, partition int, offset bigint")
    frames = [
        stream.read(name),
        topics.by_spark(stream.spark, subscribe=unasked, **known, **{"kafka.ssl.protocol": "TLS"}),
        other.by_spark(stream.spark, subscribe=away, **known),
        files.json(str(tmp_path / "files")),
    ]
    each = (frame.select("topic", "partition", "offset") for frame in frames)
    topics.give(name, 1, partitions=1)
    never = {f"source 1 ({unasked})", "source 3 (not of Kafka)"}
    with running(stream, reduce(DataFrame.union, each), **FIRST_ONLY):
        until_lag(stream, "all is read", lambda e: (e.lag_records, {*e.not_counted}) == (0, never))
        said = lambda: judge(read_job(stream.checkpoint)).reason  # noqa: E731
        await_true(
            lambda: said() == "Nothing is left to read in what is counted.", "no more is said"
        )
        other_cluster.kill()
        until_lag(
            stream,
            "one is silent",
            lambda e: e.topic == name and {*e.not_counted} == {*never, f"source 2 ({away})"},
        )
