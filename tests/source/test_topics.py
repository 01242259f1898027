"""What is read stays what it was: topics made anew, records that are gone, and transactions that
hold readers back.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import exactum
from exactum import events
from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.spark.source import lag, read_kafka, watch, watched_source
from exactum.spark.source.columnar import SPARKS
from exactum.spark.source.options import Subscription
from tests.kit.errors import check_query_error
from tests.kit.source.source_stream import Heard
from tests.kit.spark import folder_sink
from tests.kit.waiting import WAIT_MAX_S, await_true


@pytest.fixture(autouse=True)
def sure_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks changed is looked at again for a while; the one broker here hears of it at once."""
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 1.0)
    monkeypatch.setattr(watched_source, "SURE_PAUSE_S", 0.1)


def test_topic_made_anew_with_fewer_records(make_stream: Callable[[], Any], topics: Any) -> None:
    """Fewer records, or fewer partitions, than the checkpoint has read: the start is refused, by
    Spark or by us.
    """
    fewer, narrower = topics.topic("fewer", partitions=2), topics.topic("narrower", partitions=2)
    for name, partitions in ((fewer, 2), (narrower, 1)):
        topics.give(name, 5)
        stream = make_stream()
        assert stream.run(stream.read(name)) is None
        before = stream.rows()
        topics.made_anew(name, partitions)
        topics.give(name, 2 if partitions == 2 else 20, partitions)
        assert stream.run(stream.read(name)) is not None
        assert stream.rows() == before


def test_topic_made_anew_with_more_partitions_while_the_query_runs(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks between the two batches: that a partition is new is reason enough to."""
    monkeypatch.setattr(watch, "CHECK_EVERY_S", math.inf)
    name = topics.topic("widened", partitions=1)
    topics.give(name, 5, partitions=1)

    def noted(event: Any) -> None:
        # Within the first batch: Spark asks which partitions there are, then where these end, and
        # between the two it would find the old topic first and the new one then.
        if isinstance(event, events.EpochCompleted) and event.batch_id == 0:
            topics.made_anew(name, 2)
            topics.give(name, 20)

    stream.events = Heard(noted)
    query = stream.start(stream.read(name), processingTime="0 seconds")
    await_true(lambda: not query.isActive or len(stream.rows()) > 5, "the end of the query")
    assert len(stream.rows()) == 5
    check_query_error(stream.end(query), CheckpointRefused, "TOPIC_CHANGED", f"'{name}'")


@pytest.mark.variants(1)
@pytest.mark.parametrize("records", [0, 5], ids=["none", "as many"])
def test_topic_made_anew_while_the_query_is_quiet(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """No batch begins, since nothing comes or the offsets look as they did: it ends all the same,
    and is not taken for one that was stopped.
    """
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.5)
    name = topics.topic("quiet", partitions=1)
    topics.give(name, 5, partitions=1)
    # Spark finds by itself that offsets went back, after three tries: our look has to come first.
    retrying = stream.read(name, **{"fetchOffset.numRetries": 600})
    query = stream.start(retrying, processingTime="100 milliseconds")
    await_true(lambda: len(stream.rows()) == 5, "the first batch")
    topics.made_anew(name, 1)
    topics.give(name, records, partitions=1)
    error = stream.end(query) or ""
    code = (
        "TOPIC_GONE" if "[TOPIC_GONE]" in error else "TOPIC_CHANGED"
    )  # as the moment will have it
    check_query_error(error, CheckpointRefused, code, f"'{name}'")
    assert isinstance(query.exception(), CheckpointRefused)
    assert len(stream.rows()) == 5
    (ended,) = stream.told(events.RunEnded)
    assert ended.error == "CheckpointRefused"


def plan_without_writing(stream: Any, frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that Spark plans its next batch for, and whose topics cannot be looked at."""

    def away(*_: Any) -> Any:
        raise Unavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Subscription, "seen", away)
        check_query_error(stream.run(frame), Unavailable, "no answer")


