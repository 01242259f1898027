"""What the tests of the Kafka sink share: a sink opened without Spark, rows as Arrow, readers of
their own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.kafka.messages import produce
from exactum.kafka.participant import KafkaParticipant
from exactum.kafka.producer_pool import initialised
from exactum.kafka.sink import KafkaSink
from exactum.kafka.transaction import KafkaTransaction
from exactum.protocol.model import CommitPermit, PreparedTransaction
from exactum.protocol.sink import Guarantee
from tests.kit import opened_sink
from tests.kit.waiting import WAIT_MAX_S, await_true

NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True)
class Record:
    """One record as a reader sees it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at_ms: int = field(default=0, compare=False)
    at_type: int = field(default=0, compare=False)
    offset: int = field(default=0, compare=False)


class OpenedSink(opened_sink.OpenedSink):
    """Each write job is a batch of its own, the next one."""

    participant: KafkaParticipant
    sequence = 0

    def write(self, *frames: pa.RecordBatch) -> list[PreparedTransaction]:  # type: ignore[override]
        """One task for each frame, all prepared."""
        self.sequence += 1
        return self.prepare(*frames, batch_id=self.sequence)

    def permit(self, prepared: Sequence[PreparedTransaction], batch_id: int = 0) -> CommitPermit:
        """Of the last job's batch."""
        return super().permit(prepared, self.sequence)

    def epoch(self, *frames: pa.RecordBatch) -> CommitPermit:
        """Written, verified and committed."""
        permit = self.permit(self.participant.verify(self.write(*frames)))
        if permit.record.prepared:
            assert self.commit(permit).committed == permit.record.prepared
        return permit


@contextmanager
def opened(
    sink: KafkaSink, query_id: str = "q", guarantee: Guarantee = Guarantee.EXACTLY_ONCE
) -> Iterator[OpenedSink]:
    with OpenedSink(sink, guarantee=guarantee, query_id=query_id) as run:
        assert isinstance(run, OpenedSink)
        yield run


def frame(
    values: Sequence[object], keys: Sequence[object] | None = None, **more: pa.Array
) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return pa.record_batch({**columns, **more})


def open_many(
    sink: OpenedSink, topic: str, partitions: int, count: int
) -> list[PreparedTransaction]:
    """``count`` prepared transactions of ``sink``'s run, as an epoch of as many tasks leaves them;
    the nth holds the record b"n".
    """
    plan, worker = sink.participant._plan, secrets.token_hex(8)

    def one(number: int) -> PreparedTransaction:
        name = plan.scope.transactional_id(plan.incarnation, worker, number)
        producer = initialised(plan, name)
        producer.begin_transaction()
        place = pa.array([number % partitions], pa.int32())
        produce(producer, frame([b"%d" % number], partition=place), topic, timeout_ms=30_000)
        producer.flush(30_000)
        transaction = KafkaTransaction(name, *producer.identity)
        producer.destroy()
        return transaction.prepared(sink.participant.name, 1)

    with ThreadPoolExecutor(16) as tasks:
        return list(tasks.map(one, range(count)))


def read_all(
    servers: str,
    topic: str,
    *,
    committed: bool = True,
    open_ones: bool = False,
    login: Mapping[str, str] = NOBODY,
) -> list[Record]:
    """Every record from the beginning up to the end that this isolation level shows.

    The broker answers a commit before its markers are written, so the committed end is waited for:
    call it with no transaction open, or with ``open_ones`` set. ``login``: settings of a client.
    """
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
            **login,
        }
    )
    try:
        count = len(consumer.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions)
        if committed and not open_ones:
            wait_for_rest(servers, [TopicPartition(topic, i) for i in range(count)], login)
        consumer.assign([TopicPartition(topic, i, 0) for i in range(count)])
        records, ended = [], set()
        while len(ended) < count:
            message = consumer.poll(WAIT_MAX_S)
            assert message is not None, f"the reader of {topic} got nothing"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            headers = tuple(
                (n, None if v is None else bytes(v)) for n, v in message.headers() or ()
            )
            at_type, at_ms = message.timestamp()
            what = message.partition(), message.key(), message.value(), headers
            records.append(Record(*what, at_ms, at_type, message.offset()))
        return records
    finally:
        consumer.close()


def keys_and_values(servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every record that a read_committed reader sees, to the ends of all partitions."""
    return [(record.key, record.value) for record in read_all(servers, topic)]


def wait_for_rest(
    servers: str, partitions: Sequence[TopicPartition], login: Mapping[str, str] = NOBODY
) -> None:
    """Until no transaction holds the last stable offset back."""
    admin = AdminClient({"bootstrap.servers": servers, **login})

    def ends(level: IsolationLevel) -> list[int]:
        asked = admin.list_offsets(
            {p: OffsetSpec.latest() for p in partitions}, isolation_level=level
        )
        return [future.result(timeout=WAIT_MAX_S).offset for future in asked.values()]

    def is_at_rest() -> bool:
        return ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED)

    await_true(is_at_rest, f"no transaction on {partitions[0].topic} is open")
