"""Offsets are told of partitions that are new, and by a client that knew their leader before it
was killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.kafka.requests.listed_offsets import listed_offsets
from exactum.local import LocalKafka
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

TIMEOUT_S = WAIT_MAX_S
TOPICS = 10
PARTITIONS = 8


@pytest.mark.deep
@pytest.mark.parametrize("restarts", [1, pytest.param(3, marks=pytest.mark.deep)])
def test_while_leaders_are_not_known(restarts: int) -> None:
    with LocalKafka() as kafka:
        client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        latest = {
            (f"t{n}", p): OffsetSpec.latest() for n in range(TOPICS) for p in range(PARTITIONS)
        }
        for n in range(TOPICS):
            kafka.create_topic(f"t{n}", partitions=PARTITIONS)
        lasting = AdminClient(client)
        assert listed_offsets(lasting, latest, TIMEOUT_S, read_committed=True) == dict.fromkeys(
            latest, 0
        )
        producer = Producer({**client, "enable.idempotence": True})
        for topic, partition in latest:
            producer.produce(topic, b"x", partition=partition)
        assert producer.flush(WAIT_MAX_S) == 0
        for _ in range(restarts):
            kafka.kill()
            kafka.restart()
            for admin in (AdminClient(client), lasting):
                assert listed_offsets(
                    admin, latest, TIMEOUT_S, read_committed=True
                ) == dict.fromkeys(latest, 1)


def test_a_topic_that_is_not_there(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """It may be so new that not every broker knows of it, so it is waited for. It is not made."""
    name = topic()
    wanted = {(name, 0): OffsetSpec.latest(), ("nowhere", 0): OffsetSpec.latest()}
    answers = listed_offsets(kafka.admin(), wanted, TIMEOUT_S, read_committed=True)
    assert answers.pop((name, 0)) == 0
    assert [error.code() for error in answers.values()] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    alone = listed_offsets(
        kafka.admin(), {("nowhere", 0): OffsetSpec.latest()}, 2.0, read_committed=True
    )
    (error,) = alone.values()
    assert error.code() in (
        KafkaError._NOENT,
        KafkaError._TIMED_OUT,
    )  # the second one on a starved machine
    assert "nowhere" not in kafka.admin().list_topics(timeout=WAIT_MAX_S).topics


def test_nobody_answers(kafka: LocalKafka) -> None:
    """It takes the time that it was given, and tells why."""
    began_s = time.monotonic()
    admin = AdminClient({"bootstrap.servers": "localhost:9", "log_level": 0})
    answers = listed_offsets(
        admin,
        {("t", 0): OffsetSpec.latest(), ("u", 0): OffsetSpec.latest()},
        2.0,
        read_committed=True,
    )
    assert time.monotonic() - began_s < 20.0
    assert {error.code() for error in answers.values()} <= {
        KafkaError._NOENT,
        KafkaError._TIMED_OUT,
    }
