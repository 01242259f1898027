"""The rights of the Kafka source on a real SASL_SSL broker that denies what no ACL allows, with
real queries.

The rights are read from the table in docs/reference/rights.md, so that it cannot differ from what is tested.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from exactum import events
from exactum.errors import SettingRefused
from exactum.spark.source import lag, watch
from tests.kit.errors import check_query_error
from tests.kit.kafka.broker import producer_to
from tests.kit.kafka.transactions import read_all
from tests.kit.security.rights import SECRET, SECURED, Right, add_users, documented, refused
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.source.source_stream import Stream, Topics
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = [pytest.mark.spark, *SECURED]

TOPIC, SECOND, GROUP, UPSTREAM = (
    "guarded-orders",
    "guarded-refunds",
    "billing",
    "upstream-of-orders",
)
RECORDS = 5


NAMES = {
    "input topic": ("topic", TOPIC),
    "consumer group": ("group", GROUP),
    "transactional id": ("transactional_id", UPSTREAM),
}
"""What the table's resources are called here. Of ``SECOND`` nobody has any right but whom a test
gives it.
"""
RIGHTS = documented("source.md", NAMES)


def of_kinds(*keys: tuple[str, str]) -> tuple[Right, ...]:
    return tuple(right for right in RIGHTS if (right.kind, right.operation) in keys)


TOPIC_READ, TOPIC_DESCRIBE = of_kinds(("topic", "READ")), of_kinds(("topic", "DESCRIBE"))
GROUP_READ, IDS_DESCRIBE = of_kinds(("group", "READ")), of_kinds(("transactional_id", "DESCRIBE"))
LACKING: Mapping[str, tuple[Right, ...]] = {
    "full": (),
    "reads-no-topic": TOPIC_READ,
    "describes-no-topic": TOPIC_DESCRIBE,
    "sees-no-topic": TOPIC_READ + TOPIC_DESCRIBE,
    "reads-no-group": GROUP_READ,
    "describes-no-ids": IDS_DESCRIBE,
}
"""By the name of a user the rights that it has not; of all others it has exactly these."""
WRITER, RULES, OUTPUT = "writer", "guarded-weights", "guarded-output"
OUTPUT_NAMES = {
    "output topic": ("topic", OUTPUT),
    "transactional id": ("transactional_id", ""),
    "cluster": ("cluster", "kafka-cluster"),
}
OF_RULES_AND_OUTPUT = [
    *documented("control.md", {"control topic": ("topic", RULES)}),
    *documented("kafka.md", OUTPUT_NAMES),
]


def test_every_documented_right_is_tested() -> None:
    """The table and this file know the same rights: each is taken from some user, alone."""
    assert {missing for missing in LACKING.values() if len(missing) == 1} == {
        (right,) for right in RIGHTS
    }


@pytest.fixture(scope="module")
def secure(secured_kafka: KafkaCluster) -> KafkaCluster:
    """With a user for each set of rights, and a topic with some records."""
    cluster = secured_kafka
    for name in (TOPIC, SECOND, RULES, OUTPUT):
        cluster.create_topic(name, partitions=1)
    users = {u: [r for r in RIGHTS if r not in LACKING[u]] for u in LACKING}
    add_users(cluster, {**users, WRITER: [*RIGHTS, *OF_RULES_AND_OUTPUT]})
    producer = producer_to(cluster.bootstrap_servers, cluster.client_settings("admin"))
    for name in (TOPIC, SECOND):
        for _ in range(RECORDS):
            producer.produce(name, b"x")
    producer.produce(RULES, b"10", b"weight")
    assert producer.flush(WAIT_MAX_S) == 0
    return cluster


def java(cluster: KafkaCluster, user: str) -> dict[str, str]:
    """How the Java client, and by that Spark, logs in."""
    settings = cluster.client_settings(user)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "kafka.security.protocol": settings["security.protocol"],
        "kafka.sasl.mechanism": settings["sasl.mechanism"],
        "kafka.sasl.jaas.config": f'{module} required username="{user}" '
        f'password="{settings["sasl.password"]}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": settings["ssl.ca.location"],
    }


class Source:
    """Queries as one user or another."""

    def __init__(self, spark: SparkSession, cluster: KafkaCluster, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.cluster = cluster
        self._admin = cluster.admin()  # what it is asked is dropped with it

    def stream(self, user: str, **arguments: Any) -> tuple[Stream, Any]:
        """A query of its own, and its frame."""
        folder = self._folder / f"{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        stream = Stream(self._spark, self.cluster, folder)
        topics = arguments.pop("topics", TOPIC)
        return stream, stream.read(topics, **{**java(self.cluster, user), **arguments})

    def run(self, user: str, **arguments: Any) -> tuple[list[tuple[str, int, int]], str | None]:
        """Read what is there; the rows, and the error."""
        stream, frame = self.stream(user, **arguments)
        error = stream.run(frame)
        return stream.rows(), error

    def commit(self, offset: int) -> None:
        Topics(self.cluster).commit(GROUP, TOPIC, {0: offset})

    def committed(self) -> int:
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
        (future,) = asked.values()
        return next(
            (c.offset for c in future.result(WAIT_MAX_S).topic_partitions if c.topic == TOPIC), -1
        )


@pytest.fixture
def source(spark: SparkSession, secure: KafkaCluster, tmp_path: Path) -> Source:
    return Source(spark, secure, tmp_path)


def rows(topic: str, first: int = 0) -> list[tuple[str, int, int]]:
    return [(topic, 0, offset) for offset in range(first, RECORDS)]


@pytest.mark.deep
def test_documented_rights_are_enough(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    """From the group's offsets to offsets committed to the group, with nothing in the log that
    is missed.
    """
    source.commit(2)
    with caplog.at_level(logging.WARNING, "exactum"):
        assert source.run("full", group_id=GROUP) == (rows(TOPIC, 2), None)
        await_true(lambda: source.committed() == RECORDS, "the group stands at the end")
        assert source.run("full", start=0, stop="latest") == (rows(TOPIC), None)
    assert caplog.records == []


def test_describe_comes_with_read(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    """As the docs say: without DESCRIBE of its own everything works, for READ implies it."""
    source.commit(3)
    with caplog.at_level(logging.WARNING, "exactum"):
        assert source.run("describes-no-topic", group_id=GROUP) == (rows(TOPIC, 3), None)
        await_true(lambda: source.committed() == RECORDS, "the group stands at the end")
    assert caplog.records == []


def test_a_topic_that_may_not_be_read_is_named(source: Source) -> None:
    """Met by the tasks alone, and yet one error of ours that says what is missing, not a page of
    Java.
    """
    read, error = source.run("reads-no-topic")
    assert read == []
    check_query_error(error, SettingRefused, "SOURCE_NOT_ALLOWED", TOPIC, "READ")
    assert "DAGScheduler" not in (error or ""), "nothing of Spark's own trace"


@pytest.mark.parametrize(
    "arguments", [{"start": "earliest"}, {"start": "latest"}, {"start": 0}, {"stop": "latest"}]
)
def test_a_topic_that_may_not_be_seen_is_named(
    source: Source, arguments: dict[str, object]
) -> None:
    """Refused at once, before there is a query, with every kind of start."""
    with refused(
        "KAFKA_ACCESS", "AuthorizationFailed", f"'{TOPIC}'", "DESCRIBE", "docs/reference/rights.md"
    ):
        source.stream("sees-no-topic", **arguments)


def test_a_group_that_may_not_be_read(source: Source, caplog: pytest.LogCaptureFixture) -> None:
    """Where it says where to start: refused at once. Where it is written to only: a warning, and
    the query goes on.
    """
    source.commit(1)
    with refused(
        "KAFKA_ACCESS", "AuthorizationFailed", f"'{GROUP}'", "READ", "docs/reference/rights.md"
    ):
        source.stream("reads-no-group", group_id=GROUP)
    with caplog.at_level(logging.WARNING, "exactum"):
        assert source.run("reads-no-group", group_id=GROUP, start="earliest") == (rows(TOPIC), None)
        await_true(lambda: len(caplog.records) > 0, "a warning")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert f"could not be committed to the group '{GROUP}'" in warning
    assert "The user needs READ on the group" in warning
    assert source.committed() == 1


def test_a_pattern_finds_what_may_be_seen(source: Source) -> None:
    """As the docs say: a topic that matches and that the user may not see is not there for it,
    as Kafka has it.
    """
    pattern = re.compile("guarded-.*")
    assert source.run("full", topics=pattern) == (rows(TOPIC), None)
    source.cluster.grant("full", "topic", SECOND, "READ")
    login = {
        "bootstrap.servers": source.cluster.bootstrap_servers,
        **source.cluster.client_settings("full"),
    }
    await_true(
        lambda: SECOND in Producer(login).list_topics(timeout=WAIT_MAX_S).topics,
        "the broker knows it",
    )
    assert source.run("full", topics=pattern) == (rows(TOPIC) + rows(SECOND), None)


@pytest.mark.variants(1)
@pytest.mark.parametrize("user", ["full", "describes-no-ids"])
def test_who_holds_readers_back(source: Source, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stalled transaction upstream is told of with its name, or without DESCRIBE on it by its
    producer id alone.
    """
    monkeypatch.setattr(watch, "CHECK_EVERY_S", 0.5)
    monkeypatch.setattr(lag, "STALL_AFTER_S", 0.5)
    cluster = source.cluster
    login = {"bootstrap.servers": cluster.bootstrap_servers, **cluster.client_settings("admin")}
    producer = Producer({**login, "transactional.id": UPSTREAM})
    producer.init_transactions(WAIT_MAX_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"held back")
    assert producer.flush(WAIT_MAX_S) == 0
    stream, frame = source.stream(user)
    query = stream.start(frame, processingTime="100 milliseconds")
    try:
        await_true(lambda: bool(stream.told(events.UpstreamStalled)), "the stall is told of")
    finally:
        query.stop()
        producer.abort_transaction(WAIT_MAX_S)
    (event,) = stream.told(events.UpstreamStalled)
    assert (event.topic, event.partition, event.lso_gap) == (TOPIC, 0, 1)
    assert event.producer_id is not None
    assert event.transactional_id == (UPSTREAM if user == "full" else None)