def test_no_batch_is_written_that_was_not_compared(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start whose topics cannot be looked at is refused, to be tried again."""
    name = topics.topic("unseen", partitions=2)
    topics.give(name, 5)
    frame = stream.read(name)
    plan_without_writing(stream, frame, monkeypatch)
    assert stream.rows() == []
    assert stream.run(frame) is None
    assert len(stream.rows()) == 10


def test_retention_passed_the_next_offset(
    stream: Any, topics: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that were deleted before they were read: refused, or passed over where
    failOnDataLoss is false.
    """
    name = topics.topic("retention", partitions=1)
    topics.give(name, 5, partitions=1)
    assert stream.run(stream.read(name)) is None
    topics.delete_before(name, 0, 5)
    topics.give(name, 1, partitions=1)
    assert stream.run(stream.read(name)) is None, "what was deleted had been read"
    topics.give(name, 4, partitions=1)
    topics.delete_before(name, 0, 8)
    error = stream.run(stream.read(name))
    check_query_error(error, CheckpointRefused, "RECORDS_LOST", f"{name}-0", 8, 6)
    assert [o for _, _, o in stream.rows()] == [0, 1, 2, 3, 4, 5]
    with caplog.at_level(logging.WARNING, "exactum"):
        assert stream.run(stream.read(name, failOnDataLoss=False)) is None
    assert "begins at 8 now" in caplog.text
    assert [o for _, _, o in stream.rows()] == [0, 1, 2, 3, 4, 5, 8, 9]


def test_retention_passed_the_first_offset(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Likewise of a query's first batch, which an earlier start has planned and not written."""
    name = topics.topic("first", partitions=1)
    topics.give(name, 5, partitions=1)
    frame = stream.read(name)
    plan_without_writing(stream, frame, monkeypatch)
    topics.delete_before(name, 0, 3)
    error = stream.run(frame)
    check_query_error(error, CheckpointRefused, "RECORDS_LOST", f"{name}-0", 3, 0)
    assert stream.rows() == []
    with caplog.at_level(logging.WARNING, "exactum"):
        assert stream.run(stream.read(name, failOnDataLoss=False)) is None
    assert "begins at 3 now" in caplog.text
    assert [o for _, _, o in stream.rows()] == [3, 4]


@pytest.mark.parametrize("code", ["", "RECORDS_LOST", "TOPIC_CHANGED", "TOPIC_GONE"])
def test_a_decided_batch_whose_input_is_gone(
    stream: Any, topics: Any, tmp_path: Path, code: str
) -> None:
    """One sink has it, and the other one was not reached: it comes to stand in both, whatever has
    become of what it read. Only then the query is refused, where more is gone than it has read.
    """
    name, other = topics.topic("decided", partitions=1), tmp_path / "other"

    def run() -> str | None:
        sinks = exactum.FileSink(stream.out, format="json"), folder_sink.FolderSink(str(other))
        writer = rows.writeStream.trigger(availableNow=True)
        once = exactum.exactly_once(*sinks)
        return stream.end(lambda: once.start(writer, checkpoint=stream.checkpoint))

    rows = stream.read(name).select("topic", "partition", "offset")

    topics.give(name, 2, partitions=1)
    assert run() is None
    topics.give(name, 3, partitions=1)
    folder_sink.arm(other, "commit", kind="unavailable")
    check_query_error(run(), Unavailable, "commit")
    assert (len(stream.rows()), len(folder_sink.rows(other))) == (5, 2)
    if code == "TOPIC_GONE":
        topics.kafka.delete_topic(name)
    elif code == "TOPIC_CHANGED":
        topics.made_anew(name, 1)
        topics.give(name, 8, partitions=1)
    else:
        topics.give(name, 3, partitions=1)
        topics.delete_before(name, 0, 7 if code else 5)
    for _ in range(2):
        error = run()
        assert len(folder_sink.rows(other)) == len(stream.rows()) == (5 if code else 8)
        if code:
            check_query_error(error, CheckpointRefused, code, name)
        else:
            assert error is None


@pytest.mark.deep
def test_another_topic_with_the_checkpoint(stream: Any, topics: Any) -> None:
    """The query that has taken another's checkpoint writes nothing, and that one goes on."""
    mine, other = topics.topic("mine", partitions=2), topics.topic("other", partitions=2)
    topics.give(mine, 5)
    topics.give(other, 3)
    assert stream.run(stream.read(mine)) is None
    before = stream.rows()
    told = stream.run(stream.read(other)) or ""
    assert "[SOURCE_GONE]" in told and "failOnDataLoss to false" not in told, "Spark's own advice"
    assert re.search(
        rf"to read next: Partitions Set\({mine}-0, .*have been deleted\.\s+Is the", told
    )
    assert stream.rows() == before
    for left in ("1", ".1.crc"):  # as the docs say
        (stream.checkpoint / "offsets" / left).unlink(missing_ok=True)
    topics.give(mine, 1)
    assert stream.run(stream.read(mine)) is None
    assert stream.rows() == sorted([*before, (mine, 0, 5), (mine, 1, 5)])


@pytest.mark.deep
def test_a_new_topic_is_read_after_a_failed_attempt(stream: Any, topics: Any) -> None:
    """It is on record by then, and was not left out."""
    old, new = topics.topic("old", partitions=1), topics.topic("new", partitions=1)
    topics.give(old, 3, partitions=1)
    assert stream.run(stream.read(old)) is None
    topics.give(new, 2, partitions=1)
    broken = stream.read([old, new]).selectExpr(
        "topic",
        "partition",
        "coalesce(CAST(raise_error('broken today') AS LONG), offset) AS offset",
    )
    assert "broken today" in (stream.run(broken) or "")
    assert stream.run(stream.read([old, new])) is None
    assert len(stream.rows()) == 5


def test_open_transaction_upstream(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction left open upstream is told of, with who holds it, and so is its end."""
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.5)
    monkeypatch.setattr(lag, "STALL_AFTER_S", 1.0)
    name = topics.topic("stalled", partitions=2)
    topics.give(name, 3)
    with topics.open_transaction(name) as transaction:
        topics.give(name, 2)
        query = stream.start(stream.read(name), processingTime="100 milliseconds")
        try:
            await_true(lambda: bool(stream.told(events.UpstreamStalled)), "the stall is told of")
            (event,) = stream.told(events.UpstreamStalled)
            place = (event.topic, event.partition, event.last_stable_offset, event.lso_gap)
            assert place == (name, 0, 3, 3)
            assert event.transactional_id == f"open-{name}"
            assert event.producer_id is not None
            transaction.commit_transaction(WAIT_MAX_S)
            await_true(lambda: bool(stream.told(events.UpstreamMoved)), "its end is told of")
            await_true(lambda: len(stream.rows()) == 11, "all is read")
        finally:
            query.stop()
    assert len(stream.told(events.UpstreamStalled)) == 1


def test_a_moment_without_an_answer(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that calls a topic unknown for a moment, as one does that has just started, stops
    no query for good.
    """
    name = topics.topic("moment", partitions=2)
    topics.give(name, 5)
    assert stream.run(stream.read(name)) is None
    topics.give(name, 5)
    frame = stream.read(name)
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", WAIT_MAX_S)
    empty: list[dict[str, Any]] = [{}, {}]
    real = Subscription.seen
    monkeypatch.setattr(Subscription, "seen", lambda *given: empty.pop() if empty else real(*given))
    assert stream.run(frame) is None
    assert len(stream.rows()) == 20
    assert empty == [], "both were given"


@pytest.mark.variants(1)
@pytest.mark.parametrize("pattern", [r"\Q{}\E", r"{}(?<group>x?)", r"{}\p{{Alpha}}?"])
def test_a_pattern_that_only_java_knows(stream: Any, topics: Any, pattern: str) -> None:
    """Nobody could watch its topics: Spark's own reader takes it, and the query is refused."""
    name = topics.topic("java", partitions=1)
    topics.give(name, 1, partitions=1)
    given = {"subscribePattern": pattern.format(name)}
    error = stream.run(topics.by_spark(stream.spark, **given))
    check_query_error(error, SettingRefused, "SOURCE_ARGUMENT", "subscribePattern=")
    assert stream.rows() == []
    with pytest.raises(SettingRefused) as refused:
        Subscription.of(given).seen(topics)
    assert len(str(refused.value).splitlines()) <= 3


def test_as_many_records_as_before(
    stream: Any, topics: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark finds nothing new in a topic that was made anew with as many records, and so has no
    micro-batch in which anybody could compare: however the query goes on, also by Spark's source.
    """
    name = topics.topic("same", partitions=1)
    while not set(topics.id_of(name)) & set("+/"):  # Kafka itself writes - and _ for them
        name = topics.topic("same", partitions=1)
    topics.give(name, 5, partitions=1)
    for _ in range(2):
        assert stream.run(stream.read(name)) is None, "the same topic goes on"
    topics.made_anew(name, 1)
    topics.give(name, 5, partitions=1)
    again, for_good = {"availableNow": True}, {"processingTime": "100 milliseconds"}
    for trigger, arguments in ((again, {}), (for_good, {}), (for_good, {"stop": "latest"})):
        refuses_the_new_one(stream, name, stream.read(name, **arguments), trigger)
    monkeypatch.setattr(read_kafka, "kafka_format", lambda _session: SPARKS)
    refuses_the_new_one(stream, name, stream.read(name), again)


def refuses_the_new_one(stream: Any, name: str, frame: Any, trigger: dict[str, Any]) -> None:
    error = stream.run(frame, **trigger) or ""
    check_query_error(error, CheckpointRefused, "TOPIC_CHANGED", f"'{name}'")
    assert error.startswith("exactum.errors.") and "Nothing more was written" in error
    assert len(stream.rows()) == 5


@pytest.mark.parametrize("fails", [True, False])
def test_why_it_ended_is_told(stream: Any, topics: Any, fails: bool) -> None:
    """Of a query that Spark ends between two micro-batches, when nobody calls exactum: it passed for
    one that was stopped; with a stop of its own, for one that has read all.
    """
    name = topics.topic("between", partitions=1)
    topics.give(name, 3, partitions=1)
    query = stream.start(stream.read(name), processingTime="0 seconds")
    await_true(lambda: len(stream.rows()) == 3, "what is there is read")
    await_true((stream.checkpoint / "commits/0").exists, "the micro-batch is over")
    if fails:
        topics.kafka.delete_topic(name)
        assert stream.end(query) is not None
    else:
        query.stop()
    await_true(lambda: bool(stream.told(events.RunEnded)), "the end is told")
    (end,) = stream.told(events.RunEnded)
    assert bool(end.error) == bool(end.reason) == fails
