"""The threads and clients that a query has in the driver, besides Spark's, and that they end with it."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import exactum
from exactum import events
from exactum.errors import Unavailable
from exactum.kafka.requests import EARLIEST, OF_A_READER, BrokerRequests
from exactum.spark.source import watch
from exactum.spark.source.options import Subscription
from tests.kit.errors import raised
from tests.kit.source.source_stream import Stream, Topics
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


def clients() -> set[str]:
    """librdkafka's clients in this process, by the thread that each of them has."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("rdk:main"):
                found.add(task.name)
    return found


def test_a_plain_query(make_stream: Callable[[], Stream], topics: Topics) -> None:
    """From Kafka to Kafka, without and with rules: one for all that is due now and then, the lag and the group
    included. What the runs have opened is closed with them, though Spark's JVM may hold the queries.
    """
    read, written, rule = (topics.topic(one, partitions=2) for one in ("in", "out", "rules"))
    asked = [(), (rule,)]
    topics.give(read, 3)
    before, clients_before = set(threading.enumerate()), clients()
    held = []
    for number in range(2):
        stream, group = make_stream(), f"{read}-{number}"
        rules = [exactum.control_stream(r, bootstrap_servers=topics.servers) for r in asked[number]]
        once = exactum.exactly_once(
            topics.sink(written), control=rules, on_event=stream.events.append
        )
        held.append(once)
        frame = stream.read(read, group_id=group).selectExpr("CAST(offset AS STRING) AS value")
        query = once.start(frame.writeStream, checkpoint=stream.checkpoint)
        try:
            await_true(lambda g=group: topics.committed(g, read) == {0: 3, 1: 3}, "its group")
            for kind in (events.InputLag, events.Progress):
                await_true(lambda k=kind, s=stream: bool(s.told(k)), kind.__name__)
            found = threads(before)
        finally:
            query.stop()
        assert found.pop("exactum-housekeeping") == 1
        assert found.pop("exactum-recorder", 0) <= 1  # of the process: the history of all queries
        assert found.keys() <= {OF_CLIENTS}
        assert found.total() + 2 <= OURS_MAX + len(rules)
        await_true(lambda: not threads(before) - Counter(["exactum-recorder"]), "they have ended")
    await_true(lambda: clients() <= clients_before, "the clients of the runs are closed")


def test_a_broker_that_does_not_answer_keeps_nobody_from_stopping(
    stream: Any, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The housekeeping is in the middle of a request that nobody answers: who stops the query does
    not wait for it.
    """
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.1)
    name = topics.topic("silent", partitions=1)
    topics.give(name, 1, partitions=1)
    query = stream.start(stream.read(name), processingTime="100 milliseconds")
    await_true(lambda: len(stream.rows()) == 1, "the first batch")
    asked, closed = threading.Event(), threading.Event()
    freed: list[bool] = []
    real = BrokerRequests.close

    def silent(*_: Any) -> Any:
        asked.set()
        freed.append(closed.wait(WAIT_MAX_S))
        raise Unavailable("closed")

    def closes(requests: BrokerRequests) -> None:
        closed.set()
        real(requests)

    monkeypatch.setattr(Subscription, "seen", silent)
    monkeypatch.setattr(BrokerRequests, "close", closes)
    assert asked.wait(WAIT_MAX_S)
    query.stop()
    assert not query.isActive
    await_true(lambda: bool(freed), "the request has ended")
    assert all(freed), "who stopped the query waited for the answer"


def test_closed_requests_say_so(topics: Topics) -> None:
    name = topics.topic()
    before = set(threading.enumerate())
    requests = BrokerRequests({"bootstrap.servers": topics.servers}, "here", OF_A_READER)
    requests.commit_group(name, {(name, 0): 0})
    assert threads(before).total() == 1
    requests.close()
    requests.close()
    assert not threads(before)
    calls: list[Callable[[], object]] = [
        requests.topic_names,
        lambda: requests.topics([name]),
        lambda: requests.offsets([(name, 0)], EARLIEST, read_committed=True),
        lambda: requests.commit_group(name, {(name, 0): 0}),
    ]
    for call in calls:
        with raised(Unavailable, "here", topics.servers):
            call()
