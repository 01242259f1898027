"""The rights and credentials of a control stream's reader on a real SASL_SSL broker that denies
what no ACL allows.
"""

from __future__ import annotations

import gc
import time
from contextlib import closing

import pytest

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.connection_settings import mismatch
from exactum.kafka.requests import BrokerRequests, Patience
from exactum.kafka.topic_reader import TopicReader
from exactum.local import LocalKafka
from tests.kit.errors import raised
from tests.kit.kafka.broker import producer_to
from tests.kit.security.rights import SECURED, Right, add_users, documented, refused, revoke
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.waiting import WAIT_MAX_S

pytestmark = SECURED

TOPIC = "guarded-rules"

RIGHTS = documented("control.md", {"control topic": ("topic", TOPIC)})
USERS = {"full": RIGHTS, "sees": [Right("topic", TOPIC, False, "DESCRIBE")], "stranger": []}
"""``full`` has every documented right, ``sees`` DESCRIBE alone, which READ brings along."""


@pytest.fixture(scope="module")
def secure(secured_kafka: KafkaCluster) -> KafkaCluster:
    cluster = secured_kafka
    cluster.create_topic(TOPIC, partitions=1)
    add_users(cluster, USERS)
    producer = producer_to(cluster.bootstrap_servers, cluster.client_settings("admin"))
    producer.produce(TOPIC, b"1", b"rule")
    assert producer.flush(WAIT_MAX_S) == 0
    return cluster


def read(cluster: KafkaCluster, user: str, **changed: str) -> list[bytes | None]:
    """All that a new reader finds, up to the end."""
    settings = cluster.client_settings(user) | {
        name.replace("_", "."): value for name, value in changed.items()
    }
    with closing(TopicReader(TOPIC, cluster.bootstrap_servers, tuple(settings.items()))) as reader:
        return [record.value for record in reader.read_to(reader.end_offsets())]


def test_documented_rights_are_enough(secure: KafkaCluster) -> None:
    """READ on the topic, and none on a group."""
    assert read(secure, "full") == [b"1"]
    assert {(right.kind, right.operation) for right in RIGHTS} == {("topic", "READ")}


def test_a_topic_that_may_not_be_seen_is_named(secure: KafkaCluster) -> None:
    """No right at all: to this user it does not exist, and the words say that a right may be
    missing.
    """
    with refused("KAFKA_ACCESS", TOPIC, "ACLs"):
        read(secure, "stranger")


def test_a_topic_that_may_not_be_read_is_named(secure: KafkaCluster) -> None:
    """DESCRIBE alone: no other start mends this, so it is not Unavailable."""
    with refused("KAFKA_ACCESS", TOPIC, "READ"):
        read(secure, "sees")


def test_a_right_that_is_taken_away_is_named(secure: KafkaCluster) -> None:
    """In the middle of a run."""
    secure.create_topic("taken", partitions=1)
    secure.grant("full", "topic", "taken", "READ")
    settings = tuple(secure.client_settings("full").items())
    with closing(TopicReader("taken", secure.bootstrap_servers, settings)) as reader:
        deadline_s = time.monotonic() + WAIT_MAX_S
        while True:
            try:
                assert reader.read_to(reader.end_offsets()) == []
                break
            except SettingRefused:  # the broker does not know the right yet
                assert time.monotonic() < deadline_s
        revoke(secure, "full", "taken")
        with refused("KAFKA_ACCESS", "taken", "ACLs"):
            while time.monotonic() < deadline_s:
                reader.end_offsets()


PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
NOBODY = {"sasl.mechanism": "PLAIN", "sasl.username": "x", "sasl.password": "y"}


def test_what_a_listener_is_told_apart_from_what_was_asked(
    secure: KafkaCluster, kafka: LocalKafka
) -> None:
    """Also from a broker that does not answer, of which nothing is said."""
    for cluster, truth in ((secure, "SASL_SSL"), (kafka, "PLAINTEXT")):
        for asked in PROTOCOLS:
            settings = {
                "bootstrap.servers": f"127.0.0.1:1,{cluster.bootstrap_servers}",
                "security.protocol": asked.lower(),
            }
            found = mismatch(settings, "here")
            assert (found is None) == (asked == truth)
            assert found is None or f"is one of {truth}" in str(found)
    assert mismatch({"bootstrap.servers": "127.0.0.1:1"}, "here") is None


def ask(servers: str, settings: dict[str, str]) -> None:
    own = {"bootstrap.servers": servers, **settings}
    with closing(BrokerRequests(own, "here", Patience.within(1_000))) as requests:
        requests.topics([TOPIC], all_visible=True)


@pytest.mark.deep
def test_a_wrong_security_protocol_is_a_setting(secure: KafkaCluster, kafka: LocalKafka) -> None:
    """It was Unavailable, which is tried again for ever."""
    trust = {"ssl.ca.location": secure.client_settings("full")["ssl.ca.location"]}
    for servers, settings in (
        (secure.bootstrap_servers, {}),
        (secure.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT", **NOBODY}),
        (secure.bootstrap_servers, {"security.protocol": "SSL", **trust}),
        (kafka.bootstrap_servers, {"security.protocol": "SSL"}),
        (kafka.bootstrap_servers, {"security.protocol": "SASL_PLAINTEXT", **NOBODY}),
    ):
        with pytest.raises(SettingRefused) as caught:
            ask(servers, settings)
        assert caught.value.code in ("KAFKA_SETTING", "KAFKA_LOGIN")
    with pytest.raises(Unavailable):
        ask("127.0.0.1:1", {})
    with raised(SettingRefused, "KAFKA_SETTING", "sasl"):
        ask(secure.bootstrap_servers, {"security.protocol": "SASL_SSL", **trust})
    gc.collect()  # here and not in another module's test
