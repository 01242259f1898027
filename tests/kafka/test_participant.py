"""The driver half against a real broker: verify, commit, abort, settle, salvage."""

import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from exactum.errors import EpochAborted, SettingRefused
from exactum.kafka.messages import HEADERS
from exactum.kafka.transaction import KafkaTransaction
from exactum.kafka.writer import DELIVERY_TIMEOUT_MS
from exactum.protocol.model import CommitPermit, PreparedTransaction
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import OpenedSink, frame, opened, wait_for_rest
from tests.kit.waiting import WAIT_MAX_S, await_true

SHORT_TIMEOUT_MS = 4_000


def id_of(prepared: PreparedTransaction) -> str:
    """The transactional id, as messages show it."""
    return repr(KafkaTransaction.of(prepared).transactional_id)


def test_verify_records_where_every_row_lies(broker: Broker) -> None:
    """First offset and number of records by partition: what a salvage would read back."""
    name = broker.topic("where", partitions=1)
    with opened(broker.sink(name)) as sink:
        for expected_offset in (0, 4):  # three records and one marker
            (verified,) = sink.participant.verify(sink.write(frame([b"a", b"b", b"c"])))
            assert KafkaTransaction.of(verified).partitions == (((name, 0), (expected_offset, 3)),)
            sink.participant.commit(sink.permit([verified]), [verified])
            # The answer to EndTxn may come before the marker lies there.
            wait_for_rest(broker.servers, [TopicPartition(name, 0)])


def test_verify_finds_a_missing_record(broker: Broker) -> None:
    """A task that claims more rows than the brokers hold is not committed."""
    name = broker.topic("short", partitions=1)
    with opened(broker.sink(name)) as sink:
        (prepared,) = sink.write(frame([b"a"]))
        with raised(EpochAborted, " 1 records", id_of(prepared), " 2."):
            sink.participant.verify([replace(prepared, rows=2)])


def test_committed_transactions_are_told_from_those_on_record(broker: Broker) -> None:
    """By the incarnation, and by a name on record that has gone on; a neighbour's, a query's fork's
    and open ones are left out."""
    name = broker.topic("committed", partitions=1)
    mine = broker.sink(name, transactional_id_prefix="a.pp")
    with opened(mine) as sink, opened(mine, "q2") as fork, opened(mine) as other:
        committed = []
        for one in (sink, sink, other, fork):
            verified = one.participant.verify(one.write(frame([b"a"])))
            one.participant.commit(one.permit(verified), verified)
            committed += verified
        first, second, others, forks = committed
        with opened(mine) as third:
            third.write(frame([b"open"]))
            seen = other.participant.list_committed(
                {sink.run.incarnation, third.run.incarnation}.__contains__, []
            )
        # The first one's id may be initialised again by now: the last job's never are.
        assert {second.identity} <= {s.identity for s in seen} <= {first.identity, second.identity}
        assert {s.incarnation for s in seen} == {sink.run.incarnation}
        assert [
            s.identity
            for s in other.participant.list_committed(set().__contains__, [others, forks])
        ] == [others.identity]
        assert other.participant.list_committed(set().__contains__, []) == []
        slots = {KafkaTransaction.of(p).transactional_id: p for p in (first, second)}
        for _ in range(10):  # until a slot has come round again
            (later,) = sink.participant.verify(sink.write(frame([b"n"])))
            sink.participant.commit(sink.permit([later]), [later])
            if KafkaTransaction.of(later).transactional_id in slots:
                break
        else:
            pytest.fail("the slot was never used again")
        recorded = slots[KafkaTransaction.of(later).transactional_id]
        (found,) = other.participant.list_committed(set().__contains__, [recorded])
        assert found.identity == later.identity != recorded.identity


