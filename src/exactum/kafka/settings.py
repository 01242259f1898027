"""librdkafka's settings: those of a producer as the user gives them (which are refused, exactum's
defaults, the sizes that follow from the topic), and handing them to librdkafka, which says what it
does not take; here it is said where.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress

from exactum.errors import SettingRefused
from exactum.kafka import librdkafka
from exactum.kafka.connection_settings import SECURITY_PREFIXES, admin_settings

Settings = tuple[tuple[str, str], ...]
"""librdkafka settings as sorted pairs: hashable and picklable."""

OWNED = {
    "transactional.id": "exactum names every transaction itself; use transactional_id_prefix",
    "transaction.timeout.ms": "use the sink's argument transaction_timeout_ms",
    "bootstrap.servers": "use the sink's argument bootstrap_servers",
    "metadata.broker.list": "use the sink's argument bootstrap_servers",
    "enable.idempotence": "without it a retry inside the producer doubles records",
    "acks": "anything but all can lose acknowledged records when a broker dies",
    "request.required.acks": "anything but all can lose acknowledged records when a broker dies",
    "enable.gapless.guarantee": "it makes failures fatal that a new attempt repairs",
    "delivery.report.only.error": "exactum reads delivery errors from it",
    "statistics.interval.ms": "nobody would read the statistics, and they would pile up in memory",
    "log.queue": "exactum forwards the client's log",
    "allow.auto.create.topics": "a missing topic is an error, not a new topic",
}
"""Settings that the guarantee rests on, each with the reason why it cannot be given."""

DEFAULTS = {
    # Java's default: null keys are spread, others are hashed by murmur2 (kafka-clients,
    # BuiltInPartitioner).
    "partitioner": "murmur2_random",
    # A request carries one batch; larger ones gain nothing at the broker and fit no cache
    # (bench/results).
    "batch.size": "262144",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "1000000",
    "queue.buffering.max.kbytes": "131072",
    # The coordinator query of a new producer is repeated only when the broker connection comes up.
    "reconnect.backoff.ms": "10",
    # librdkafka's 10 s would keep a task waiting long after the dead node's work has moved to
    # another one.
    "reconnect.backoff.max.ms": "1000",
    "sticky.partitioning.linger.ms": "10",
}
"""Where exactum's defaults differ from librdkafka's; the user's settings win."""

LINGER_MS = 5_000
"""Longest that a record waits for its batch to be full; the end of its task sends what is left.

Not librdkafka's 5 ms: its sending thread does not sleep while a partition has a request under way
and, behind it, a record that has waited longer than this (rdkafka_broker.c,
rd_kafka_toppar_producer_serve): with a backlog, always.
"""


RECORD_BYTES_MAX = 1_000_000
"""librdkafka's default of message.max.bytes."""
RECORD_BYTES_RANGE = (1_000, 1_000_000_000)
"""What librdkafka takes for it."""
REQUEST_HEAD_MAX = 4_096
"""More than a request has beside its records: names of the client, of the transaction and of the
topic.
"""
REQUEST_BYTES_MAX = 104_857_600
"""Kafka's default of socket.request.max.bytes."""


def number(settings: Settings, name: str) -> int:
    """The user's, else exactum's default of a setting that is a number.

    Raises:
        SettingRefused: it is written as C writes numbers, which librdkafka would take.
    """
    text = {**DEFAULTS, "message.max.bytes": str(RECORD_BYTES_MAX), **dict(settings)}[name]
    if not text.isdecimal():
        raise SettingRefused(
            "KAFKA_SETTING",
            f"The producer setting {name!r} is {text!r}. Give it as a plain number, like 1000000.",
        )
    return int(text)