@pytest.mark.deep
def test_rules_and_output_with_credentials(source: Source) -> None:
    """Driver and executors log in. A decided epoch that Spark asks for again is not written again, and
    the password is nowhere in the checkpoint.
    """
    cluster, servers = source.cluster, source.cluster.bootstrap_servers
    login = cluster.client_settings(WRITER)
    stream, frame = source.stream(WRITER)
    rules = exactum.control_stream(RULES, bootstrap_servers=servers, value=int, consumer=login)
    weigh = udf(lambda v: str(v * rules.current()["weight"]), "string")
    sink = exactum.KafkaSink(OUTPUT, bootstrap_servers=servers, producer=login)
    once = exactum.exactly_once(sink, control=rules)
    for _ in range(2):
        writer = frame.select(weigh("offset").alias("value")).writeStream.trigger(availableNow=True)
        assert stream.end(lambda w=writer: once.start(w, checkpoint=stream.checkpoint)) is None
        forget_last_batch(stream.checkpoint)
    written = read_all(servers, OUTPUT, login=cluster.client_settings("admin"))
    assert [record.value for record in written] == [b"%d" % (10 * n) for n in range(RECORDS)]
    stored = [file for file in stream.checkpoint.rglob("*") if file.is_file()]
    assert stored and not [file for file in stored if SECRET.encode() in file.read_bytes()]
