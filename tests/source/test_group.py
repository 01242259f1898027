"""A query's offsets as others see them: plain consumers, and Kafka's own kafka-consumer-groups."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as f

import exactum
from exactum.errors import CheckpointRefused, SettingRefused
from exactum.kafka.requests import OF_A_READER, BrokerRequests
from exactum.local import LocalKafka
from exactum.spark.source import groups
from exactum.spark.source.groups import PAUSE_S
from tests.kit.errors import check_query_error, raised
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.broker, pytest.mark.spark]


@pytest.mark.deep
def test_never_ahead_and_repaired(stream: Any, topics: Any) -> None:
    """An epoch that fails moves nothing; the next complete one is committed, though somebody
    reset the group.
    """
    name, group = topics.topic("repair", partitions=1), "repair"
    topics.give(name, 5, partitions=1)
    assert stream.run(stream.read(name, group_id=group)) is None
    await_true(lambda: topics.committed(group, name) == {0: 5}, "the first run's end")
    topics.commit(group, name, {0: 1})
    topics.give(name, 3, partitions=1)
    frame = stream.read(name, group_id=group)
    failing = frame.filter(
        f.when(f.col("offset") > 5, f.raise_error(f.lit("no"))).otherwise(f.lit("yes")).isNotNull()
    )
    assert "no" in (stream.run(failing) or "")
    assert topics.committed(group, name) == {0: 1}
    assert stream.run(frame) is None
    await_true(lambda: topics.committed(group, name) == {0: 8}, "the newest epoch's end")
    assert stream.rows() == [(name, 0, o) for o in range(8)]


def test_a_refused_start_moves_nothing(stream: Any, topics: Any) -> None:
    """Spark's own files of the checkpoint come from an old copy, and the start is refused: the
    group stays at the end of what was written since, and does not go back.
    """
    name, group, copy = (
        topics.topic("backup", partitions=1),
        "backup",
        stream.checkpoint.with_name("copy"),
    )
    topics.give(name, 5, partitions=1)
    assert stream.run(stream.read(name, group_id=group)) is None
    shutil.copytree(stream.checkpoint, copy)
    topics.give(name, 5, partitions=1)
    assert stream.run(stream.read(name, group_id=group)) is None
    await_true(lambda: topics.committed(group, name) == {0: 10}, "the newest epoch's end")
    for part in ("offsets", "commits"):
        shutil.rmtree(stream.checkpoint / part)
        shutil.copytree(copy / part, stream.checkpoint / part)
    topics.give(name, 3, partitions=1)
    error = stream.run(stream.read(name, group_id=group))
    check_query_error(error, CheckpointRefused, "OFFSETS_DIFFER", "epoch 1")
    time.sleep(PAUSE_S)  # whatever the refused run would commit, it would have by now
    assert topics.committed(group, name) == {0: 10}


def test_not_committed(make_stream: Callable[[], Any], topics: Any) -> None:
    """commit_offsets=False, or no group id: nothing is committed; the group only said where to
    start.
    """
    name, group = topics.topic("quiet", partitions=1), "quiet"
    topics.give(name, 5, partitions=1)
    topics.commit(group, name, {0: 2})
    stream = make_stream()
    assert stream.run(stream.read(name, group_id=group, commit_offsets=False)) is None
    assert stream.rows() == [(name, 0, o) for o in range(2, 5)]
    assert topics.committed(group, name) == {0: 2}


def test_group_in_use(
    stream: Any,
    topics: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A consumer of the same group keeps its offsets: a warning, once, and the query goes on, and
    commits to another group as often as ever. What failed is made up for when the consumer is gone,
    though a query that has read all there is has no later epoch.
    """
    name, other = topics.topic("busy", partitions=1), topics.topic("free", partitions=1)
    for own in (name, other):
        topics.give(own, 5, partitions=1)
    monkeypatch.setattr(groups, "PAUSE_S", 0.05)
    one, two = (
        stream.read(own, group_id=group_id, start="earliest", maxOffsetsPerTrigger=1)
        for own, group_id in ((name, "busy"), (other, "free"))
    )
    rows = sorted((own, 0, o) for own in (name, other) for o in range(5))
    with topics.member("busy", name, enable_auto_commit=False):
        with caplog.at_level(logging.WARNING, "exactum"):
            query = stream.start(one.union(two), processingTime="0 seconds")
            await_true(lambda: stream.rows() == rows, "all is read")
        await_true(lambda: topics.committed("free", other) == {0: 5}, "the other one is committed")
        trouble = "could not be committed to the group 'busy'"
        await_true(lambda: any(trouble in r.getMessage() for r in caplog.records), "the warning")
        assert topics.committed("busy", name) == {}
    try:
        await_true(lambda: topics.committed("busy", name) == {0: 5}, "the last epoch's end")
    finally:
        query.stop()
    assert len(caplog.records) == 1


