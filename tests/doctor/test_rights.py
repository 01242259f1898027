"""Each right of the documented tables taken away, on a real broker that denies what no ACL allows;
and credentials that are wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.doctor.diagnosis import Diagnosis, diagnosed
from tests.kit.security.rights import SECURED, Right, add_users, documented
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.waiting import await_true

pytestmark = SECURED

WAIT_S = 30.0
SOURCE, TARGET, GROUP = "guarded-in", "guarded-out", "billing"
SINK = documented(
    "kafka.md",
    {
        "output topic": ("topic", TARGET),
        "transactional id": ("transactional_id", ""),
        "cluster": ("cluster", "kafka-cluster"),
    },
)
QUERY = documented(
    "source.md",
    {
        "input topic": ("topic", SOURCE),
        "consumer group": ("group", GROUP),
        "transactional id": ("transactional_id", "upstream"),
    },
)


def named(kind: str, name: str = "", operation: str = "") -> list[Right]:
    return [
        right
        for right in (*SINK, *QUERY)
        if right.kind == kind
        and (not name or right.name == name)
        and (not operation or right.operation == operation)
    ]


LACKS: dict[str, list[Right]] = {
    "full": [],
    "no-writes": [
        *named("topic", TARGET, "WRITE"),
        *named("transactional_id", operation="WRITE"),
        *named("topic", SOURCE, "READ"),
    ],
    "no-reads": [*named("topic", TARGET, "READ"), *named("group")],
    "unseen": [*named("topic", TARGET), *named("topic", SOURCE), *named("transactional_id")],
    "no-settings": [*named("topic", TARGET, "DESCRIBE_CONFIGS"), *named("cluster")],
}
"""Users, and the documented rights that each has not."""
TOLD = {
    "no-writes": [
        f"{SOURCE} (input): READ on it is not granted",
        f"KafkaSink('{TARGET}'): [KAFKA_ACCESS] KafkaSink('{TARGET}'): the user may not write",
        "WRITE on transactional ids that begin with exactum/ is not granted",
    ],
    "no-reads": [
        f"group {GROUP}: READ on it is not granted",
        f"KafkaSink('{TARGET}'): [KAFKA_ACCESS]",
    ],
    "unseen": [
        f"{SOURCE} (input): It does not exist, or the user lacks DESCRIBE",
        "or the user lacks DESCRIBE on it. Create it first",
        "needs DESCRIBE on the transactional id",
    ],
    "no-settings": [],
}
"""The errors, and no others."""
WARNED = {
    "no-settings": [
        f"{TARGET} (output): Its settings may not be read",
    ]
}


@pytest.fixture(scope="module")
def secure(secured_kafka: KafkaCluster) -> KafkaCluster:
    cluster = secured_kafka
    cluster.create_topic(SOURCE, partitions=1)
    cluster.create_topic(TARGET, partitions=1)
    every = (*SINK, *QUERY)
    add_users(cluster, {u: [r for r in every if r not in lacks] for u, lacks in LACKS.items()})
    return cluster


@pytest.fixture
def look(secure: KafkaCluster, tmp_path: Path) -> Callable[..., Diagnosis]:
    """By a user: the source's settings in a file, the sink's in its own."""

    def run(user: str, password: str | None = None) -> Diagnosis:
        settings = secure.client_settings(user, password)
        file = tmp_path / "client.properties"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        file.write_text(
            f"bootstrap.servers={secure.bootstrap_servers}\n"
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={login} username="{user}" '
            f'password="{settings["sasl.password"]}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={settings['ssl.ca.location']}\n"
        )
        sink = (
            f"exactum.KafkaSink({TARGET!r}, bootstrap_servers={secure.bootstrap_servers!r}, "
            f"producer={settings!r})"
        )
        options = ("--command-config", str(file), "--topic", SOURCE, "--group", GROUP)
        return diagnosed(*options, sinks=sink, folder=tmp_path)

    return run


def test_documented_rights_are_enough_and_nothing_is_left(
    secure: KafkaCluster, look: Callable[..., Diagnosis]
) -> None:
    """What the doctor asks for needs no right that the query does not need. Topics and groups are
    those of before; nobody else uses this broker meanwhile.
    """
    # A client that is dropped before the answer has come takes the answer with it.
    admin = secure.admin()

    def there() -> tuple[set[str], set[str]]:
        listed = lambda: admin.list_consumer_groups(request_timeout=WAIT_S / 2).result(WAIT_S)  # noqa: E731
        await_true(lambda: not listed().errors, "a fresh broker's coordinator has loaded")
        topics = {name for name in admin.list_topics(timeout=WAIT_S).topics if name[:2] != "__"}
        return topics, {each.group_id for each in listed().valid}

    before = there()
    found = look("full")
    assert there() == before
    assert found.all_is_well(), found.output
    assert found.has("ok", "KafkaSink", "opened and ended under exactum/")
    assert found.has("ok", f"group {GROUP}", "can be read and committed")


@pytest.mark.parametrize("user", sorted(TOLD))
def test_a_right_that_is_missing_is_named(look: Callable[..., Diagnosis], user: str) -> None:
    found = look(user)
    errors = found.told("error")
    assert len(errors) == len(TOLD[user]), errors
    for error, text in zip(errors, TOLD[user], strict=True):
        assert text in error
    assert not found.told("unknown")
    for text in WARNED.get(user, ()):
        assert found.has("warning", text)


def test_a_wrong_password_is_told_at_once_and_never_shown(
    look: Callable[..., Diagnosis],
) -> None:
    began_s = time.monotonic()
    found = look("full", "guessed-staple")
    assert found.status == 1
    assert found.has("error", "Kafka", "refused the credentials")
    assert "guessed-staple" not in found.output
    assert time.monotonic() - began_s < WAIT_S
