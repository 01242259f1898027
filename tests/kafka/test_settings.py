"""One set of settings for both Kafka clients."""

from contextlib import closing
from typing import Any

import pytest

import exactum
from exactum.errors import SettingRefused
from exactum.kafka.connection_settings import admin_settings, checked_servers
from exactum.kafka.settings import OWNED, checked_producer, with_sizes
from exactum.kafka.sink import KafkaSink
from exactum.local import LocalKafka
from tests.kit.errors import raised
from tests.kit.python import python


def test_security_settings_mean_the_same_to_both_clients() -> None:
    """The user writes librdkafka's names once."""
    pairs = checked_producer(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": "secret",
            "ssl.ca.location": "/ca.pem",
            "compression.type": "zstd",
            "socket.keepalive.enable": True,
        },
        "KafkaSink",
    )
    assert admin_settings(dict(pairs), "KafkaSink") == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "app",
        "sasl_plain_password": "secret",
        "ssl_cafile": "/ca.pem",
    }
    assert ("socket.keepalive.enable", "true") in pairs


DRIVERS = "sasl.mechanism", "ssl.ca.location"
"""Of what the driver's own client has a word for: a refusal lists it."""


@pytest.mark.parametrize(
    ("producer", "facts"),
    [
        ({"compresion.type": "zstd"}, ["'compresion.type'", "No such configuration property"]),
        ({"key.serializer": "x"}, ["'key.serializer'", "No such configuration property"]),
        ({"compression.type": "zstdd"}, ["librdkafka", "'compression.type'", "zstdd"]),
        ({"batch.size": 0}, ["librdkafka", "'batch.size'", "1..2147483647"]),
        ({"log_level": "loud"}, ["librdkafka", "'log_level'"]),
        ({"security.protocol": "tls"}, ["librdkafka", "'security.protocol'"]),
        ({"max.in.flight": 10}, ["librdkafka", "`max.in.flight"]),
        ({"linger.ms": 600_000}, ["librdkafka", "`linger.ms`"]),
        ({"retries": 0}, ["librdkafka", "`retries`"]),
        ({1: "x"}, [" 1 ", " str;"]),
        ({"client.id": "a\0b"}, ["'client.id'", "NUL"]),  # C would read it up to there
        ({"client.id\0x": "a"}, ["NUL"]),
        ({"client.id": "\ud800"}, ["'client.id'", "surrogate"]),
        (["linger.ms"], ["producer", "dict"]),
        # Callbacks and objects do not reach the executors.
        ({"error_cb": print}, ["'error_cb'", f" {type(print).__name__};"]),
        # The guarantee rests on these: never overridden in silence, in either direction.
        *(({name: "1"}, [repr(name), OWNED[name]]) for name in sorted(OWNED)),
        # Better than a driver that connects in another way than the tasks.
        ({"sasl.oauthbearer.config": "x"}, ["'sasl.oauthbearer.config'", *DRIVERS]),
        ({"ssl.cipher.suites": "x"}, ["'ssl.cipher.suites'", *DRIVERS]),
        ({"security.unknown": "x"}, ["'security.unknown'", *DRIVERS]),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_the_sink_is_made(
    producer: Any, facts: list[str]
) -> None:
    """Not in a task: with its name and the reason, librdkafka's where it is the one that does not take
    it. Nothing is connected to.
    """
    with raised(SettingRefused, "KAFKA_SETTING", "KafkaSink('t')", *facts) as refused:
        KafkaSink("t", bootstrap_servers="h:1", producer=producer)
    assert not str(refused.value).endswith("..")  # librdkafka's reason may have a point of its own


@pytest.mark.parametrize("timeout_ms", ["60000", True, 10])
def test_a_timeout_that_is_none_is_refused(timeout_ms: Any) -> None:
    """By name, before it fails somewhere else."""
    given = f"transaction_timeout_ms={timeout_ms!r}"
    with raised(SettingRefused, "KAFKA_TIMEOUT", given, 1000):
        KafkaSink("t", bootstrap_servers="h:1", transaction_timeout_ms=timeout_ms)


TRIED_OFTEN = """
import os
from exactum.kafka.sink import KafkaSink
before = set(os.listdir("/proc/self/task"))
settings = {"group.id": "g", "ssl.ca.location": "/nowhere", "security.protocol": "ssl", "debug": "all"}
for _ in range(20):
    KafkaSink("t", bootstrap_servers="h:1", producer=settings)
assert set(os.listdir("/proc/self/task")) <= before
"""


def test_settings_are_tried_without_a_trace() -> None:
    """No line on the terminal, no thread, and no file of a certificate is looked for. In a process
    of its own: other tests leave threads that may start more.
    """
    tried = python(TRIED_OFTEN)
    assert (tried.stdout, tried.stderr) == ("", "")


@pytest.mark.parametrize("name", ["batch.size", "message.max.bytes", "queue.buffering.max.kbytes"])
def test_a_number_as_c_writes_it_is_refused(name: str) -> None:
    """librdkafka would take it, and exactum counts by it as well."""
    pairs = checked_producer({name: "0x100000"}, "KafkaSink")
    with raised(SettingRefused, "KAFKA_SETTING", repr(name), "'0x100000'", 1000000):
        with_sizes(pairs, True, None, 104_857_600)


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("h:1", "h:1"),
        (" h:1 , g.example:2,", "h:1,g.example:2"),
        ("PLAINTEXT://h:1,SASL_SSL://g:2", "h:1,g:2"),
        ("h_1:65535", "h_1:65535"),
        ("[::1]:1,::1:2,[fe80::1%eth0]:3", "[::1]:1,[::1]:2,[fe80::1%eth0]:3"),
    ],
)
def test_addresses_are_taken_as_kafkas_own_clients_take_them(given: str, taken: str) -> None:
    assert checked_servers(given, "here") == taken
    assert exactum.control_stream("t", bootstrap_servers=given).bootstrap_servers == taken
    assert KafkaSink("t", bootstrap_servers=given).client_settings["bootstrap.servers"] == taken


@pytest.mark.broker
def test_an_address_with_a_scheme_connects(kafka: LocalKafka) -> None:
    sink = KafkaSink("t", bootstrap_servers=f"PLAINTEXT://{kafka.bootstrap_servers}")
    with closing(sink.connect()) as requests:
        assert requests.cluster_id()


@pytest.mark.parametrize(
    "given",
    [
        *("", " ", ",", None, 9092, ["h:1"], "h", "h:", ":1", "h:0", "h:-1", "h:65536", "h:x"),
        *("h:1;g:2", "h:1 g:2", "a host:1", "a..b:1", f"{'x' * 64}.example:1", "h:1/path", "h\0:1"),
        *("h:1,g", "http://", "[::1:9", "ж:1", "\ud800:1"),
    ],
)
def test_addresses_that_can_be_none_are_refused(given: Any) -> None:
    """At once, and for good: not by a client that takes them for a broker that is away."""
    for make in (KafkaSink, exactum.control_stream):
        with raised(SettingRefused, "KAFKA_ADDRESS", "bootstrap_servers"):
            make("t", bootstrap_servers=given)
