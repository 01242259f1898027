"""Kafka's error codes, by what they mean for who asked. Pure; workers import it, so it knows
neither client.

Brokers, kafka-python (``errno``) and librdkafka (``code``) share the positive numbers, and -1; the
other negative ones are librdkafka's own. Each caller decides by the class alone what it does, and
shows the error's name.
"""

from __future__ import annotations

from enum import Enum


class KafkaFailure(Enum):
    """What an error of a broker or of librdkafka means for us."""

    NONE = "none"
    TOPIC_DENIED = "topic denied"  # this user lacks a right on the topic
    GROUP_DENIED = "group denied"  # ... or on the group
    DENIED = "denied"  # ... or another right
    LOGIN = "login"  # the credentials are refused
    TLS = "tls"  # the handshake did not succeed: see ``certificate_refused``
    MECHANISM = "mechanism"  # the listener does not know the SASL mechanism
    MOVED = "moved"  # the partition's leader is another node, or not known yet
    COORDINATOR = "coordinator"  # the coordinator starts, moves, lags behind, or is not known yet
    BUSY = "busy"  # the node, or the way to it, fails for now
    # the broker does not know the topic or the partition: it may hear of it a moment later
    MISSING = "missing"
    UNFOUND = "unfound"  # librdkafka has looked for the topic or the partition in vain
    TOPIC = "topic"  # nothing can be written to a topic of this name
    MEMBERS = "members"  # the group has members, who alone may set its offsets
    NO_TRANSACTION = "no transaction"  # the coordinator does not know the transactional id
    CONCURRENT = "concurrent"  # the transaction is being ended
    OUTSIDE = "outside"  # the log has no such offset
    END = "end"  # a reader is at the end of the partition
    TIMEOUT = "timeout"  # a transaction's timeout above what the broker allows
    TOO_LARGE = "too large"  # a record
    # a record that the topic takes from nobody, as one without a key where it is compacted
    RECORD = "record"
    REFUSED = "refused"  # what the next attempt would be told as well
    PURGED = "purged"  # librdkafka dropped the record for another failure
    STATE = "state"  # the call has no place after what happened before, which says more
    FULL = "full"  # librdkafka's queue of records
    OTHER = "other"


