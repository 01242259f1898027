"""Decided, and then the log is not what it was: a person has to look, and is told where."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from exactum.errors import HeuristicOutcome
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.local import LocalKafka
from exactum.protocol.model import CommitPermit, PreparedTransaction
from tests.kit.kafka.transactions import OpenedSink, frame, opened, read_all
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker
ROWS = [b"a", b"b", b"c"]


def decided(sink: OpenedSink) -> list[PreparedTransaction]:
    """Two epochs, of which the second is verified and not committed. Its records begin at 3 or
    4.
    """
    first = sink.participant.verify(sink.write(frame(ROWS)))
    sink.participant.commit(sink.permit(first), first)
    return list(sink.participant.verify(sink.write(frame(ROWS))))


def crashed_after_the_decision(sink_: KafkaSink) -> tuple[CommitPermit, list[PreparedTransaction]]:
    """``decided``, and the run is over before the second epoch is committed."""
    with opened(sink_) as crashed:
        verified = decided(crashed)
        return crashed.permit(verified), verified


def empty(kafka: LocalKafka, name: str) -> None:
    """Delete every record of the topic's only partition; its offsets go on."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(name, 0, -1)]).values():
        future.result(timeout=WAIT_MAX_S)


def make_anew(kafka: LocalKafka, name: str, values: int) -> None:
    kafka.delete_topic(name)
    kafka.create_topic(name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(values):
        producer.produce(name, b"new")
    assert producer.flush(WAIT_MAX_S) == 0


def settle(kafka: LocalKafka, transaction: PreparedTransaction) -> None:
    """Somebody else takes the id: the transaction is aborted, and its coordinator forgets it."""
    name = KafkaTransaction.of(transaction).transactional_id
    Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name}
    ).init_transactions(WAIT_MAX_S)


@pytest.mark.parametrize("values", [0, 2, 9])
def test_a_topic_made_anew_after_the_decision(
    kafka: LocalKafka, topic: Callable[..., str], values: int
) -> None:
    """The next start does not commit what is no more there as if it were; nor does the one
    after.
    """
    name = topic("anew", partitions=1)
    sink_ = KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)
    permit, verified = crashed_after_the_decision(sink_)
    make_anew(kafka, name, values)
    for _ in range(2):
        with opened(sink_) as later:
            with pytest.raises(
                HeuristicOutcome, match=f"{name}-0: 3 records from offset [34], and the log there"
            ):
                later.participant.commit(permit, verified)
    assert [r.value for r in read_all(kafka.bootstrap_servers, name, open_ones=True)] == [
        b"new"
    ] * values


@pytest.mark.variants(1)
@pytest.mark.parametrize("values", [0, 2, 9])
def test_a_topic_made_anew_after_the_transaction_was_settled(
    kafka: LocalKafka, topic: Callable[..., str], values: int
) -> None:
    """Where the log has to tell what became of a transaction, and is another one: in the run
    that decided as well.
    """
    name = topic("settled", partitions=1)
    with opened(KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)) as sink:
        verified = decided(sink)
        settle(kafka, verified[0])
        make_anew(kafka, name, values)
        with pytest.raises(HeuristicOutcome, match=f"{name}-0: 3 records from offset [34]"):
            sink.participant.commit(sink.permit(verified), verified)


def test_a_topic_deleted_after_the_decision(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """A sink that takes its topics from a column starts without it; the epoch is not called
    done.
    """
    name = topic("deleted", partitions=1)
    sink_ = KafkaSink(bootstrap_servers=kafka.bootstrap_servers)
    with opened(sink_) as crashed:
        rows = frame(ROWS, topic=[name] * 3)
        verified = crashed.participant.verify(crashed.write(rows))
        permit = crashed.permit(verified)
    kafka.delete_topic(name)
    with opened(sink_) as later:
        with pytest.raises(HeuristicOutcome, match=f"{name}-0: 3 records from offset 0, .*no more"):
            later.participant.commit(permit, verified)


def test_records_deleted_after_the_transaction_was_settled(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """With its records and its marker gone, nobody can tell what became of it, and that is said."""
    name = topic("emptied", partitions=1)
    sink_ = KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)
    permit, verified = crashed_after_the_decision(sink_)
    settle(kafka, verified[0])
    read_all(kafka.bootstrap_servers, name)  # waits for the marker
    empty(kafka, name)
    with opened(sink_) as later:
        with pytest.raises(HeuristicOutcome, match=f"{name}-0: 3 records from offset [34]"):
            later.participant.commit(permit, verified)


def test_a_log_that_has_grown_is_committed_by_the_next_start(
    kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    """Records of others behind ours, and a start of the log beyond what is committed long ago,
    are no loss.
    """
    name = topic("grown", partitions=1)
    sink_ = KafkaSink(name, bootstrap_servers=kafka.bootstrap_servers)
    permit, verified = crashed_after_the_decision(sink_)
    with opened(sink_) as later:
        assert len(later.participant.commit(permit, verified).committed) == 1
    read_all(kafka.bootstrap_servers, name)
    empty(kafka, name)
    with opened(sink_) as later:
        assert len(later.participant.commit(permit, verified).committed) == 1
