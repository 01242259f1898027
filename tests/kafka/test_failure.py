"""What each of Kafka's errors means, by its name in both clients: the codes of one are those of
the other.
"""

from __future__ import annotations

import inspect

import kafka.errors as kafka_errors
import pytest
from confluent_kafka import KafkaError

from exactum.errors import EpochAborted, ExactumError, RowsRefused, SettingRefused, UnknownFailure
from exactum.kafka.client import is_denied
from exactum.kafka.failure import DeliveryError, KafkaFailure, certificate_refused, failure_of
from exactum.kafka.producer_pool import ProducerPlan
from exactum.kafka.topic import TopicFacts
from exactum.kafka.transaction import KafkaScope
from exactum.kafka.writer import KafkaWriterFactory, write_failure
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import TaskName
from tests.kit.errors import check_error

LIBRDKAFKA = {
    KafkaFailure.BUSY: "LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION FENCED_LEADER_EPOCH "
    "UNKNOWN_LEADER_EPOCH OFFSET_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS NOT_COORDINATOR "
    "COORDINATOR_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT UNKNOWN REQUEST_TIMED_OUT "
    "REPLICA_NOT_AVAILABLE NETWORK_EXCEPTION KAFKA_STORAGE_ERROR NOT_ENOUGH_REPLICAS "
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND _NOENT _WAIT_COORD _TIMED_OUT _QUEUE_FULL "
    "_ALL_BROKERS_DOWN _MSG_TIMED_OUT _TRANSPORT",
    KafkaFailure.MISSING: "UNKNOWN_TOPIC_OR_PART",
    KafkaFailure.DENIED: "TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
    "GROUP_AUTHORIZATION_FAILED",
    KafkaFailure.LOGIN: "SASL_AUTHENTICATION_FAILED _AUTHENTICATION UNSUPPORTED_SASL_MECHANISM "
    "ILLEGAL_SASL_STATE",
    KafkaFailure.REFUSED: "TOPIC_EXCEPTION INVALID_TIMESTAMP POLICY_VIOLATION "
    "INVALID_TRANSACTION_TIMEOUT UNSUPPORTED_COMPRESSION_TYPE UNSUPPORTED_FOR_MESSAGE_FORMAT "
    "_UNKNOWN_TOPIC _UNKNOWN_PARTITION",
    KafkaFailure.RECORD: "MSG_SIZE_TOO_LARGE INVALID_RECORD",
    KafkaFailure.CONSEQUENCE: "_PURGE_INFLIGHT _PURGE_QUEUE _STATE",
    KafkaFailure.MEMBERS: "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS",
    KafkaFailure.FENCED: "INVALID_PRODUCER_EPOCH PRODUCER_FENCED _FENCED",
    KafkaFailure.CONCURRENT: "CONCURRENT_TRANSACTIONS",
    KafkaFailure.OUTSIDE: "OFFSET_OUT_OF_RANGE",
}
A_WRITER_RAISES: dict[KafkaFailure, tuple[type[ExactumError], list[str]]] = {
    KafkaFailure.RECORD: (RowsRefused, ["ROWS_REFUSED"]),
    KafkaFailure.DENIED: (SettingRefused, ["KAFKA_ACCESS"]),
    KafkaFailure.MISSING: (SettingRefused, ["KAFKA_REFUSED"]),
    KafkaFailure.REFUSED: (SettingRefused, ["KAFKA_REFUSED"]),
    KafkaFailure.OTHER: (UnknownFailure, []),
}
"""EpochAborted for all others."""
WANTED = {name: failure for failure, names in LIBRDKAFKA.items() for name in names.split()}
CODES = {
    name: code
    for name, code in inspect.getmembers(KafkaError)
    if name.strip("_").isupper() and isinstance(code, int)
}
ANSWERS = {kafka_errors.for_code(code) for code in range(-1, 200)}
FACTORY = KafkaWriterFactory(
    ProducerPlan(
        bootstrap_servers="localhost:1",
        settings=(),
        scope=KafkaScope("q", "kafka:t", "exactum"),
        incarnation=new_incarnation(),
        transaction_timeout_ms=60_000,
        topic="t",
    ),
    "t",
    TopicFacts(1),
)


@pytest.mark.parametrize("name", sorted(CODES))
def test_every_name_of_librdkafka(name: str) -> None:
    """Each has the class that is written down here; all others have none of their own."""
    assert len(CODES) > 100 and CODES.keys() >= WANTED.keys()
    assert failure_of(CODES[name]) is WANTED.get(name, KafkaFailure.OTHER)


@pytest.mark.parametrize("error", sorted(ANSWERS, key=lambda error: error.errno))
def test_every_class_of_kafka_python(error: type[kafka_errors.KafkaError]) -> None:
    """Among all that a broker can answer: the same code means the same, so a router asks again, or
    ends.
    """
    assert len(ANSWERS) > 100
    names = {name for name, code in CODES.items() if code == error.errno}
    wanted = next((WANTED[name] for name in names & WANTED.keys()), KafkaFailure.OTHER)
    if error is kafka_errors.TransactionalIdNotFoundError:
        wanted = KafkaFailure.NO_TRANSACTION
    assert failure_of(error.errno) is wanted
    assert is_denied(error()) == (wanted in (KafkaFailure.DENIED, KafkaFailure.LOGIN))


def test_errors_of_other_kinds() -> None:
    """A number of the operating system is none of Kafka's; a code that nobody knows, or none,
    says nothing.
    """
    assert not is_denied(OSError(58, "number 58 of the operating system"))
    assert not is_denied(kafka_errors.KafkaConnectionError())
    assert failure_of(None) is failure_of(9_999) is KafkaFailure.OTHER


def test_a_certificate_is_told_from_a_handshake_that_broke() -> None:
    """Both clients' texts; a handshake that was cut off may succeed next time."""
    assert certificate_refused("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    assert certificate_refused("broker certificate could not be verified, verify that ...")
    assert not certificate_refused("SSL handshake failed: Disconnected: connecting to a PLAINTEXT")


@pytest.mark.parametrize("name", sorted(CODES))
def test_what_a_refused_record_means(name: str) -> None:
    """By librdkafka's name, whatever its text says. What nobody knows is run again, and not for
    ever: three lives at one batch end it.
    """
    failure = WANTED.get(name, KafkaFailure.OTHER)
    error = DeliveryError(CODES[name], "its text")
    made = write_failure(error, TaskName(0, 0, 0), FACTORY)
    kind, code = A_WRITER_RAISES.get(failure, (EpochAborted, []))
    assert type(made) is kind
    check_error(made, kind, *code, f"{name}: its text. ")
