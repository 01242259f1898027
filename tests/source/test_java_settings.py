"""The Java client's settings in librdkafka's words."""

from __future__ import annotations

import pytest

from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import librdkafka_settings
from tests.kit.errors import raised

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
