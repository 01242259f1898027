"""The log is not what it was. Before the decision the epoch is aborted; after it a person has to
look, and is told where.
"""

from __future__ import annotations

import pytest
from kafka.record import MemoryRecords

from exactum.errors import EpochAborted, HeuristicOutcome
from exactum.kafka.readback import NO_LOG, LogReader
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.local import LocalKafka
from exactum.protocol.model import CommitPermit, PreparedTransaction
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import OpenedSink, frame, opened

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


def lost(name: str, prepared: PreparedTransaction) -> str:
    """What an error says of the records: where they lay."""
    [(partition, (offset, count))] = KafkaTransaction.of(prepared).partitions
    assert partition == (name, 0)
    return f"{name}-0: {count} records from offset {offset}"


def settle(broker: Broker, transaction: PreparedTransaction) -> None:
    """Somebody else takes the id: the transaction is aborted, and its coordinator forgets it."""
    name = KafkaTransaction.of(transaction).transactional_id
    broker.initialised(name)


@pytest.mark.parametrize("values", [0, 2, 9])
def test_a_topic_made_anew_after_the_decision(broker: Broker, values: int) -> None:
    """The next start does not commit what is no more there as if it were; nor does the one
    after.
    """
    name = broker.topic("anew", partitions=1)
    sink_ = broker.sink(name)
    permit, verified = crashed_after_the_decision(sink_)
    broker.made_anew(name)
    broker.produce(name, *[b"new"] * values)
    for _ in range(2):
        with opened(sink_) as later:
            with raised(HeuristicOutcome, "KAFKA_RECORDS_GONE", lost(name, verified[0])) as told:
                later.participant.commit(permit, verified)
            assert NO_LOG not in str(told.value)
    assert broker.values(name, open_ones=True) == [b"new"] * values


@pytest.mark.variants(1)
@pytest.mark.parametrize("values", [0, 2, 9])
def test_a_topic_made_anew_after_the_transaction_was_settled(broker: Broker, values: int) -> None:
    """Where the log has to tell what became of a transaction, and is another one: in the run
    that decided as well.
    """
    name = broker.topic("settled", partitions=1)
    with opened(broker.sink(name)) as sink:
        verified = decided(sink)
        settle(broker, verified[0])
        broker.made_anew(name)
        broker.produce(name, *[b"new"] * values)
        with raised(HeuristicOutcome, "KAFKA_OUTCOME_UNKNOWN", lost(name, verified[0])):
            sink.participant.commit(sink.permit(verified), verified)


def test_a_topic_deleted_after_the_decision(broker: Broker) -> None:
    """A sink that takes its topics from a column starts without it; the epoch is not called
    done.
    """
    name = broker.topic("deleted", partitions=1)
    sink_ = KafkaSink(bootstrap_servers=broker.servers)
    with opened(sink_, name) as crashed:
        rows = frame(ROWS, topic=[name] * 3)
        verified = crashed.participant.verify(crashed.write(rows))
        permit = crashed.permit(verified)
    broker.kafka.delete_topic(name)
    with opened(sink_, name) as later:
        with raised(HeuristicOutcome, "KAFKA_RECORDS_GONE", lost(name, verified[0]), NO_LOG):
            pytest.fail(f"{later.participant.commit(permit, verified)}")


def test_records_deleted_after_the_transaction_was_settled(broker: Broker) -> None:
    """With its records and its marker gone, nobody can tell what became of it, and that is said."""
    name = broker.topic("emptied", partitions=1)
    sink_ = broker.sink(name)
    permit, verified = crashed_after_the_decision(sink_)
    settle(broker, verified[0])
    broker.read(name)  # waits for the marker
    broker.empty(name)
    with opened(sink_) as later:
        with raised(HeuristicOutcome, "KAFKA_OUTCOME_UNKNOWN", lost(name, verified[0])):
            later.participant.commit(permit, verified)