def test_an_abort_never_hits_a_later_transaction_of_the_same_id(broker: Broker) -> None:
    """A sighting names (producer id, epoch); the id has a new epoch since."""
    name = broker.topic("late-abort", partitions=1)
    with opened(broker.sink(name)) as sink:
        first = sink.participant.verify(sink.write(frame([b"1"])))
        stale = sink.participant.list_open()
        sink.participant.commit(sink.permit(first), first)
        slots = {KafkaTransaction.of(first[0]).transactional_id}
        for _ in range(10):  # until the slot has come round again
            later = sink.participant.verify(sink.write(frame([b"n"])))
            if KafkaTransaction.of(later[0]).transactional_id in slots:
                break
            sink.participant.commit(sink.permit(later), later)
        else:
            pytest.fail("the slot was never used again")
        sink.participant.abort(stale)
        assert len(sink.participant.commit(sink.permit(later), later).committed) == 1


def test_a_transaction_that_is_aborted_before_the_decision_voids_the_attempt(
    broker: Broker,
) -> None:
    """As by the broker when its time is over. Nothing was decided, so the batch is simply run
    again.
    """
    name = broker.topic("early", partitions=1)
    with opened(broker.sink(name)) as sink:
        prepared = sink.write(frame([b"a"]))
        sink.participant.abort(sink.participant.list_open())
        await_true(lambda: not sink.participant.list_open(), "it is aborted")
        with raised(EpochAborted, id_of(prepared[0]), "Abort ", "transaction_timeout_ms"):
            sink.participant.verify(prepared)


def test_a_task_that_writes_for_longer_than_the_timeout_voids_the_attempt(broker: Broker) -> None:
    """It is told what the driver says of one that has timed out, and the batch is run again as
    often.
    """
    name = broker.topic("long", partitions=2)
    with opened(broker.sink(name, transaction_timeout_ms=SHORT_TIMEOUT_MS)) as sink:
        for later in (0, 1):  # a partition that has records of it, and another one
            writer = sink.writer(later)
            writer.write(frame([b"a"], partition=pa.array([0], pa.int32())))
            writer._owned.producer.flush(DELIVERY_TIMEOUT_MS)
            wait_for_rest(broker.servers, [TopicPartition(name, 0)])  # it was timed out
            with raised(EpochAborted, "transaction_timeout_ms", SHORT_TIMEOUT_MS) as told:
                writer.write(frame([b"b"], partition=pa.array([later], pa.int32())))
                writer.prepare()
            assert type(told.value) is EpochAborted
            writer.abort()


def test_an_id_that_another_program_has_taken_voids_the_attempt(broker: Broker) -> None:
    """Its transaction is open, and not ours."""
    name = broker.topic("taken", partitions=1)
    with opened(broker.sink(name)) as sink:
        prepared = sink.write(frame([b"a"]))
        was = KafkaTransaction.of(prepared[0])
        other = broker.initialised(was.transactional_id)
        other.begin_transaction()
        other.produce(name, b"b")
        other.flush(WAIT_MAX_S)
        ours = f"producer {was.producer_id} epoch {was.producer_epoch}"
        with raised(EpochAborted, id_of(prepared[0]), ours, "transactional_id_prefix"):
            sink.participant.verify(prepared)
        other.abort_transaction(WAIT_MAX_S)


@pytest.mark.parametrize(("later_s", "is_taken"), [(300, True), (570, False)])
def test_a_transaction_with_too_little_time_left_is_not_decided(
    broker: Broker, monkeypatch, later_s, is_taken
) -> None:
    """A tenth of its timeout is what a decision and its commit may take."""
    name = broker.topic("late", partitions=1)
    sink_ = broker.sink(name, transaction_timeout_ms=600_000)
    with opened(sink_) as sink:
        prepared = sink.write(frame([b"a"]))
        real = time
        later = SimpleNamespace(
            time=lambda: real.time() + later_s, monotonic=lambda: real.monotonic() + later_s
        )
        monkeypatch.setattr("exactum.kafka.participant.time", later)
        if is_taken:
            assert len(sink.participant.verify(prepared)) == 1
        else:
            with raised(EpochAborted, id_of(prepared[0]), " of 600000 ms"):
                sink.participant.verify(prepared)