def test_two_sources_one_group(make_stream: Callable[[], Any], topics: Any) -> None:
    """Two frames of one topic may not share a group; one frame read twice may, and other topics
    may.
    """
    one, two, group = (
        topics.topic("shared", partitions=1),
        topics.topic("other", partitions=1),
        "shared",
    )
    topics.give(one, 3, partitions=1)
    topics.give(two, 3, partitions=1)
    refused = make_stream()
    frame = refused.read(one, group_id=group).union(refused.read(one, group_id=group))
    assert f"two sources read the topic '{one}' with group_id='{group}'" in (
        refused.run(frame) or ""
    )
    assert refused.rows() == []
    allowed = make_stream()
    frame = allowed.read(one, group_id=group)
    both = frame.union(frame).union(allowed.read(two, group_id=group))
    assert allowed.run(both) is None
    assert len(allowed.rows()) == 9
    await_true(lambda: topics.committed(group, one) == {0: 3}, "the end of the one topic")
    await_true(lambda: topics.committed(group, two) == {0: 3}, "the end of the other topic")


def test_one_group_id_for_two_ways_to_connect(make_stream: Callable[[], Any], topics: Any) -> None:
    """It may mean two clusters, each with a group of that name: refused."""
    name, group = topics.topic("everywhere", partitions=1), "everywhere"
    topics.give(name, 3, partitions=1)
    stream = make_stream()
    port = topics.servers.rpartition(":")[2]
    by_name = exactum.read_kafka(
        stream.spark, name, bootstrap_servers=f"localhost:{port}", group_id=group
    )
    error = stream.run(stream.read(name, group_id=group).union(by_name))
    check_query_error(error, SettingRefused, "GROUP_TWICE", f"'{group}'")
    assert stream.rows() == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_has_members_is_named_as_such(topics: Any, protocol: str) -> None:
    """Whichever protocol they speak; rights are not to blame."""
    name, group = topics.topic("members", partitions=1), f"members-{protocol}"
    topics.give(name, 1, partitions=1)
    requests = BrokerRequests({"bootstrap.servers": topics.servers}, "here", OF_A_READER)
    try:
        with (
            topics.member(group, name, group_protocol=protocol, auto_offset_reset="earliest"),
            raised(SettingRefused, "KAFKA_GROUP_MEMBERS") as refused,
        ):
            requests.commit_group(group, {(name, 0): 1})
        assert "ACL" not in str(refused.value)
        requests.commit_group(group, {(name, 0): 1})
    finally:
        requests.close()


# ---- commits from a process of their own, while the broker dies and comes back -------------------

COMMITS = """
import sys
from exactum.errors import Unavailable
from exactum.kafka.requests import BrokerRequests, Patience
from exactum.local import LocalKafka
requests = BrokerRequests({"bootstrap.servers": sys.argv[1]}, "here", Patience.within(2000))
offset = 0
while sys.stdin.readline():
    offset += 1
    while True:
        try:
            requests.commit_group("mirror", {("t", 0): offset})
            break
        except Unavailable:
            print("refused", flush=True)
    print(offset, flush=True)
"""
KILLS = 3


@pytest.mark.deep
def test_the_coordinator_dies_in_the_middle_of_commits() -> None:
    """The process lives (librdkafka's admin client ends it), waits no longer than it says, and
    goes on committing.
    """
    with LocalKafka() as kafka:
        kafka.create_topic("t", partitions=1)
        command = [sys.executable, "-c", COMMITS, kafka.bootstrap_servers]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def ask() -> None:
                process.stdin.write("commit\n")
                process.stdin.flush()

            def answer() -> str:
                line = process.stdout.readline()
                assert line, f"the process ended with {process.wait()}"
                return line.strip()

            def done() -> int:
                return int(next(said for said in iter(answer, "") if said != "refused"))

            try:
                for number in range(1, KILLS + 1):
                    ask()
                    assert done() == 2 * number - 1
                    kafka.kill()
                    ask()
                    assert answer() == "refused"
                    kafka.restart()
                    assert done() == 2 * number
            finally:
                process.stdin.close()
            assert process.wait(WAIT_MAX_S) == 0
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "mirror"})
        (cell,) = consumer.committed([TopicPartition("t", 0)], timeout=WAIT_MAX_S)
        consumer.close()
        assert cell.offset == 2 * KILLS