def with_sizes(
    settings: Settings, has_topic: bool, batch_bytes_max: int | None, request_bytes_max: int
) -> Settings:
    """The same, so that librdkafka is in the way of no record that the topic takes, and fills no
    batch beyond it.

    ``batch_bytes_max``: the topic's; None where it is not known. Without a topic of the sink's own,
    rows are measured by the limits of theirs. ``request_bytes_max``: the broker's; it ends the
    connection of a client that sends more.
    """
    given, (least, most) = dict(settings), RECORD_BYTES_RANGE
    sizes = {
        "message.max.bytes": number(settings, "message.max.bytes"),
        "batch.size": number(settings, "batch.size"),
    }
    if "message.max.bytes" not in given and not has_topic:
        sizes["message.max.bytes"] = most
    if batch_bytes_max is not None:
        if "message.max.bytes" not in given:
            sizes["message.max.bytes"] = batch_bytes_max
        sizes["batch.size"] = max(1, min(sizes["batch.size"], batch_bytes_max))
    fits = min(most, request_bytes_max - REQUEST_HEAD_MAX)
    sizes["message.max.bytes"] = max(least, min(sizes["message.max.bytes"], fits))
    name = "queue.buffering.max.kbytes"  # one that a record does not fit in waits for ever
    sizes[name] = max(number(settings, name), -(-sizes["message.max.bytes"] // 1024))
    return tuple(sorted({**given, **{name: str(size) for name, size in sizes.items()}}.items()))


def linger_ms(settings: Mapping[str, str]) -> str:
    """The default of ``linger.ms``: librdkafka wants it shorter than the timeout of a record, or of
    a transaction.
    """
    names = ("message.timeout.ms", "delivery.timeout.ms", "transaction.timeout.ms")
    timeouts = (settings.get(name, "") for name in names)
    return str(
        min([LINGER_MS, *(int(text) // 2 for text in timeouts if text.isdigit() and int(text))])
    )


def checked_producer(producer: Mapping[str, object] | None, where: str) -> Settings:
    """The user's ``producer`` settings as text pairs.

    Raises:
        SettingRefused: as ``as_texts``; or one concerns security in a way that the driver's client
            cannot follow, or is one that librdkafka does not know or take.
    """
    if producer is not None and not isinstance(producer, Mapping):
        raise SettingRefused(
            "KAFKA_SETTING",
            f"{where}: producer must be a dict of settings, like {{'compression.type': 'zstd'}}.",
        )
    pairs = as_texts(producer or {}, OWNED, where)
    admin_settings(dict(pairs), where)
    try_out(of_producer(dict(pairs), {}), where)
    return pairs


def as_texts(given: Mapping[str, object], owned: Mapping[str, str], where: str) -> Settings:
    """Settings as a user gives them. ``owned``: those that cannot be given, each with the reason.

    Raises:
        SettingRefused: one of these, or one that is not text, number or bool.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in owned:
            raise SettingRefused(
                "KAFKA_SETTING",
                f"{where}: the setting {name!r} cannot be given: {owned[name]}.",
            )
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise SettingRefused(
                "KAFKA_SETTING",
                f"{where}: the setting {name!r} is a {type(value).__name__}; settings travel, so "
                "give text, a number or a bool, by a name.",
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return tuple(sorted(found.items()))


def of_producer(settings: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The settings of a producer: exactum's defaults, the user's, and those that nobody can
    change.
    """
    fixed = {
        "enable.idempotence": "true",
        "acks": "all",
        "allow.auto.create.topics": "false",
        **own,
    }
    found = {**DEFAULTS, **settings, **fixed}
    return {"linger.ms": linger_ms(found), **found}


# ---- handing them to librdkafka --------------------------------------------------------------


_TEXT_BYTES = 512
"""Room for librdkafka's reason."""


def new_conf(settings: Mapping[str, str], where: str = "The producer settings") -> int:
    """A new rd_kafka_conf_t with these settings, which the caller owns.

    Raises:
        SettingRefused: librdkafka does not know one of them, or does not take its value.
    """
    c = librdkafka.library()
    conf = c.rd_kafka_conf_new()
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    try:
        for name, value in settings.items():
            raw_name, raw_value = text_for_c(name, where), text_for_c(value, f"{where}: {name!r}")
            code = c.rd_kafka_conf_set(conf, raw_name, raw_value, text, _TEXT_BYTES)
            if code != librdkafka.CONF_OK:
                raise SettingRefused(
                    "KAFKA_SETTING",
                    f"{where}: librdkafka does not take the setting {name!r}: {_reason(text)}.",
                )
    except BaseException:
        c.rd_kafka_conf_destroy(conf)
        raise
    return int(conf)


def new_producer(
    settings: Mapping[str, str], where: str = "The producer settings", events: int = 0
) -> int:
    """A new rd_kafka_t, which the caller owns; ``events``: those that its queue is to have.

    Raises:
        SettingRefused: as ``new_conf``, or two of them do not go together.
    """
    c = librdkafka.library()
    conf = new_conf(settings, where)
    c.rd_kafka_conf_set_events(conf, events)
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    handle = c.rd_kafka_new(librdkafka.PRODUCER, conf, text, _TEXT_BYTES)
    if not handle:
        c.rd_kafka_conf_destroy(conf)
        raise SettingRefused(
            "KAFKA_SETTING",
            f"{where}: librdkafka does not take the producer settings together: {_reason(text)}.",
        )
    return int(handle)


def check_settings(settings: Mapping[str, str], where: str) -> None:
    """Have librdkafka check each for itself.

    Raises:
        SettingRefused: as ``new_conf``.
    """
    librdkafka.library().rd_kafka_conf_destroy(new_conf(settings, where))


def try_out(settings: Mapping[str, str], where: str, *, login: bool = False) -> None:
    """Have librdkafka check them, all together, and connect to nothing.

    Security settings are checked each for itself unless it is to ``login``: together they have
    files read and programs run.

    Raises:
        SettingRefused: as ``new_producer``.
    """
    check_settings(settings, where)
    left_out = ("plugin.", "bootstrap.servers", "debug", *(() if login else SECURITY_PREFIXES))
    together = {name: value for name, value in settings.items() if not name.startswith(left_out)}
    librdkafka.library().rd_kafka_destroy(new_producer({**together, "log_level": "0"}, where))


def text_for_c(text: str, where: str) -> bytes:
    """The text as C reads it.

    Raises:
        SettingRefused: C would read something else: up to the first NUL, or what is no text at all.
    """
    with suppress(UnicodeEncodeError):
        if "\0" not in text:
            return text.encode()
    raise SettingRefused(
        "KAFKA_SETTING",
        f"{where}: the text has a NUL character or half of a surrogate pair. Correct it.",
    )


def _reason(text: ctypes.Array[ctypes.c_char]) -> str:
    return bytes(text.value).decode(errors="replace").strip().rstrip(".")
