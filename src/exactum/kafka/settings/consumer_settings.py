"""Settings of the Java consumer, as Spark's Kafka source takes them, for a consumer of librdkafka's
that reads the same records.
"""

from __future__ import annotations

from collections.abc import Mapping

from exactum.errors import SettingRefused
from exactum.kafka.settings.java_settings import PREFIX, librdkafka_settings
from exactum.kafka.settings.security_settings import SECURITY_PREFIXES

_AS = {
    "client.id": "client.id",
    "client.rack": "client.rack",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
"""Java's name -> librdkafka's for the same."""
_ELSEWHERE = frozenset(
    {
        "bootstrap.servers",  # java_settings
        "check.crcs",  # always checked
        "client.dns.lookup",
        "isolation.level",  # as the scan has it
        "fetch.max.wait.ms",  # ours: this reader waits for nothing else meanwhile
        "max.poll.records",  # how many records Java's poll returns
        "max.poll.interval.ms",  # of a group's members
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "group.id",
        "default.api.timeout.ms",  # Spark's own requests
    }
)
"""What is set in another way, or concerns nothing that this reader does."""
QUEUE_BYTES = 64 << 20
"""What one consumer holds of what it has read ahead, over all of its partitions, about."""
_QUEUE_KBYTES_MIN = 1 << 10
QUEUE_RECORDS = 200_000
"""The same in records: each takes librdkafka some 350 bytes besides its own."""
_QUEUE_RECORDS_MIN, _QUEUE_RECORDS_MAX = 2_000, 100_000
"""Of one partition; librdkafka's own number is the larger one."""


def consumer_settings(
    options: Mapping[str, str],
    client: Mapping[str, str],
    isolation: str,
    partitions: int,
    where: str,
) -> dict[str, str]:
    """librdkafka's settings.

    Args:
        options: of Spark's source; those that begin with ``kafka.`` count.
        client: librdkafka's own, which take the place of what says how to log in.
        isolation: the scan's isolation level.
        partitions: how many one consumer reads.
        where: begins an error's message.

    Raises:
        SettingRefused: a setting has no counterpart, and this reader would read without it.
    """
    settings = librdkafka_settings(options, client, where)
    for name, value in options.items():
        java = name.lower().removeprefix(PREFIX)
        if java == name.lower() or java in _ELSEWHERE or java.startswith(SECURITY_PREFIXES):
            continue
        if java not in _AS:
            raise SettingRefused(f"librdkafka has no counterpart of {name}")
        settings[_AS[java]] = value
    each = QUEUE_BYTES // 1024 // max(1, partitions)
    records = max(_QUEUE_RECORDS_MIN, QUEUE_RECORDS // max(1, partitions))
    return {
        **settings,
        "check.crcs": "true",
        "auto.offset.reset": "error",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        # One request to a broker is under way at a time. It waits at partitions that are read to
        # their end, while the queues of others run empty; and where all are, each wait costs the
        # broker a request (docs/adr/0026).
        "fetch.queue.backoff.ms": "1",
        "fetch.wait.max.ms": "50",
        "group.id": "exactum-arrow-kafka",  # librdkafka demands one; nothing is committed to it
        "isolation.level": isolation,
        "log_level": "0",
        "queued.max.messages.kbytes": str(max(_QUEUE_KBYTES_MIN, each)),
        "queued.min.messages": str(min(_QUEUE_RECORDS_MAX, records)),
    }