_CLASSES = {
    0: KafkaFailure.NONE,
    29: KafkaFailure.TOPIC_DENIED,  # TOPIC_AUTHORIZATION_FAILED
    30: KafkaFailure.GROUP_DENIED,  # GROUP_AUTHORIZATION_FAILED
    31: KafkaFailure.DENIED,  # CLUSTER_AUTHORIZATION_FAILED
    53: KafkaFailure.DENIED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    65: KafkaFailure.DENIED,  # DELEGATION_TOKEN_AUTHORIZATION_FAILED
    58: KafkaFailure.LOGIN,  # SASL_AUTHENTICATION_FAILED
    -169: KafkaFailure.LOGIN,  # _AUTHENTICATION
    -181: KafkaFailure.TLS,  # _SSL
    33: KafkaFailure.MECHANISM,  # UNSUPPORTED_SASL_MECHANISM
    34: KafkaFailure.MECHANISM,  # ILLEGAL_SASL_STATE: it wants no login
    5: KafkaFailure.MOVED,  # LEADER_NOT_AVAILABLE
    6: KafkaFailure.MOVED,  # NOT_LEADER_FOR_PARTITION
    74: KafkaFailure.MOVED,  # FENCED_LEADER_EPOCH
    75: KafkaFailure.MOVED,  # UNKNOWN_LEADER_EPOCH
    78: KafkaFailure.MOVED,  # OFFSET_NOT_AVAILABLE
    -156: KafkaFailure.MOVED,  # _NOENT: "No leaders found" (rdkafka_topic.c)
    14: KafkaFailure.COORDINATOR,  # COORDINATOR_LOAD_IN_PROGRESS
    15: KafkaFailure.COORDINATOR,  # COORDINATOR_NOT_AVAILABLE
    16: KafkaFailure.COORDINATOR,  # NOT_COORDINATOR
    88: KafkaFailure.COORDINATOR,  # UNSTABLE_OFFSET_COMMIT
    -180: KafkaFailure.COORDINATOR,  # _WAIT_COORD
    # _TIMED_OUT: asked of a group, librdkafka was still looking for who answers
    -185: KafkaFailure.COORDINATOR,
    -1: KafkaFailure.BUSY,  # UNKNOWN_SERVER_ERROR
    7: KafkaFailure.BUSY,  # REQUEST_TIMED_OUT
    9: KafkaFailure.BUSY,  # REPLICA_NOT_AVAILABLE
    13: KafkaFailure.BUSY,  # NETWORK_EXCEPTION
    56: KafkaFailure.BUSY,  # KAFKA_STORAGE_ERROR
    3: KafkaFailure.MISSING,  # UNKNOWN_TOPIC_OR_PART
    -188: KafkaFailure.UNFOUND,  # _UNKNOWN_TOPIC
    -190: KafkaFailure.UNFOUND,  # _UNKNOWN_PARTITION
    17: KafkaFailure.TOPIC,  # TOPIC_EXCEPTION
    22: KafkaFailure.MEMBERS,  # ILLEGAL_GENERATION
    25: KafkaFailure.MEMBERS,  # UNKNOWN_MEMBER_ID
    27: KafkaFailure.MEMBERS,  # REBALANCE_IN_PROGRESS
    105: KafkaFailure.NO_TRANSACTION,  # TRANSACTIONAL_ID_NOT_FOUND
    51: KafkaFailure.CONCURRENT,  # CONCURRENT_TRANSACTIONS
    1: KafkaFailure.OUTSIDE,  # OFFSET_OUT_OF_RANGE
    -140: KafkaFailure.OUTSIDE,  # _AUTO_OFFSET_RESET
    -191: KafkaFailure.END,  # _PARTITION_EOF
    50: KafkaFailure.TIMEOUT,  # INVALID_TRANSACTION_TIMEOUT
    10: KafkaFailure.TOO_LARGE,  # MSG_SIZE_TOO_LARGE
    87: KafkaFailure.RECORD,  # INVALID_RECORD
    32: KafkaFailure.REFUSED,  # INVALID_TIMESTAMP
    43: KafkaFailure.REFUSED,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: KafkaFailure.REFUSED,  # POLICY_VIOLATION
    76: KafkaFailure.REFUSED,  # UNSUPPORTED_COMPRESSION_TYPE
    -151: KafkaFailure.PURGED,  # _PURGE_INFLIGHT
    -152: KafkaFailure.PURGED,  # _PURGE_QUEUE
    -172: KafkaFailure.STATE,  # _STATE
    -184: KafkaFailure.FULL,  # _QUEUE_FULL
}

DENIALS = frozenset({KafkaFailure.TOPIC_DENIED, KafkaFailure.GROUP_DENIED, KafkaFailure.DENIED})
"""A right is missing: somebody has to grant it."""
RETRIABLE = frozenset({KafkaFailure.MOVED, KafkaFailure.COORDINATOR, KafkaFailure.BUSY})
"""What a node answers that starts, or does not lead what it is asked for any more."""


def failure_of(code: int | None) -> KafkaFailure:
    """OTHER for a code that says nothing to us, and for none."""
    return KafkaFailure.OTHER if code is None else _CLASSES.get(code, KafkaFailure.OTHER)


def login_refused(code: int, text: str) -> bool:
    """Whether a client's error says that every other connection fails alike."""
    failure = failure_of(code)
    return failure in (KafkaFailure.LOGIN, KafkaFailure.MECHANISM) or (
        failure is KafkaFailure.TLS and certificate_refused(text)
    )


def certificate_refused(text: str) -> bool:
    """Whether a TLS handshake failed by a certificate, as the next one would. Only its text says
    so: a handshake that a dying broker cut off has the same code, and kafka-python gives it none.
    """
    return "certificate" in text.lower()
