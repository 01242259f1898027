"""The threads that a query has in the driver, besides Spark's."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest

import exactum
from exactum import events
from exactum.errors import Unavailable
from exactum.kafka.requests import TopicRequests
from exactum.spark.source import watch
from exactum.spark.source.options import Subscription
from tests.kit.kafka.broker import Broker
from tests.kit.source.source_stream import Topics
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]

OURS_MAX = 4
OF_CLIENTS = "kafka-io"
"""How the threads begin that the client library of the driver's requests has, one a client."""


def threads(before: set[threading.Thread]) -> Counter[str]:
    """Those that were not there before. A query of an earlier test may still end one of its own."""
    names = (thread.name for thread in set(threading.enumerate()) - before)
    return Counter(
        OF_CLIENTS if OF_CLIENTS in n else n for n in names if "exactum" in n or OF_CLIENTS in n
    )


def test_a_plain_query(stream: Any, broker: Broker, topics: Topics) -> None:
    """From Kafka to Kafka: one for all that is due now and then, the lag and the group included."""
    read, written = broker.topic("in", partitions=2), broker.topic("out", partitions=2)
    topics.give(read, 3)
    before = set(threading.enumerate())
    sink = broker.sink(written)
    once = exactum.exactly_once(sink, on_event=stream.events.append)
    frame = stream.read(read, group_id=read).selectExpr("CAST(offset AS STRING) AS value")
    query = once.start(frame.writeStream, checkpoint=stream.checkpoint)
    try:
        await_true(lambda: topics.committed(read, read) == {0: 3, 1: 3}, "its group is committed")
        await_true(lambda: any(isinstance(e, events.InputLag) for e in stream.events), "its lag")
        await_true(lambda: any(isinstance(e, events.Progress) for e in stream.events), "progress")
        found = threads(before)
    finally:
        query.stop()
    assert found.pop("exactum-housekeeping") == 1
    assert found.pop("exactum-recorder", 0) <= 1  # of the process: the history of all queries
    assert found.keys() <= {OF_CLIENTS}
    assert found.total() + 2 <= OURS_MAX
    await_true(lambda: not threads(before) - Counter(["exactum-recorder"]), "they have ended")


def test_a_broker_that_does_not_answer_keeps_nobody_from_stopping(
    stream: Any, topics: Topics, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The housekeeping is in the middle of a request that nobody answers: who stops the query does
    not wait for it.
    """
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.1)
    name = broker.topic("silent", partitions=1)
    topics.give(name, 1, partitions=1)
    query = stream.start(stream.read(name), processingTime="100 milliseconds")
    await_true(lambda: len(stream.rows()) == 1, "the first batch")
    asked, closed = threading.Event(), threading.Event()
    real = TopicRequests.close

    def silent(*_: Any) -> Any:
        asked.set()
        closed.wait(WAIT_MAX_S)
        raise Unavailable("closed")

    def closes(requests: TopicRequests) -> None:
        closed.set()
        real(requests)

    monkeypatch.setattr(Subscription, "seen", silent)
    monkeypatch.setattr(TopicRequests, "close", closes)
    assert asked.wait(WAIT_MAX_S)
    began_s = time.monotonic()
    query.stop()
    assert time.monotonic() - began_s < 10
    assert closed.is_set() and not query.isActive
