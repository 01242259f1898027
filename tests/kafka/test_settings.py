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


@pytest.mark.parametrize(
    ("producer", "reason"),
    [
        ({"compresion.type": "zstd"}, r"setting 'compresion\.type': No such configuration prop"),
        ({"key.serializer": "x"}, r"setting 'key\.serializer': No such configuration property"),
        ({"compression.type": "zstdd"}, r"does not take the setting 'compression\.type'.*zstdd"),
        ({"batch.size": 0}, r"does not take the setting 'batch\.size'.*1\.\.2147483647\.$"),
        ({"log_level": "loud"}, r"does not take the setting 'log_level'"),
        ({"security.protocol": "tls"}, r"does not take the setting 'security\.protocol'"),
        ({"max.in.flight": 10}, r"settings together.*max\.in\.flight"),
        ({"linger.ms": 600_000}, r"settings together.*linger\.ms"),
        ({"retries": 0}, r"settings together.*retries"),
        ({1: "x"}, r"setting 1 is a str.*by a name"),
        ({"client.id": "a\0b"}, "client.id': the text has a NUL"),  # C would read it up to there
        ({"client.id\0x": "a"}, "the text has a NUL"),
        ({"client.id": "\ud800"}, "half of a surrogate pair"),
        (["linger.ms"], r"producer must be a dict"),
        # Callbacks and objects do not reach the executors.
        ({"error_cb": print}, "settings travel"),
        # The guarantee rests on these: never overridden in silence, in either direction.
        *(({name: "1"}, f"{name}' cannot be given") for name in sorted(OWNED)),
        # Better than a driver that connects in another way than the tasks.
        ({"sasl.oauthbearer.config": "x"}, "known to librdkafka only"),
        ({"ssl.cipher.suites": "x"}, "known to librdkafka only"),
        ({"security.unknown": "x"}, "known to librdkafka only"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_the_sink_is_made(
    producer: Any, reason: str
) -> None:
    """Not in a task: with its name and the reason, librdkafka's where it is the one that does not take
    it. Nothing is connected to.
    """
    with pytest.raises(SettingRefused, match=rf"KafkaSink\('t'\).*{reason}"):
        KafkaSink("t", bootstrap_servers="h:1", producer=producer)


@pytest.mark.parametrize("timeout_ms", ["60000", True, 10])
def test_a_timeout_that_is_none_is_refused(timeout_ms: Any) -> None:
    """By name, before it fails somewhere else."""
    with pytest.raises(SettingRefused, match=r"transaction_timeout_ms.*at least 1000"):
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
    with pytest.raises(SettingRefused, match=rf"{name}.*plain number"):
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
        with pytest.raises(SettingRefused, match="bootstrap_servers"):
            make("t", bootstrap_servers=given)
