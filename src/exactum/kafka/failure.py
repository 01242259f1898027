"""Kafka's errors: the codes, by what is done about them; and librdkafka's, of one record and of all
that a producer has sent.

Brokers, kafka-python (``errno``) and librdkafka (``code``) share the positive numbers, and -1; the
other negative ones are librdkafka's own. Each caller decides by the kind alone what it does, and
shows the error's name.

A code that is not listed is OTHER. A writer then says ``UnknownFailure``: nothing of its task
becomes visible, and ``exactum run`` gives up when that has ended three lives at the same batch. The
driver's requests hand OTHER back to their callers, of which none takes it for a success: a commit
asks what became of the transaction, everybody else raises.
"""

from __future__ import annotations

import ctypes
from enum import Enum
from typing import Any

from exactum.errors import SettingRefused
from exactum.kafka import librdkafka


class KafkaFailure(Enum):
    """What an error of a broker or of librdkafka means for us."""

    BUSY = "busy"  # a node starts, moves, or cannot be reached: the same again may succeed
    MISSING = "missing"  # no such topic or partition: a broker may hear of it a moment later
    DENIED = "denied"  # this user lacks a right
    LOGIN = "login"  # the credentials, or their mechanism, are refused
    REFUSED = "refused"  # what the next attempt would be told as well
    RECORD = "record"  # the topic takes it from nobody: too large, or without a key
    CONSEQUENCE = "consequence"  # of another failure, which says more
    MEMBERS = "members"  # the group has members, who alone may set its offsets
    NO_TRANSACTION = "no transaction"  # the coordinator does not know the transactional id
    FENCED = "fenced"  # the producer's epoch is over: its transaction timed out, or was taken
    CONCURRENT = "concurrent"  # the transaction is being ended
    OUTSIDE = "outside"  # the log has no such offset
    OTHER = "other"


_CODES = {
    KafkaFailure.BUSY: (
        -1,  # UNKNOWN_SERVER_ERROR
        5,  # LEADER_NOT_AVAILABLE
        6,  # NOT_LEADER_FOR_PARTITION
        7,  # REQUEST_TIMED_OUT
        9,  # REPLICA_NOT_AVAILABLE
        13,  # NETWORK_EXCEPTION
        14,  # COORDINATOR_LOAD_IN_PROGRESS
        15,  # COORDINATOR_NOT_AVAILABLE
        16,  # NOT_COORDINATOR
        19,  # NOT_ENOUGH_REPLICAS
        20,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
        56,  # KAFKA_STORAGE_ERROR
        74,  # FENCED_LEADER_EPOCH
        75,  # UNKNOWN_LEADER_EPOCH
        78,  # OFFSET_NOT_AVAILABLE
        88,  # UNSTABLE_OFFSET_COMMIT
        -156,  # _NOENT: "No leaders found" (rdkafka_topic.c)
        -180,  # _WAIT_COORD
        -184,  # _QUEUE_FULL
        -185,  # _TIMED_OUT: of a group, librdkafka was still looking for who answers
        -187,  # _ALL_BROKERS_DOWN
        -192,  # _MSG_TIMED_OUT
        -195,  # _TRANSPORT
    ),
    KafkaFailure.MISSING: (3,),  # UNKNOWN_TOPIC_OR_PART
    KafkaFailure.DENIED: (
        29,  # TOPIC_AUTHORIZATION_FAILED
        30,  # GROUP_AUTHORIZATION_FAILED
        31,  # CLUSTER_AUTHORIZATION_FAILED
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        65,  # DELEGATION_TOKEN_AUTHORIZATION_FAILED
    ),
    KafkaFailure.LOGIN: (
        33,  # UNSUPPORTED_SASL_MECHANISM
        34,  # ILLEGAL_SASL_STATE: the listener wants no login
        58,  # SASL_AUTHENTICATION_FAILED
        -169,  # _AUTHENTICATION
    ),
    KafkaFailure.REFUSED: (
        17,  # TOPIC_EXCEPTION
        32,  # INVALID_TIMESTAMP
        43,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
        44,  # POLICY_VIOLATION
        50,  # INVALID_TRANSACTION_TIMEOUT
        76,  # UNSUPPORTED_COMPRESSION_TYPE
        -188,  # _UNKNOWN_TOPIC: librdkafka has looked for it in vain
        -190,  # _UNKNOWN_PARTITION
    ),
    KafkaFailure.RECORD: (10, 87),  # MSG_SIZE_TOO_LARGE, INVALID_RECORD
    KafkaFailure.CONSEQUENCE: (-151, -152, -172),  # _PURGE_INFLIGHT, _PURGE_QUEUE, _STATE
    # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS
    KafkaFailure.MEMBERS: (22, 25, 27),
    KafkaFailure.NO_TRANSACTION: (105,),  # TRANSACTIONAL_ID_NOT_FOUND
    KafkaFailure.FENCED: (47, 90, -144),  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, _FENCED
    KafkaFailure.CONCURRENT: (51,),  # CONCURRENT_TRANSACTIONS
    KafkaFailure.OUTSIDE: (1,),  # OFFSET_OUT_OF_RANGE
}
_KIND_OF = {code: failure for failure, codes in _CODES.items() for code in codes}


def access_refused(what: str, right: str) -> SettingRefused:
    """``what`` the broker refused, and the right for it."""
    return SettingRefused(
        "KAFKA_ACCESS",
        f"{what}. The user needs {right} (docs/reference/rights.md lists the ACLs). Grant it and "
        "start again.",
    )


def failure_of(code: int | None) -> KafkaFailure:
    """OTHER for a code that is not listed, and for none."""
    return KafkaFailure.OTHER if code is None else _KIND_OF.get(code, KafkaFailure.OTHER)


def certificate_refused(text: str) -> bool:
    """Whether a TLS handshake failed by a certificate, as the next one would. Only its text says
    so: a handshake that a dying broker cut off has the same code, and kafka-python gives it none.
    """
    return "certificate" in text.lower()


# ---- what librdkafka could not deliver -------------------------------------------------------


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
