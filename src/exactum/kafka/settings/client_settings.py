"""Settings handed to librdkafka, which says what it does not take; here it is said where."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress

from exactum.errors import SettingRefused
from exactum.kafka.native import librdkafka
from exactum.kafka.settings.connection_settings import SECURITY_PREFIXES

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


def check(settings: Mapping[str, str], where: str) -> None:
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
    check(settings, where)
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