def test_what_is_salvaged_comes_back_to_its_partitions(broker: Broker) -> None:
    """A decided transaction that somebody aborted: each record comes back with its key, its value,
    its headers, its time and its partition.
    """
    name = broker.topic("back", partitions=4)
    with opened(broker.sink(name)) as sink:
        values = [b"%d" % number for number in range(40)]
        partitions = [(7 * number) % 4 for number in range(40)]
        headers: list[list[tuple[str, bytes | None]]] = [
            [("n", value), ("none", None)] if number % 3 else []
            for number, value in enumerate(values)
        ]
        rows = frame(
            values,
            values,
            partition=pa.array(partitions, pa.int32()),
            headers=pa.array(headers, HEADERS),
        )
        verified = sink.participant.verify(sink.write(rows))
        permit = sink.permit(verified)
        sink.participant.abort(sink.participant.list_open())
        report = sink.participant.commit(permit, verified)
        assert report.expired == tuple(verified)
        again = sink.participant.salvage(permit, report.expired)
        sink.participant.commit(sink.permit(again), again)
        copies = sink.participant.list_committed({sink.run.incarnation}.__contains__, verified)
        assert copies == [], "none is a task's"
    found = broker.read(name)
    assert sorted((r.value, r.key, r.partition, r.headers) for r in found) == sorted(
        zip(values, values, partitions, map(tuple, headers), strict=True)
    )
    times = Counter((r.value, r.at_ms) for r in broker.read(name, committed=False))
    assert set(times.values()) == {2}, "as it was sent first, and again"


def test_what_is_salvaged_fits_topics_that_take_small_batches(broker: Broker) -> None:
    """Where rows name their topics, the producer's batches are larger than one of these takes."""
    name = broker.topic("narrow", partitions=1, config={"max.message.bytes": 2_000})
    values = [b"%02d" % number * 50 for number in range(60)]
    with opened(broker.sink(None)) as sink:
        permit = undone(sink, frame(values, topic=pa.array([name] * len(values))))
        again = sink.participant.salvage(permit, permit.record.prepared)
        sink.participant.commit(sink.permit(again), again)
    assert broker.values(name) == values


@pytest.mark.parametrize(
    ("setting", "too_small"),
    [("max.message.bytes", 1_000), ("message.timestamp.before.max.ms", 1)],
)
def test_a_topic_that_takes_its_records_no_more_stops_a_salvage(
    broker: Broker, setting: str, too_small: int
) -> None:
    """Another try would be refused as well: the setting is named, and with a larger one they come
    back.
    """
    name = broker.topic("changed", partitions=1)
    with opened(broker.sink(name)) as sink:
        permit = undone(sink, frame([b"x" * 1_500]))
        broker.configure(name, setting, str(too_small))
        with raised(SettingRefused, "KAFKA_REFUSED", name, setting):
            sink.participant.salvage(permit, permit.record.prepared)
        broker.configure(name, setting, "1000000")
        again = sink.participant.salvage(permit, permit.record.prepared)
        sink.participant.commit(sink.permit(again), again)
    assert broker.values(name) == [b"x" * 1_500]


def undone(sink: OpenedSink, *rows: pa.RecordBatch) -> CommitPermit:
    """Decided, and aborted by somebody."""
    permit = sink.permit(sink.participant.verify(sink.write(*rows)))
    sink.participant.abort(sink.participant.list_open())
    return permit


def test_a_decision_on_another_cluster_is_refused(broker: Broker) -> None:
    """The sink was pointed elsewhere while an epoch was in doubt."""
    name = broker.topic("cluster", partitions=1)
    with opened(broker.sink(name)) as sink:
        (verified,) = sink.participant.verify(sink.write(frame([b"a"])))
        elsewhere = replace(
            verified, payload=verified.payload.replace('"cluster_id": "', '"cluster_id": "other-')
        )
        with raised(SettingRefused, "SINK_MOVED", "cluster other-"):
            sink.participant.commit(sink.permit([elsewhere]), [elsewhere])
