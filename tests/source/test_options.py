"""What ``read_kafka`` makes of its arguments and options; what cannot be is refused at the call, with
a code. No broker: what is read is tested with one. (Any argument of any kind: tests/abuse.)
"""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import librdkafka_settings
from exactum.spark.source import positions
from exactum.spark.source.options import further_options, subscription
from exactum.spark.write.failure import said_in
from tests.kit.errors import raised

COUNTS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition")
REFUSED: list[dict[str, Any]] = [
    *({name: value} for name in COUNTS for value in (0, -5, "ten", True, 1.5, "", None)),
    *({name: 1} for name in ("includeHeaders", "failOnDataLoss", "failOnLoop")),
    *({name: "x"} for name in ("startingOffsets", "SUBSCRIBE", "kafka.bootstrap.servers")),
    {"endingOffsets": "latest"},
    {"FAILONLOOP": "no"},
    {"kafka.isolation.level": "READ_COMMITTED"},
    {"kafka.enable.auto.commit": False},
    {"kafka.auto.offset.reset": "earliest"},
    {"kafka.key.deserializer": "x"},
    {"kafka.interceptor.classes": "x"},
    {"maxOffsetPerTrigger": 10},
    {"max_offsets_per_trigger": 10},
    {"includeHeader": True},
    {"failOnDataloss2": True},
    {"minPartition": 2},
]
ARGUMENTS: list[dict[str, Any]] = [
    *({"commit_offsets": value, "group_id": "g"} for value in ("no", 1)),
    {"topics": re.compile(r"(?P<a>x)(?P=a)")},
    {"spark": "local[2]"},
    {"spark": None},
]


@pytest.mark.parametrize(
    ("topics", "option"),
    [
        ("orders", {"subscribe": "orders"}),
        ("a, b", {"subscribe": "a,b"}),
        (["a", "b"], {"subscribe": "a,b"}),
        (re.compile("a-.*"), {"subscribePattern": "a-.*"}),
        ({"a": [0, 2]}, {"assign": '{"a": [0, 2]}'}),
    ],
)
def test_topics(topics: Any, option: dict[str, str]) -> None:
    """A name, several, a pattern or an assignment, each as Spark's own option."""
    assert subscription(topics) == option


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        *((nothing, "topics=") for nothing in ("", [], [""])),
        *(
            (nothing, "[0, 1]")
            for nothing in ({}, {"a": []}, {"a": "01"}, {"a": [-1]}, {"a": [True]})
        ),
        # Flags stand beside a pattern's text, which is all that Spark is given.
        (re.compile("orders-.*", re.IGNORECASE), "(?i)orders"),
        (re.compile(b"orders-.*"), "(?i)orders"),
        # A pattern as text was looked for as a topic, which is tried again for ever.
        *((text, "re.compile") for text in ("orders-.*", ["orders", "a b"], "orders/eu")),
    ],
    ids=str,
)
def test_topics_that_name_nothing(topics: Any, said: str) -> None:
    """Refused before Spark is asked, which would know a part of them."""
    with raised(SettingRefused, "SOURCE_ARGUMENT", said):
        subscription(topics)


def test_defaults_hold_the_guarantee() -> None:
    """Committed records only, no silent loss, no half second for nothing, no questions after every
    500 records or megabyte; further options pass through with Spark's names.
    """
    assert further_options({"maxOffsetsPerTrigger": 10, "includeHeaders": True}) == {
        "maxOffsetsPerTrigger": "10",
        "includeHeaders": "true",
        "kafka.isolation.level": "read_committed",
        "failOnDataLoss": "true",
        "kafka.fetch.max.wait.ms": "0",
        "kafka.max.poll.records": "10000",
        "kafka.max.partition.fetch.bytes": "2097152",
    }
    assert positions.checked_start(None, None) == "earliest"
    assert positions.checked_start(None, "billing") == "group"


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    """What has an argument of its own, what streams do not have, and what is unknown or a slip."""
    with pytest.raises(SettingRefused) as caught:
        further_options(options)
    assert caught.value.code == "SOURCE_ARGUMENT"


