"""What the Kafka sink's writer costs for a record, without Spark: the CPU of the thread that hands
over Arrow batches, and of librdkafka's.

One task writes one transaction to a real broker, up to its last acknowledgement. Every batch lies
in memory of its own, as one that was just read does; making it does not count.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from dataclasses import dataclass

import pyarrow as pa

from bench import report
from bench.process import cpu_seconds
from exactum.kafka.producer.messages import HEADERS
from exactum.kafka.sink import KafkaSink
from exactum.local import LocalKafka
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder

ARRAY_BYTES, ARRAY_ROWS = 2 << 20, 10_000
"""Most that ``read_kafka`` puts into one batch."""
TOTAL_BYTES = 100_000_000
RECORDS_MAX = 400_000


@dataclass(frozen=True)
class Shape:
    """Of the records: bytes of a value and of a key (0: null), and how many headers each has."""

    value: int
    key: int = 0
    headers: int = 0

    def batch(self) -> pa.RecordBatch:
        rows = max(1, min(ARRAY_ROWS, ARRAY_BYTES // (self.value + self.key)))
        columns = {"value": pa.array([secrets.token_bytes(self.value)] * rows, pa.binary())}
        if self.key:
            keys = [secrets.token_bytes(self.key) for _ in range(rows)]
            columns["key"] = pa.array(keys, pa.binary())
        if self.headers:
            header = {"key": "trace-id", "value": secrets.token_bytes(16)}
            columns["headers"] = pa.array([[header] * self.headers] * rows, HEADERS)
        return pa.record_batch(columns)

    def __str__(self) -> str:
        key = f", key of {self.key}" if self.key else ""
        headers = f", {self.headers} headers" if self.headers else ""
        return f"{self.value:,} bytes{key}{headers}"


SHAPES = (
    *(Shape(value, key) for value in (100, 1_000, 10_000) for key in (0, 10)),
    Shape(100, 0, 1),
    Shape(100, 0, 3),
)


@dataclass(frozen=True)
class Cost:
    """Records a second, and microseconds of CPU for a record."""

    rate: float
    handing_us: float
    sending_us: float
    broker_us: float


def bench(kafka: LocalKafka, rounds: int, scale: float = 1.0) -> None:
    costs: dict[Shape, list[Cost]] = defaultdict(list)
    for number in range(rounds + 1):
        for shape in SHAPES if number % 2 else reversed(SHAPES):
            bytes_each = shape.value + shape.key
            count = int(scale * min(RECORDS_MAX, TOTAL_BYTES // bytes_each))
            cost = once(kafka, shape, count)
            if number:  # the first round warms broker and client
                costs[shape].append(cost)
    report.table(
        "one task's writer, us of CPU for a record",
        ["value", "k records/s", "who hands over", "librdkafka's threads", "broker"],
        [
            [
                str(shape),
                report.spread([cost.rate / 1000 for cost in costs[shape]], 0),
                report.spread([cost.handing_us for cost in costs[shape]]),
                report.spread([cost.sending_us for cost in costs[shape]]),
                report.spread([cost.broker_us for cost in costs[shape]]),
            ]
            for shape in SHAPES
        ],
    )


def once(kafka: LocalKafka, shape: Shape, count: int) -> Cost:
    topic = f"writer-{secrets.token_hex(4)}"
    kafka.create_topic(topic, partitions=4)
    run = QueryRun(topic, new_incarnation(), Guarantee.EXACTLY_ONCE)
    sink = KafkaSink(topic, bootstrap_servers=kafka.bootstrap_servers)
    opened = sink.open(run, sink.name)
    writer = opened.writers.open(WriteOrder(run, 0, 0, 1), TaskName(0, 0, 0))
    template = shape.batch()
    writer.write(template.slice(0, 1))  # takes a producer and begins the transaction
    broker_s, all_s, own_s = (
        cpu_seconds(kafka.pid()) or 0.0,
        time.process_time(),
        time.thread_time(),
    )
    began_s, handing_s, written = time.perf_counter(), 0.0, 0
    while written < count:
        batch = copied(template)
        before_s = time.thread_time()
        writer.write(batch)
        handing_s += time.thread_time() - before_s
        written += batch.num_rows
    before_s = time.thread_time()
    writer.prepare()
    handing_s += time.thread_time() - before_s
    took_s = time.perf_counter() - began_s
    others_s = time.process_time() - all_s - (time.thread_time() - own_s)
    broker_s = (cpu_seconds(kafka.pid()) or 0.0) - broker_s
    opened.participant.abort(opened.participant.list_open())
    opened.participant.close()
    kafka.delete_topic(topic)
    return Cost(written / took_s, *(1e6 * s / written for s in (handing_s, others_s, broker_s)))


def copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same in new memory, all of it touched."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        writer.write_batch(batch)
    return pa.ipc.open_stream(stream.getvalue()).read_next_batch()
