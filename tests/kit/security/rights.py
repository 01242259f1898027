"""The rights that a page of docs/ grants: read from its table, so that it cannot differ from
what is tested. Users who have some of them, and how one is taken again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from exactum.errors import SettingRefused
from tests.kit.environment import ROOT
from tests.kit.errors import raised
from tests.kit.servers.kafka_cluster import KafkaCluster
from tests.kit.waiting import WAIT_MAX_S, await_true

PAGE = ROOT / "docs" / "reference" / "rights.md"
SECTIONS = {
    "kafka.md": "The Kafka sink",
    "source.md": "The Kafka source",
    "control.md": "A control stream",
}
"""Where the page has the rights that a guide speaks of."""
SECURED = [
    pytest.mark.broker,
    # kafka-python leaves the sockets of failed handshakes to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]
"""Marks of tests on a broker whose clients log in."""
SECRET = "correct-horse"
"""What every user's password begins with."""
HEAD = "| resource | pattern | operations | for |"


@dataclass(frozen=True)
class Right:
    """One operation on one resource, as the table grants it."""

    kind: str
    name: str
    prefixed: bool
    operation: str

    def __str__(self) -> str:
        return f"{self.operation}-{self.kind}"


def documented(guide: str, named: Mapping[str, tuple[str, str]]) -> list[Right]:
    """The table of what docs/``guide`` is about; ``named``: kind and name of what it calls by a
    resource's name.

    A prefix that the table spells out counts instead of the name. A row that nobody knows is an
    error.
    """
    section = PAGE.read_text().split(f"## {SECTIONS[guide]}\n")[1]
    table = section.split(HEAD)[1].split("\n\n")[0]
    rights = []
    for line in table.strip().splitlines()[1:]:
        resource, pattern, operations, _ = (cell.strip() for cell in line.strip("|").split("|"))
        kind, name = named[resource]
        prefix = re.match(r"prefixed, `([^`]+)`", pattern)
        rights += [
            Right(kind, prefix[1] if prefix else name, bool(prefix), o)
            for o in operations.split(", ")
        ]
    return rights


EVERY_ACL = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
    *(AclOperation.ANY, AclPermissionType.ANY),
)


def forget_all(cluster: KafkaCluster) -> None:
    """All rights and topics."""
    admin = cluster.admin()  # what it is asked is dropped with it
    futures = [*admin.delete_acls([EVERY_ACL]).values()]
    topics = [name for name in admin.list_topics(timeout=WAIT_MAX_S).topics if name[0] != "_"]
    futures += admin.delete_topics(topics).values() if topics else ()
    for future in futures:
        future.result(WAIT_MAX_S)


def revoke(cluster: KafkaCluster, user: str, topic: str, operation: str = "ANY") -> None:
    """Take the right on the topic, by default all, from the user, who must have one."""
    whose = AclBindingFilter(
        *(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", None),
        *(AclOperation[operation], AclPermissionType.ANY),
    )
    admin = cluster.admin()  # what it is asked is dropped with it
    for future in admin.delete_acls([whose]).values():
        assert len(future.result(WAIT_MAX_S)) >= 1


def password(user: str) -> str:
    return f"{SECRET}-{user}"


def add_users(cluster: KafkaCluster, users: Mapping[str, Sequence[Right]]) -> None:
    """Each has just these rights. Returns when the broker enforces them."""
    for user, rights in users.items():
        cluster.add_user(user, password(user))
        for kind, name, prefixed in dict.fromkeys((r.kind, r.name, r.prefixed) for r in rights):
            own = [r for r in rights if (r.kind, r.name, r.prefixed) == (kind, name, prefixed)]
            cluster.grant(user, kind, name, *(r.operation for r in own), prefixed=prefixed)
    admin, granted = cluster.admin(), sum(map(len, users.values()))
    await_true(
        lambda: len(admin.describe_acls(EVERY_ACL).result(WAIT_MAX_S)) >= granted,
        "the broker knows the rights",
    )


@contextmanager
def refused(*facts: object) -> Iterator[pytest.ExceptionInfo[SettingRefused]]:
    """SettingRefused, with its code and what to change; no password in it. What was asked again
    until its time was over would be Unavailable.
    """
    with raised(SettingRefused, *facts) as caught:
        yield caught
    assert SECRET not in str(caught.value)