def test_a_log_that_has_grown_is_committed_by_the_next_start(broker: Broker) -> None:
    """Records of others behind ours, and a start of the log beyond what is committed long ago,
    are no loss.
    """
    name = broker.topic("grown", partitions=1)
    sink_ = broker.sink(name)
    permit, verified = crashed_after_the_decision(sink_)
    with opened(sink_) as later:
        assert len(later.participant.commit(permit, verified).committed) == 1
    broker.read(name)
    broker.empty(name)
    with opened(sink_) as later:
        assert len(later.participant.commit(permit, verified).committed) == 1


def test_a_marker_behind_other_records_is_somebody_elses(broker: Broker) -> None:
    """In another cluster of the same id, a producer has the number of ours, and the log has other
    records at our first one's place.
    """
    name = broker.topic("numbered", partitions=1)
    broker.produce(name, *ROWS)
    with opened(broker.sink(name)) as run:
        (prepared,) = run.epoch(frame(ROWS)).record.prepared
        transaction = KafkaTransaction.of(prepared)
        ((partition, (first, _)),) = transaction.partitions
        logs = LogReader(run.participant._requests, [partition])
        assert logs.read_back(partition, first, transaction.producer).own is True
        assert logs.read_back(partition, first - 1, transaction.producer).own is None


# ---- before the decision ---------------------------------------------------------------------


def lost_tail(kafka: LocalKafka, topic: str) -> None:
    """As after a power cut: the broker comes back, and the partition's log ends before the first
    record of an open transaction, that had not reached the disk.
    """
    folder = kafka.data_dir / "data" / f"{topic}-0"
    kafka.kill()
    log = folder / f"{0:020}.log"
    batches = MemoryRecords(log.read_bytes())
    end = kept = 0
    while (batch := batches.next_batch()) is not None:
        end += batch.size_in_bytes
        if batch.is_control_batch or not batch.is_transactional:
            kept = end
    with log.open("r+b") as file:
        file.truncate(kept)
    for snapshot in folder.glob("*.snapshot"):
        snapshot.unlink()
    kafka.restart()


@pytest.mark.parametrize(
    ("loss", "epochs", "by_rows"),
    [
        ("power cut", 0, False),
        ("power cut", 1, False),
        ("topic made anew", 1, False),
        ("topic made anew", 0, True),
    ],
)
def test_records_that_were_lost_while_their_task_wrote_on(
    loss: str, epochs: int, by_rows: bool
) -> None:
    """In a run's first epoch, and in a later one. The leader takes what comes next whatever its
    sequence, and counts those before it.
    """
    with LocalKafka() as kafka:
        broker = Broker(kafka)
        name = broker.topic("midway", partitions=1)
        rows = frame(ROWS, topic=[name] * len(ROWS)) if by_rows else frame(ROWS)
        broker.produce(name, b"old")
        with opened(broker.sink(None if by_rows else name)) as sink:
            for _ in range(epochs):
                sink.epoch(rows)
                broker.read(name)  # waits for the marker
            sink.sequence += 1
            writer = sink.writer(sink.sequence, 0)
            writer.write(rows)
            writer._owned.producer.flush(30_000)
            if loss == "power cut":
                lost_tail(kafka, name)
            else:
                broker.made_anew(name)
            writer.write(rows)
            with raised(EpochAborted, f"{name}-0 has lost the first records of"):
                sink.participant.verify([writer.prepare()])
            sink.epoch(rows)
        kept = [b"old", *ROWS * epochs] if loss == "power cut" else []
        assert broker.values(name) == [*kept, *ROWS]


def test_a_leader_that_comes_back_with_all_it_had() -> None:
    """Another leader's epoch alone is no loss."""
    with LocalKafka() as kafka:
        broker = Broker(kafka)
        name = broker.topic("whole", partitions=1)
        with opened(broker.sink(name)) as sink:
            sink.sequence += 1
            writer = sink.writer(sink.sequence, 0)
            writer.write(frame(ROWS))
            writer._owned.producer.flush(30_000)
            kafka.kill()
            kafka.restart()
            writer.write(frame(ROWS))
            verified = sink.participant.verify([writer.prepare()])
            sink.commit(sink.permit(verified))
        assert broker.values(name) == ROWS * 2