@pytest.mark.parametrize(
    "options",
    [
        {"maxOffsetsPerTrigger": "10", "MINPARTITIONS": 4, "maxTriggerDelay": "5m"},
        {"includeheaders": "True", "failOnLoop": False, "fetchOffset.numRetries": 0},
        {"kafka.group.id": "g", "kafka.max.poll.records": 5, "rate": 5, "myOwnName": "x"},
        {"KAFKA.FETCH.MAX.WAIT.MS": 500},
    ],
    ids=str,
)
def test_options_that_can_be(options: dict[str, Any]) -> None:
    """The user's spelling wins over a default of ours."""
    chosen = further_options(options)
    assert options.keys() <= chosen.keys()
    assert len({name.lower() for name in chosen}) == len(chosen)


@pytest.mark.parametrize(
    "options", [{"failondataloss": False}, {"kafka.isolation.level": "read_uncommitted"}]
)
def test_options_that_are_warned_about(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Allowed when they are asked for, with a warning."""
    with caplog.at_level(logging.WARNING, "exactum"):
        assert options.keys() <= further_options(options).keys()
    assert len(caplog.records) == 1


@pytest.mark.spark
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_arguments_that_cannot_be(spark: SparkSession, arguments: dict[str, Any]) -> None:
    given = {"spark": spark, "topics": "t", "bootstrap_servers": "localhost:1", **arguments}
    with pytest.raises(SettingRefused) as caught:
        exactum.read_kafka(**given)
    assert caught.value.code == "SOURCE_ARGUMENT"


def test_a_refused_start_is_the_last_line() -> None:
    """Spark shows it in the middle of an assertion, as the name of a topic."""
    refusal = (
        "[SOURCE_START] exactum refuses to start t-0 at 8 (given): it has the offsets 0 to 5; "
        "choose another start="
    )
    spoken = f"assertion failed: If startingOffsets ...\nSpecified: Set({refusal}-0)\n\tat x"
    found = said_in(spoken)
    assert isinstance(found, SettingRefused) and str(found) == refusal


# ---- the Java client's settings in librdkafka's words --------------------------------------------

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b\\"c";'
SERVERS = {"kafka.bootstrap.servers": "x:1"}


@pytest.mark.parametrize(
    ("java", "translated"),
    [
        (
            {
                "subscribe": "t",
                "kafka.fetch.max.bytes": "1",
                "kafka.isolation.level": "read_committed",
            },
            {},
        ),
        (
            {
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": SCRAM,
            },
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "a",
                "sasl.password": 'b"c',
            },
        ),
        (
            {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "ca.pem"},
            {"ssl.ca.location": "ca.pem"},
        ),
        (
            {
                "kafka.ssl.keystore.type": "pem",
                "kafka.ssl.keystore.location": "me.pem",
                "kafka.ssl.key.password": "p",
            },
            {
                "ssl.certificate.location": "me.pem",
                "ssl.key.location": "me.pem",
                "ssl.key.password": "p",
            },
        ),
        (
            {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": "text"},
            {"ssl.ca.pem": "text"},
        ),
        (
            {"kafka.ssl.endpoint.identification.algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
    ],
)
def test_translated(java: dict[str, str], translated: dict[str, str]) -> None:
    """What both clients have a word for means the same to both; what is no matter of connecting
    is left out.
    """
    assert librdkafka_settings({**SERVERS, **java}, {}, "here") == {
        "bootstrap.servers": "x:1",
        **translated,
    }


@pytest.mark.parametrize(
    "java",
    [
        {"kafka.ssl.truststore.location": "ca.jks", "kafka.ssl.truststore.password": "hidden"},
        {"kafka.ssl.keystore.location": "me.jks", "kafka.ssl.keystore.type": "PKCS12"},
        {
            "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required "
            "useTicketCache=true;"
        },
        {"kafka.sasl.jaas.config": SCRAM.replace("password", "secret")},
        {"kafka.sasl.login.callback.handler.class": "a.B"},
    ],
)
def test_for_the_jvm_only(java: dict[str, str]) -> None:
    """Refused by name, without its value, saying what to give; with client= it is no matter."""
    with raised(SettingRefused, "KAFKA_SETTING", next(iter(java)), "client=") as refused:
        librdkafka_settings({**SERVERS, **java}, {}, "here")
    assert not any(value in str(refused.value) for value in java.values())
    own = {"ssl.ca.location": "ca.pem"}
    assert librdkafka_settings({**SERVERS, **java}, own, "here") == {
        "bootstrap.servers": "x:1",
        **own,
    }
