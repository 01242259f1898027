"""Cost against size: partitions, tasks, bytes of a record, epochs of history. Without Spark, as in
``epochs``.

Records: one task of one epoch writes the same number of bytes as fewer and larger records, through
exactum's writer and through a plain confluent-kafka producer in a transaction, turn about.
"""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa
from confluent_kafka import Producer

from bench import epochs, report
from exactum.kafka.sink import KafkaSink
from exactum.local import LocalKafka
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, TaskName, WriteOrder

WIDTHS = (1, 4, 16, 64)
"""Of partitions and of tasks."""
EPOCHS = 100
SETTLED = slice(20, None)
HISTORY_EPOCHS = 10_000
HISTORY_PARTITIONS = 4
HISTORY_PAUSE_S = 0.005
RECORD_BYTES = (100, 1_000, 10_000, 100_000, 1_000_000)
TOTAL_BYTES = 128 * 2**20
ARRAY_BYTES = 8 * 2**20
"""Of one Arrow array, as Spark hands them on."""
TIMEOUT_S = 120


def bench(kafka: LocalKafka, rounds: int, scale: float = 1.0) -> None:
    by_width(kafka, max(30, int(EPOCHS * scale)))
    by_record(kafka, rounds, int(TOTAL_BYTES * scale))
    by_history(kafka, max(1_000, int(HISTORY_EPOCHS * scale)))


def by_width(kafka: LocalKafka, count: int) -> None:
    rows = []
    for partitions, tasks in [(width, 1) for width in WIDTHS] + [
        (width, width) for width in WIDTHS[1:]
    ]:
        prepare_ms, completed = epochs.measure(kafka, partitions, count, tasks=tasks)
        rows.append([str(partitions), str(tasks), *epochs.costs(prepare_ms, completed, SETTLED)])
    report.table(
        f"an epoch beyond Spark's share, ms, by partitions and tasks ({count} epochs, without the "
        "first 20)",
        ["partitions", "tasks", *epochs.COSTS],
        rows,
    )


def by_history(kafka: LocalKafka, count: int) -> None:
    prepare_ms, completed = epochs.measure(
        kafka, HISTORY_PARTITIONS, count, pause_s=HISTORY_PAUSE_S
    )
    rows = []
    for first in sorted({20, count // 10, count // 2, count - 100}):
        rows.append(
            [
                f"{first:,} to {first + 100:,}",
                *epochs.costs(prepare_ms, completed, slice(first, first + 100)),
            ]
        )
    report.table(
        f"an epoch beyond Spark's share, ms, by epochs before it ({HISTORY_PARTITIONS} partitions)",
        ["epochs", *epochs.COSTS],
        rows,
    )


def by_record(kafka: LocalKafka, rounds: int, total_bytes: int) -> None:
    rows = []
    for size in RECORD_BYTES:
        topic = f"records-{size}"
        kafka.create_topic(
            topic, partitions=4, config={"max.message.bytes": str(2 * RECORD_BYTES[-1])}
        )
        count = max(1, total_bytes // size)
        writers: dict[str, Callable[[LocalKafka, str, int, int], float]] = {
            "exactum": _ours,
            "plain": _plain,
        }
        took_s: dict[str, list[float]] = defaultdict(list)
        for number in range(rounds + 1):
            for name in sorted(writers, reverse=bool(number % 2)):
                seconds = writers[name](kafka, topic, size, count)
                if number:  # the first round warms broker and clients
                    took_s[name].append(seconds)
        kafka.delete_topic(topic)
        rates = {
            name: [count / seconds / 1000 for seconds in took] for name, took in took_s.items()
        }
        rows.append(
            [
                f"{size:,}",
                report.spread(rates["exactum"], 1),
                report.spread([rate * size / 1000 for rate in rates["exactum"]], 0),
                report.spread(rates["plain"], 1),
                report.ratios(rates["exactum"], rates["plain"]),
            ]
        )
    report.table(
        f"one task's transaction of {total_bytes / 2**20:.0f} MiB by bytes of a record, from begin "
        "to flushed",
        ["bytes", "exactum k records/s", "MB/s", "a plain producer, k records/s", "ratio to it"],
        rows,
    )


def _ours(kafka: LocalKafka, topic: str, size: int, count: int) -> float:
    """Seconds for ``count`` records of one task."""
    each = max(1, min(count, ARRAY_BYTES // size))
    array = pa.record_batch({"value": pa.array([b"x" * size] * each, pa.binary())})
    sink = KafkaSink(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        producer={"message.max.bytes": 2 * RECORD_BYTES[-1]},
    )
    run = QueryRun(f"size-{secrets.token_hex(4)}", new_incarnation(), Guarantee.EXACTLY_ONCE)
    opened = sink.open(run, sink.name)
    order = WriteOrder(run, 0, 0, 1)
    began_s = time.perf_counter()
    writer = opened.writers.open(order, TaskName(0, 0, 0))
    left = count
    while left:
        taken = min(each, left)
        writer.write(array.slice(0, taken))
        left -= taken
    writer.prepare()
    took_s = time.perf_counter() - began_s
    opened.participant.abort(opened.participant.list_open())
    opened.participant.close()
    return took_s


def _plain(kafka: LocalKafka, topic: str, size: int, count: int) -> float:
    """The same by one call for each record."""
    began_s = time.perf_counter()
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"plain-{secrets.token_hex(4)}",
            "message.max.bytes": 2 * RECORD_BYTES[-1],
            "queue.buffering.max.kbytes": 1_048_576,
            "linger.ms": 5,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    value = b"x" * size
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush(TIMEOUT_S)
    took_s = time.perf_counter() - began_s
    producer.abort_transaction(TIMEOUT_S)
    return took_s
