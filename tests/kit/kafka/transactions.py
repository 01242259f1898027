"""What the tests of the Kafka sink share: a sink opened without Spark, rows as Arrow, readers of
their own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.kafka.participant import KafkaParticipant
from exactum.kafka.sink import KafkaSink
from exactum.protocol.model import (
    CommitPermit,
    Decision,
    DecisionRecord,
    Epoch,
    PreparedTransaction,
    new_incarnation,
)
from exactum.protocol.sink import Guarantee, OpenSink, QueryRun, Rejection, TaskName, WriteOrder
from exactum.testing.memory import permit_of
from tests.kit.waiting import WAIT_MAX_S


@dataclass(frozen=True)
class Record:
    """One record as a reader sees it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    at_ms: int = field(default=0, compare=False)


@dataclass
class OpenedSink:
    """A sink opened for one run, and the order of its write jobs."""

    run: QueryRun
    opened: OpenSink
    sequence: int = 0
    rejections: list[Rejection | None] = field(default_factory=list)

    @property
    def participant(self) -> KafkaParticipant:
        assert isinstance(self.opened.participant, KafkaParticipant)
        return self.opened.participant

    def write(self, *frames: pa.RecordBatch) -> list[PreparedTransaction]:
        """One task for each frame, all prepared."""
        self.sequence += 1
        order = WriteOrder(self.run, self.sequence, 0, self.sequence)
        prepared = []
        for number, frame in enumerate(frames):
            writer = self.opened.writers.open(order, TaskName(number, 0, 0))
            self.rejections.append(writer.write(frame))
            one = writer.prepare()
            if one is not None:
                prepared.append(one)
        return prepared

    def permit(self, prepared: Sequence[PreparedTransaction]) -> CommitPermit:
        record = DecisionRecord(
            Epoch(self.run.query_id, self.sequence),
            0,
            Decision.COMMIT,
            self.run.incarnation,
            tuple(prepared),
        )
        return permit_of(record)


@contextmanager
def opened(
    sink: KafkaSink, query_id: str = "q", guarantee: Guarantee = Guarantee.EXACTLY_ONCE
) -> Iterator[OpenedSink]:
    run = QueryRun(query_id, new_incarnation(), guarantee)
    open_sink = sink.open(run, sink.name)
    try:
        yield OpenedSink(run, open_sink)
    finally:
        open_sink.participant.close()


def frame(
    values: Sequence[object], keys: Sequence[object] | None = None, **more: pa.Array
) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    return pa.record_batch({**columns, **more})


def read_all(
    servers: str, topic: str, *, committed: bool = True, open_ones: bool = False
) -> list[Record]:
    """Every record from the beginning up to the end that this isolation level shows.

    The broker answers a commit before its markers are written, so the committed end is waited for:
    call it with no transaction open, or with ``open_ones`` set.
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
        }
    )
    try:
        count = len(consumer.list_topics(topic, timeout=WAIT_MAX_S).topics[topic].partitions)
        if committed and not open_ones:
            wait_for_rest(servers, [TopicPartition(topic, i) for i in range(count)])
        consumer.assign([TopicPartition(topic, i, 0) for i in range(count)])
        records, ended = [], set()
        while len(ended) < count:
            message = consumer.poll(WAIT_MAX_S)
            assert message is not None, f"the reader of {topic} got nothing for 10 s"
            if message.error() is not None:
                ended.add(message.partition())
                continue
            headers = tuple(
                (n, None if v is None else bytes(v)) for n, v in message.headers() or ()
            )
            _, at_ms = message.timestamp()
            records.append(
                Record(message.partition(), message.key(), message.value(), headers, at_ms)
            )
        return records
    finally:
        consumer.close()


def wait_for_rest(
    servers: str, partitions: Sequence[TopicPartition], within_s: float = 30.0
) -> None:
    """Until no transaction holds the last stable offset back."""
    admin = AdminClient({"bootstrap.servers": servers})

    def ends(level: IsolationLevel) -> list[int]:
        asked = admin.list_offsets(
            {p: OffsetSpec.latest() for p in partitions}, isolation_level=level
        )
        return [future.result(timeout=WAIT_MAX_S).offset for future in asked.values()]

    end_s = time.monotonic() + within_s
    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < end_s, (
            f"a transaction on {partitions[0].topic} is still open after {within_s} s"
        )
        time.sleep(0.02)
