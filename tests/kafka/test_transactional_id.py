"""Names of transactions are matched exactly."""

import pytest

from exactum.errors import SettingRefused
from exactum.kafka.transaction import KafkaScope, checked_prefix
from exactum.protocol.model import Incarnation
from tests.kit.errors import raised

MINE = KafkaScope("q-1", "kafka:out", "app")
RUN = Incarnation("0123456789abcdef")
WORKER = "fedcba9876543210"


def test_an_id_is_recognised_by_the_scope_that_made_it() -> None:
    """Round trip: the incarnation can be read off the id."""
    assert MINE.incarnation_of(MINE.transactional_id(RUN, WORKER, 12)) == RUN


@pytest.mark.parametrize(
    "other",
    [
        KafkaScope("q-1", "kafka:out", "app-eu").transactional_id(RUN, WORKER, 0),
        KafkaScope("q-1", "kafka:out", "ap").transactional_id(RUN, WORKER, 0),
        KafkaScope("q-10", "kafka:out", "app").transactional_id(RUN, WORKER, 0),
        KafkaScope("q-1", "kafka:out#2", "app").transactional_id(RUN, WORKER, 0),
        KafkaScope("kafka:out", "x", "app/q-1").transactional_id(RUN, WORKER, 0),
        "app/q-1/kafka:out/0",
        "app/q-1/kafka:out/0123456789abcdef/fedcba9876543210/x",
        "app/q-1/kafka:out/0123456789abcdef/fedcba9876543210/1\n",
        "app/q-1/kafka:out/0123456789abcdef/fedcba9876543210/1/more",
        "app/q-1/kafka:out-2/0123456789abcdef/fedcba9876543210/1",
        "app/q/q-1/kafka:out/0123456789abcdef/fedcba9876543210/1",
        "xapp/q-1/kafka:out/0123456789abcdef/fedcba9876543210/1",
        "APP/q-1/kafka:out/0123456789abcdef/fedcba9876543210/1",
        "app-eu-0-1",
        "app/q-1",
        "app",
    ],
)
def test_what_only_begins_alike_is_not_ours(other: str) -> None:
    """Flink matches by startsWith and so can abort another application's transactions. (On a broker:
    SinkContract, which names queries and sinks alike.)
    """
    assert MINE.incarnation_of(other) is None


def test_a_prefix_with_pattern_signs_matches_itself_only() -> None:
    """Dots in a prefix are dots."""
    dotted = KafkaScope("q", "kafka:*", "a.b")
    assert (
        dotted.incarnation_of(KafkaScope("q", "kafka:*", "axb").transactional_id(RUN, WORKER, 0))
        is None
    )
    assert dotted.incarnation_of(dotted.transactional_id(RUN, WORKER, 0)) == RUN


@pytest.mark.parametrize("prefix", ["", "a b", "a/", "ä", "x" * 201, "a\n"])
def test_a_prefix_that_cannot_stand_in_an_acl_is_refused(prefix: str) -> None:
    """Found when the sink is made, not when the first transaction is opened."""
    with raised(SettingRefused, "KAFKA_ARGUMENT", f"transactional_id_prefix={prefix!r}"):
        checked_prefix(prefix, "KafkaSink()")
