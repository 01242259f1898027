"""Headers of whole columns arrive as they were given: each with its record, and in order."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from exactum.kafka import librdkafka, messages
from exactum.kafka.failure import DeliveryError
from exactum.kafka.producer import Producer
from exactum.kafka.records import FIELDS_MAX, FIELDS_OF_A_RECORD, HeaderColumn
from exactum.protocol.sink import TaskName, WriteOrder
from tests.kit.errors import raised
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.transactions import frame, opened

pytestmark = pytest.mark.broker

Headers = Sequence[tuple[str, bytes | None]] | None
TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NARROW_QUEUE = {"queue.buffering.max.messages": 50, "batch.num.messages": 50}
LARGE = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))


def column(rows: Sequence[Headers], kind: pa.DataType = TYPE) -> pa.Array:
    cells = [None if row is None else [{"key": n, "value": v} for n, v in row] for row in rows]
    return pa.array(cells, kind)


def made_up(count: int) -> list[Headers]:
    """None, none at all, and up to four of each row, with names and values of all sorts."""
    chance = random.Random(7)
    names = ["", "a", "trace-id", "é€", "n" * 300]
    values = [None, b"", b"\0", b"v", b"w" * 300]
    return [
        None
        if chance.random() < 0.1
        else [(chance.choice(names), chance.choice(values)) for _ in range(chance.randrange(5))]
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("kind", "producer"),
    [
        pytest.param(TYPE, {}, id="plain"),
        pytest.param(LARGE, {}, id="large types"),
        # Each waits for its turn; none is lost, doubled or overtaken.
        pytest.param(TYPE, NARROW_QUEUE, id="a queue with less room than the rows need"),
    ],
)
def test_every_record_keeps_its_own(
    broker: Broker, kind: pa.DataType, producer: dict[str, int]
) -> None:
    """More rows than are made ready at a time, out of the middle of an array."""
    name = broker.topic("own-headers", partitions=1)
    rows = made_up(FIELDS_MAX // 2)
    values = [str(number).encode() for number in range(len(rows))]
    whole = frame(values, None, headers=column(rows, kind))
    with opened(broker.sink(name, producer=producer)) as sink:
        sink.epoch(whole.slice(3, len(rows) - 5))
        assert sink.rejections == []
    expected = [(value, tuple(row or ())) for value, row in zip(values, rows, strict=True)][3:-2]
    assert [(record.value, record.headers) for record in broker.read(name)] == expected


@pytest.mark.parametrize("most", [0, 3, FIELDS_MAX, 2 * FIELDS_MAX])
def test_few_are_made_ready_at_a_time(most: int) -> None:
    """However many a record has: a record has all of its own at once."""
    counts = [0, most, 1] + [0] * (FIELDS_MAX // FIELDS_OF_A_RECORD)
    rows = np.arange(len(counts))
    headers = HeaderColumn(column([[("", None)] * count for count in counts]))
    parts = [rows[part] for part in headers.parts(rows)]
    assert np.concatenate(parts).tolist() == rows.tolist()
    for part in parts:
        fields = sum(counts[row] + FIELDS_OF_A_RECORD for row in part)
        assert fields <= FIELDS_MAX or len(part) == 1


@pytest.mark.parametrize("where", ["headers", "keys"])
def test_what_the_queue_does_not_count_is_bounded(where: str) -> None:
    """librdkafka's own limit looks at values: without a bound of ours, a broker that does not answer
    would leave a worker without memory.
    """
    large = b"x" * 10_000
    keys = [large if where == "keys" else b""] * 1_000
    held = column([[("h", large)] if where == "headers" else []] * 1_000)
    batch = frame([b""] * 1_000, keys, headers=held)
    if where == "keys":
        batch = batch.drop_columns(["headers"])
    producer = Producer({"bootstrap.servers": "127.0.0.1:1"})
    try:
        for _ in range(messages.UNCOUNTED_BYTES_MAX // 10_000_000):
            messages.produce(producer, batch, "t", timeout_ms=300)
        with raised(DeliveryError, " 300 ms") as late:
            messages.produce(producer, batch, "t", timeout_ms=300)
        assert late.value.code == librdkafka.ERR_TIMED_OUT
    finally:
        producer.destroy()


@pytest.mark.parametrize("with_headers", [False, True])
def test_the_memory_of_a_batch_may_be_used_again(broker: Broker, with_headers: bool) -> None:
    """Its task goes on while the records wait: all that they have was copied."""
    name = broker.topic("memory", partitions=1)
    memory = bytearray(b"abcdefgh" * 2)

    def texts(begin: int, kind: pa.DataType) -> pa.Array:
        offsets = pa.py_buffer(array("i", [begin, begin + 2, begin + 4]).tobytes())
        return pa.Array.from_buffers(kind, 2, [None, offsets, pa.py_buffer(memory)])

    columns = {"key": texts(0, pa.binary()), "value": texts(4, pa.binary())}
    if with_headers:
        parts = [texts(8, pa.string()), texts(12, pa.binary())]
        cells = pa.StructArray.from_arrays(parts, names=["key", "value"])
        columns["headers"] = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), cells)
    with opened(broker.sink(name)) as sink:
        writer = sink.opened.writers.open(WriteOrder(sink.run, 1, 0, 1), TaskName(0, 0, 0))
        assert writer.write(pa.record_batch(columns)) is None
        memory[:] = b"-" * len(memory)
        writer.prepare()
        records = broker.read(name, committed=False)
    expected = [
        (b"ab", b"ef", (("ab", b"ef"),) if with_headers else ()),
        (b"cd", b"gh", (("cd", b"gh"),) if with_headers else ()),
    ]
    assert [(r.key, r.value, r.headers) for r in records] == expected
