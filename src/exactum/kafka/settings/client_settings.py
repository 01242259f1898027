"""Settings handed to librdkafka, which says what it does not take; here it is said where, and what
was meant.
"""

from __future__ import annotations

import ctypes
import difflib
from collections.abc import Mapping

from exactum.errors import SettingRefused
from exactum.kafka.native import librdkafka
from exactum.kafka.settings.security_settings import SECURITY_PREFIXES

_TEXT_BYTES = 512
"""Room for librdkafka's reason."""
ALIASES = (
    "bootstrap.servers",
    "compression.type",
    "delivery.timeout.ms",
    "linger.ms",
    "max.in.flight",
    "retries",
    "sasl.mechanism",
)
"""Names that librdkafka takes for others, and does not list."""
OF_JAVA = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "max.request.size": "message.max.bytes",
    "max.block.ms": "message.timeout.ms",
    "request.timeout.ms": "request.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "partitioner.class": "partitioner",
    "ssl.truststore.location": "ssl.ca.location",
}
"""Names of the Java client -> what librdkafka calls the same."""


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
            if code == librdkafka.CONF_UNKNOWN:
                raise SettingRefused(
                    f"{where}: librdkafka knows no setting {name!r}.{_meant(name, conf)}"
                )
            if code != librdkafka.CONF_OK:
                raise SettingRefused(
                    f"{where}: librdkafka does not take the setting {name!r}: {_reason(text)}."
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
            f"{where}: librdkafka does not take the producer settings together: {_reason(text)}."
        )
    return int(handle)


def try_out(settings: Mapping[str, str], where: str, *, login: bool = False) -> None:
    """Have librdkafka check them, all together, and connect to nothing.

    Security settings are checked each for itself unless it is to ``login``: together they have
    files read and programs run.

    Raises:
        SettingRefused: as ``new_producer``.
    """
    c = librdkafka.library()
    c.rd_kafka_conf_destroy(new_conf(settings, where))
    left_out = ("plugin.", "bootstrap.servers", "debug", *(() if login else SECURITY_PREFIXES))
    together = {name: value for name, value in settings.items() if not name.startswith(left_out)}
    c.rd_kafka_destroy(new_producer({**together, "log_level": "0"}, where))


def text_for_c(text: str, where: str) -> bytes:
    """The text as C reads it.

    Raises:
        SettingRefused: C would read something else: up to the first NUL, or what is no text at all.
    """
    if "\0" in text:
        raise SettingRefused(f"{where}: there is a NUL character in the text. Take it out.")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SettingRefused(
            f"{where}: the text has half of a surrogate pair. Correct it."
        ) from error


def _reason(text: ctypes.Array[ctypes.c_char]) -> str:
    return bytes(text.value).decode(errors="replace").strip().rstrip(".")


def _meant(name: str, conf: int) -> str:
    """A sentence with the name that was probably meant; empty where none is near."""
    bare = name.strip().lower().removeprefix("kafka.").replace("_", ".")
    near = (
        [OF_JAVA[bare]]
        if bare in OF_JAVA
        else difflib.get_close_matches(bare, _names(conf), n=1, cutoff=0.75)
    )
    return (
        f" Did you mean {near[0]!r}?"
        if near
        else " Its CONFIGURATION.md lists those that there are."
    )


def _names(conf: int) -> list[str]:
    """Every name that a producer's settings may have."""
    c = librdkafka.library()
    topic_conf = c.rd_kafka_topic_conf_new()
    found = list(ALIASES)
    for dump, of in ((c.rd_kafka_conf_dump, conf), (c.rd_kafka_topic_conf_dump, topic_conf)):
        count = ctypes.c_size_t()
        pairs = dump(of, ctypes.byref(count))
        found += [pairs[place].decode() for place in range(0, count.value, 2)]
        c.rd_kafka_conf_dump_free(pairs, count)
    c.rd_kafka_topic_conf_destroy(topic_conf)
    return found
