"""What librdkafka could not deliver: each error, and the failures of one producer's records."""

from __future__ import annotations

import ctypes
from typing import Any

from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.native import librdkafka

KEY_SHOWN_MAX = 64


class DeliveryError(Exception):
    """A record, a transaction call or the client failed. ``name``, ``code``: librdkafka's, of one
    error.

    ``fatal``: the producer is of no further use.
    """

    def __init__(
        self, code: int, text: str, *, retriable: bool = False, fatal: bool = False
    ) -> None:
        self.code = code
        self.name = librdkafka.library().rd_kafka_err2name(code).decode()
        super().__init__(f"{self.name}: {text}")
        self.retriable = retriable
        self.fatal = fatal

    @property
    def failure(self) -> KafkaFailure:
        return failure_of(self.code)


class DeliveryErrors:
    """The newest error of one producer, and how many of its records failed with which."""

    def __init__(self) -> None:
        self._c = librdkafka.library()
        self._failed: dict[tuple[str, int], tuple[DeliveryError, int]] = {}
        self.last = ""
        """The newest error, a client's such as a refused connection included; or empty."""

    def __bool__(self) -> bool:
        """Whether a record has failed."""
        return bool(self._failed)

    def note(self, report: librdkafka.DeliveryReport) -> None:
        """A delivery report; of a record that arrived it does nothing."""
        if report.err == 0:
            return
        code = int(report.err)
        topic = self._c.rd_kafka_topic_name(report.rkt).decode()
        if (topic, code) not in self._failed:
            if failure_of(code) is KafkaFailure.RECORD:
                text = _record(report.key, report.key_len, report.len)
            else:
                text = self._c.rd_kafka_err2str(code).decode()
            self._failed[topic, code] = (DeliveryError(code, text), 0)
            self.last = str(self._failed[topic, code][0])
        first, count = self._failed[topic, code]
        self._failed[topic, code] = (first, count + 1)

    def of_records(self) -> DeliveryError:
        """One error for all records that failed. One that was purged because of another failure
        says nothing of the cause: that one is named first.
        """
        (topic, code), (first, count) = min(
            self._failed.items(), key=lambda f: failure_of(f[0][1]) is KafkaFailure.CONSEQUENCE
        )
        total = sum(count for _, count in self._failed.values())
        return DeliveryError(
            code, f"{total} records for topic {topic} were not accepted ({count}: {first})"
        )


def refused(topic: str, message: Any, code: int) -> DeliveryError:
    """librdkafka did not take a message (of dtype ``MESSAGE``) into its queue."""
    record = _record(int(message["key"]), int(message["key_len"]), int(message["len"]))
    reason = librdkafka.library().rd_kafka_err2str(code).decode()
    return DeliveryError(code, f"topic {topic}: {record}: {reason}")


def _record(key: int | None, key_bytes: int, value_bytes: int) -> str:
    shown = repr(ctypes.string_at(key, min(key_bytes, KEY_SHOWN_MAX))) if key else "null"
    return f"the record with key {shown} and {value_bytes} bytes of value"


def fatal_error(client: int) -> DeliveryError | None:
    """What has made this client (an ``rd_kafka_t``) useless for good, if anything has."""
    c, text = librdkafka.library(), ctypes.create_string_buffer(512)
    code = c.rd_kafka_fatal_error(client, text, len(text))
    if code == 0:
        return None
    return DeliveryError(code, text.value.decode(errors="replace"), fatal=True)


def raise_error(error: int | None) -> None:
    """Of a call that returns an ``rd_kafka_error_t``: null where all went well. It is freed.

    Raises:
        DeliveryError: what it says.
    """
    if not error:
        return
    c = librdkafka.library()
    try:
        raise DeliveryError(
            c.rd_kafka_error_code(error),
            c.rd_kafka_error_string(error).decode(errors="replace"),
            retriable=bool(c.rd_kafka_error_is_retriable(error)),
            fatal=bool(c.rd_kafka_error_is_fatal(error)),
        )
    finally:
        c.rd_kafka_error_destroy(error)
