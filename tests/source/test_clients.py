"""What a run of a query has opened in the driver's process is closed with it, not when Spark
forgets the query.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exactum
from exactum.errors import Unavailable
from exactum.kafka.requests import EARLIEST, TopicRequests
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.source.source_stream import Topics
from tests.kit.waiting import await_true


def clients() -> set[str]:
    """librdkafka's clients in this process, by the thread that each of them has."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("rdk:main"):
                found.add(task.name)
    return found


OF_THE_PROCESS = {"exactum-recorder"}


def own_threads() -> Counter[str]:
    """A run's, and those of the clients of the driver's requests."""
    names = [thread.name for thread in threading.enumerate()]
    return Counter(
        name
        for name in names
        if ("exactum" in name or name.startswith("kafka-io")) and name not in OF_THE_PROCESS
    )


def test_nothing_stays_of_a_run(
    make_stream: Callable[[], Any], topics: Topics, broker: Broker
) -> None:
    read, rules, written = broker.topic(partitions=2), broker.topic(), broker.topic()
    topics.give(read, 2)
    clients_before, threads_before = clients(), own_threads()
    held = []  # as Spark's JVM may hold them
    for number in range(2):
        stream = make_stream()
        control = exactum.control_stream(rules, bootstrap_servers=broker.servers)
        sink = broker.sink(written)
        held.append(exactum.exactly_once(sink, control=control))
        frame = stream.read(read, group_id=f"{read}-{number}").selectExpr(
            "CAST(partition AS STRING) AS value"
        )
        writer = frame.writeStream.trigger(availableNow=True)
        assert stream.end(held[-1].start(writer, checkpoint=stream.checkpoint)) is None
    await_true(lambda: own_threads() <= threads_before, "the threads of the runs have ended")
    await_true(lambda: clients() <= clients_before, "the clients of the runs are closed")
    assert [topics.committed(f"{read}-{number}", read) for number in range(2)] == [{0: 2, 1: 2}] * 2


def test_closed_requests_say_so(topics: Topics, broker: Broker) -> None:
    name = broker.topic()
    others = own_threads()
    requests = TopicRequests({"bootstrap.servers": broker.servers}, "here")
    requests.commit_group(name, {(name, 0): 0})
    assert (own_threads() - others).total() == 1
    requests.close()
    requests.close()
    assert own_threads() <= others
    calls: list[Callable[[], object]] = [
        requests.topic_names,
        lambda: requests.describe([name]),
        lambda: requests.offsets([(name, 0)], EARLIEST, read_committed=True),
        lambda: requests.commit_group(name, {(name, 0): 0}),
    ]
    for call in calls:
        with raised(Unavailable, "here", broker.servers):
            call()
