"""Offsets are told of partitions that are new, and by a client that knew their leader before it
was killed.
"""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from confluent_kafka import Producer

from exactum.kafka.requests import LATEST, BrokerRequests, Patience
from exactum.local import LocalKafka
from tests.kit.kafka.broker import Broker
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

TOPICS = 10
PARTITIONS = 8
RESTARTS = 3


def requests(servers: str) -> BrokerRequests:
    patience = Patience.within(int(WAIT_MAX_S * 1000))
    return BrokerRequests({"bootstrap.servers": servers}, "here", patience)


@pytest.mark.deep
def test_while_leaders_are_not_known() -> None:
    with LocalKafka() as kafka, closing(requests(kafka.bootstrap_servers)) as lasting:
        client = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        wanted = [(f"t{n}", p) for n in range(TOPICS) for p in range(PARTITIONS)]
        for n in range(TOPICS):
            kafka.create_topic(f"t{n}", partitions=PARTITIONS)
        assert lasting.offsets(wanted, LATEST, read_committed=True) == dict.fromkeys(wanted, 0)
        producer = Producer({**client, "enable.idempotence": True})
        for topic, partition in wanted:
            producer.produce(topic, b"x", partition=partition)
        assert producer.flush(WAIT_MAX_S) == 0
        for _ in range(RESTARTS):
            kafka.kill()
            kafka.restart()
            with closing(requests(kafka.bootstrap_servers)) as fresh:
                for each in (fresh, lasting):
                    assert each.offsets(wanted, LATEST, read_committed=True) == dict.fromkeys(
                        wanted, 1
                    )


def test_a_topic_that_is_not_there(broker: Broker) -> None:
    """It may be so new that not every broker knows of it, so it is waited for. It is not made."""
    name = broker.topic()
    with closing(requests(broker.servers)) as asked:
        wanted = [(name, 0), (name, 99), ("nowhere", 0)]
        assert asked.offsets(wanted, LATEST, read_committed=True) == {(name, 0): 0}
        assert "nowhere" not in asked.topic_names()


def test_a_leader_that_has_not_heard_of_its_partition_yet(broker: Broker) -> None:
    """As one that has just started: it is asked again for its producers, and no right is to
    blame.
    """
    name = broker.topic("unheard", partitions=1)
    with closing(BrokerRequests({"bootstrap.servers": broker.servers}, "here")) as asked:
        known = asked.describe_producers([(name, 0)])
        broker.kafka.delete_topic(name)
        again = threading.Timer(1.0, broker.kafka.create_topic, [name], {"partitions": 1})
        again.start()
        assert asked.describe_producers([(name, 0)]) == known == {(name, 0): {}}
        again.join()
