"""Any rows into Kafka: each arrives exactly, once and in its partition, or is handed back because
it cannot be taken.

Which rows can be taken is said here a second time, by Kafka's own documents; another client reads
what arrived.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import TopicPartition
from kafka.partitioner.default import murmur2
from pyspark.sql import SparkSession

import exactum
from exactum.kafka import topic as topic_facts
from exactum.kafka.sink import KafkaSink
from exactum.protocol.sink import TaskName, WriteOrder
from kafka import KafkaConsumer
from kafka import TopicPartition as Partition
from tests.kit.abuse.frames import BINARY, INT, STRING, Frame, bulk, seed_of_run
from tests.kit.abuse.kinds import array, from_arrow, is_utf8, struct_
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.record_bytes import batch_bytes
from tests.kit.kafka.transactions import OpenedSink, opened, wait_for_rest
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

BATCH_ROWS = 250
ODD_SHARES = (0.05, 0.1, 0.5)
NARROW_BYTES = 3_000
KEY, VALUE = BINARY, STRING
HEADERS = array(struct_({"key": STRING, "value": BINARY}))
NAMES = ("key", "value", "headers", "partition", "topic")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[Any, ...]
Content = tuple[str, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


@dataclass(frozen=True)
class Target:
    """A topic, and what is known of it to whoever made it."""

    name: str
    partitions: int
    bytes_max: int = 1_048_588
    compacted: bool = False


@dataclass
class Tally:
    """What was given, and what became of it."""

    seed: int
    given: Counter[tuple[Content, int | None]] = field(default_factory=Counter)
    stored: int = 0
    aside: int = 0


@pytest.fixture
def targets(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    monkeypatch.setattr(topic_facts, "PAUSE_S", 0.2)
    narrow, compact = {"max.message.bytes": NARROW_BYTES}, {"cleanup.policy": "compact"}
    return [
        Target(broker.topic("plain", partitions=4), 4),
        Target(broker.topic("narrow", partitions=2, config=narrow), 2, NARROW_BYTES),
        Target(broker.topic("compact", partitions=1, config=compact), 1, compacted=True),
    ]


def odd_topics(targets: Sequence[Target]) -> list[bytes | None]:
    good = targets[0].name.encode()
    names = [
        None,
        b"",
        b".",
        b"..",
        good + b"\0",
        good + b"\0x",
        b"\0",
        b"a b",
        b"a/b",
        b"\xff" + good,
        "é".encode(),
    ]
    return [
        *names,
        b"x" * 249,
        b"x" * 250,
        b"x" * 600,
        b"y" * 70_000,
        b"__consumer_offsets",
        good.upper(),
        good + b"-",
    ]


# ---- the rules, said again -------------------------------------------------------------------


def trouble(row: Row, targets: dict[bytes, Target]) -> str | None:
    """What the reason says, where Kafka does not take the row, by its documents; a header's key ends
    at NUL in librdkafka.
    """
    key, value, headers, partition, topic = row
    target = targets.get(topic)
    if target is None:
        return "column 'topic'"
    if partition is not None and not 0 <= partition < target.partitions:
        return "column 'partition'"
    if any(
        header is None or header[0] is None or not is_utf8(header[0]) or b"\0" in header[0]
        for header in headers or ()
    ):
        return "column 'headers'"
    if target.compacted and key is None:
        return "null in the column 'key'"
    is_large = batch_bytes(key, value, headers or ()) > target.bytes_max
    return f"larger than the {target.bytes_max} that the topic" if is_large else None


def content(row: Row) -> Content:
    key, value, headers, _, topic = row
    return topic.decode(), key, value, tuple((name, text) for name, text in headers or ())


# ---- writing ---------------------------------------------------------------------------------


def frame_of(rows: Sequence[Row], value_kind: Any = VALUE, key_kind: Any = KEY) -> Frame:
    columns = tuple(list(column) for column in zip(*rows, strict=True))
    return Frame(NAMES, (key_kind, value_kind, HEADERS, INT, STRING), columns, len(rows))


def write(
    sink: OpenedSink,
    frames: Sequence[Frame],
    rng: random.Random,
    tally: Tally,
    by: dict[bytes, Target],
) -> None:
    """One epoch: a task for each frame, some of them at the second try; the rows that come back
    are the right ones.
    """
    sink.sequence += 1
    order = WriteOrder(sink.run, sink.sequence, 0, sink.sequence)
    prepared = []
    for number, frame in enumerate(frames):
        while True:
            writer = sink.opened.writers.open(order, TaskName(number, 0, 0))
            rejection = writer.write(frame.batch())
            if rng.random() < 0.2:
                writer.abort()
                continue
            one = writer.prepare()
            prepared += [one] if one is not None else []
            break
        rows = [frame.row(n) for n in range(frame.count)]
        refused = [row for row in rows if trouble(row, by)]
        handed_back: list[Row] = []
        if rejection is not None:
            columns = [
                from_arrow(k, rejection.rows.column(n))
                for k, n in zip(frame.kinds, NAMES, strict=True)
            ]
            handed_back = list(zip(*columns, strict=True))
            for row, reason in zip(handed_back, rejection.reasons, strict=True):
                assert (trouble(row, by) or "") in reason, (row, reason)
        assert handed_back == refused, f"seed {tally.seed}: {differing(handed_back, refused)}"
        tally.aside += len(refused)
        tally.given.update((content(row), row[3]) for row in rows if not trouble(row, by))
    verified = sink.participant.verify(prepared)
    mine = {p.identity for p in verified}
    sink.participant.abort([s for s in sink.participant.list_open() if s.identity not in mine])
    if rng.random() < 0.1:
        sink.participant.abort(sink.participant.list_open())
        for frame in frames:
            gone = [row for row in map(frame.row, range(frame.count)) if not trouble(row, by)]
            tally.given.subtract((content(row), row[3]) for row in gone)
            tally.aside -= frame.count - len(gone)
        write(sink, frames, rng, tally, by)
    elif verified:
        sink.participant.commit(sink.permit(verified), verified)


def differing(one: Sequence[Row], other: Sequence[Row]) -> str:
    """The first rows in one list alone, short enough to be read."""
    shown = (
        [row for row in one if row not in other][:3],
        [row for row in other if row not in one][:3],
    )
    return f"handed back alone: {shown[0]!r:.1000}; expected alone: {shown[1]!r:.1000}"


# ---- reading ---------------------------------------------------------------------------------


def read(broker: Broker, target: Target) -> Iterator[tuple[int, Content]]:
    """By kafka-python, as librdkafka's consumers show the name of a header up to its first NUL."""
    wait_for_rest(
        broker.servers, [TopicPartition(target.name, i) for i in range(target.partitions)]
    )
    partitions = [Partition(target.name, i) for i in range(target.partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=broker.servers, isolation_level="read_committed", enable_auto_commit=False
    )
    try:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        late_s = time.monotonic() + WAIT_MAX_S
        while any(consumer.position(p) < end for p, end in ends.items()):
            assert time.monotonic() < late_s, f"{target.name} could not be read to its end"
            for records in consumer.poll(500, max_records=10_000).values():
                for r in records:
                    headers = tuple(
                        (n.encode(), None if v is None else bytes(v)) for n, v in r.headers
                    )
                    key, value = (None if d is None else bytes(d) for d in (r.key, r.value))
                    yield r.partition, (target.name, key, value, headers)
    finally:
        consumer.close()


def check(broker: Broker, targets: Sequence[Target], tally: Tally) -> None:
    """Every row that was given is there, in its partition, and nothing else is."""
    left = +tally.given
    for target in targets:
        for partition, found in read(broker, target):
            tally.stored += 1
            asked = partition if left[found, partition] else None
            assert left[found, asked], (
                f"seed {tally.seed}: altered, or there twice: {partition}, {found!r:.2000}"
            )
            left[found, asked] -= 1
            key = found[1]
            if asked is None and key is not None:
                assert partition == (murmur2(key) & 0x7FFFFFFF) % target.partitions  # as Java
    left = +left
    assert not left, f"seed {tally.seed}: {left.total()} rows are lost: {list(left)[:3]!r:.2000}"
    assert tally.stored == tally.given.total()


# ---- the tests -------------------------------------------------------------------------------


def rows_of(rng: random.Random, count: int, targets: Sequence[Target]) -> list[Row]:
    """Keys, values and headers of every sort, most of them with a target that there is."""
    made = bulk(NAMES[:3], [KEY, VALUE, HEADERS], count, rng, edge_share=rng.choice(ODD_SHARES))
    names, odd = [target.name.encode() for target in targets], odd_topics(targets)
    near = range(NARROW_BYTES - 130, NARROW_BYTES + 10)
    rows = []
    for number in range(count):
        key, value, headers = made.row(number)
        if rng.random() < 0.02:
            value = bytes(rng.choice(near))
        partition = (
            rng.choice((None, None, None, 0, 0, 0, 1, 2, 3, -1, 4, 2**31 - 1))
            if rng.random() < 0.2
            else None
        )
        rows.append(
            (key, value, headers, partition, rng.choice(odd if rng.random() < 0.05 else names))
        )
    return rows


@pytest.mark.parametrize("count", [4_000, pytest.param(100_000, marks=pytest.mark.deep)])
def test_many_rows(broker: Broker, targets: list[Target], count: int) -> None:
    """From a seed that is printed: none is altered, lost, there twice or refused without need."""
    tally = Tally(seed_of_run())
    rng = random.Random(tally.seed)
    by = {target.name.encode(): target for target in targets}
    batches = [rows_of(rng, BATCH_ROWS, targets) for _ in range(0, count, BATCH_ROWS)]
    while batches:
        own = rng.choice([None, *targets])  # a sink with a topic, or without one
        producer: dict[str, object] = {"compression.type": rng.choice(CODECS)}
        sink = broker.sink(own and own.name, producer=producer)
        with opened(sink, f"q{len(batches)}") as run:
            for _ in range(rng.randrange(1, 4)):
                taken = [batches.pop() for _ in range(min(len(batches), rng.randrange(1, 6)))]
                if own is not None:  # which reads no column of that name
                    taken = [[(*row[:4], own.name.encode()) for row in part] for part in taken]
                kinds = rng.choice([VALUE, KEY]), rng.choice([VALUE, KEY])
                write(run, [frame_of(part, *kinds) for part in taken], rng, tally, by)
    check(broker, targets, tally)
    print(
        f"{count} rows: {tally.stored} stored, {tally.aside} put aside, 0 altered; "
        f"EXACTUM_SEED={tally.seed}"
    )
    assert tally.stored + tally.aside == count
    assert tally.aside > count // 100


def test_through_a_query(
    spark: SparkSession, broker: Broker, targets: list[Target], tmp_path: Path
) -> None:
    """Rows of Spark: what cannot be taken stands in the dead letters, with its bytes and the
    reason.
    """
    tally = Tally(seed_of_run())
    rows = rows_of(random.Random(tally.seed), 1_000, targets)
    by, dead = (
        {target.name.encode(): target for target in targets},
        Target(broker.topic("dead", partitions=1), 1),
    )
    (tmp_path / "in").mkdir()
    pq.write_table(
        pa.Table.from_batches([frame_of(rows).batch()]), tmp_path / "in" / "rows.parquet"
    )
    schema = ", ".join(
        f"{name} {kind.simple}" for name, kind in zip(NAMES, frame_of(rows).kinds, strict=True)
    )
    servers = broker.servers
    query = exactum.exactly_once(
        KafkaSink(bootstrap_servers=servers),
        dead_letters=broker.sink(dead.name),
    ).start(
        spark.readStream.schema(schema)
        .parquet(str(tmp_path / "in"))
        .writeStream.trigger(availableNow=True),
        checkpoint=tmp_path / "checkpoint",
    )
    assert query.awaitTermination(WAIT_MAX_S)
    assert query.exception() is None
    tally.given.update((content(row), row[3]) for row in rows if not trouble(row, by))
    check(broker, targets, tally)
    letters = [found for _, found in read(broker, dead)]
    refused = [row for row in rows if trouble(row, by)]
    assert Counter((key, value) for _, key, value, _ in letters) == Counter(
        (row[0], row[1]) for row in refused
    )
    assert all(
        b"the record with key" in (dict(headers)[b"exactum.error"] or b"")
        for *_, headers in letters
    )
