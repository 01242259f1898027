"""Kafka's error codes, by what is done about them. Pure; workers import it, so it knows neither
client.

Brokers, kafka-python (``errno``) and librdkafka (``code``) share the positive numbers, and -1; the
other negative ones are librdkafka's own. Each caller decides by the kind alone what it does, and
shows the error's name.

A code that is not listed is OTHER. A writer then says ``UnknownFailure``: nothing of its task
becomes visible, and ``exactum run`` gives up when that has ended three lives at the same batch. The
driver's requests hand OTHER back to their callers, of which none takes it for a success: a commit
asks what became of the transaction, everybody else raises.
"""

from __future__ import annotations

from enum import Enum


class KafkaFailure(Enum):
    """What an error of a broker or of librdkafka means for us."""

    BUSY = "busy"  # a node starts, moves, or cannot be reached: the same again may succeed
    MISSING = "missing"  # no such topic or partition: a broker may hear of it a moment later
    DENIED = "denied"  # this user lacks a right
    GROUP_DENIED = "group denied"  # ... on the group
    LOGIN = "login"  # the credentials, or their mechanism, are refused
    REFUSED = "refused"  # what the next attempt would be told as well
    RECORD = "record"  # the topic takes it from nobody: too large, or without a key
    CONSEQUENCE = "consequence"  # of another failure, which says more
    MEMBERS = "members"  # the group has members, who alone may set its offsets
    NO_TRANSACTION = "no transaction"  # the coordinator does not know the transactional id
    CONCURRENT = "concurrent"  # the transaction is being ended
    OUTSIDE = "outside"  # the log has no such offset
    END = "end"  # a reader is at the end of the partition
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
        31,  # CLUSTER_AUTHORIZATION_FAILED
        53,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        65,  # DELEGATION_TOKEN_AUTHORIZATION_FAILED
    ),
    KafkaFailure.GROUP_DENIED: (30,),  # GROUP_AUTHORIZATION_FAILED
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
    KafkaFailure.CONCURRENT: (51,),  # CONCURRENT_TRANSACTIONS
    KafkaFailure.OUTSIDE: (1, -140),  # OFFSET_OUT_OF_RANGE, _AUTO_OFFSET_RESET
    KafkaFailure.END: (-191,),  # _PARTITION_EOF
}
_KIND_OF = {code: failure for failure, codes in _CODES.items() for code in codes}

DENIALS = frozenset({KafkaFailure.DENIED, KafkaFailure.GROUP_DENIED})
"""A right is missing: somebody has to grant it."""


def failure_of(code: int | None) -> KafkaFailure:
    """OTHER for a code that is not listed, and for none."""
    return KafkaFailure.OTHER if code is None else _KIND_OF.get(code, KafkaFailure.OTHER)


def certificate_refused(text: str) -> bool:
    """Whether a TLS handshake failed by a certificate, as the next one would. Only its text says
    so: a handshake that a dying broker cut off has the same code, and kafka-python gives it none.
    """
    return "certificate" in text.lower()
