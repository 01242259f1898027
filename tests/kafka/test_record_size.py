"""The largest record that arrives, and the smallest that is handed back: exact, for every limit
and compression. (Records of every size, in every codec, into a topic with a small limit beside
others: tests/abuse/test_kafka_rows.py.)
"""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

from exactum.kafka.records import after_recompression
from exactum.kafka.sink import KafkaSink
from exactum.local import LocalKafka
from tests.kit.kafka.broker import Broker
from tests.kit.kafka.record_bytes import batch_bytes
from tests.kit.kafka.transactions import frame, opened, read_all

pytestmark = pytest.mark.broker

LIMIT = 20_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def fitting(limit: int) -> bytes:
    """Random bytes, which no codec makes smaller, for a record with the key ``k`` that fills a batch of
    just ``limit`` bytes.
    """
    value = os.urandom(limit)
    while batch_bytes(b"k", value) > limit:
        value = value[:-1]
    assert batch_bytes(b"k", value) == limit
    return value


@pytest.mark.variants(1)
@pytest.mark.parametrize("limit", [300, 1_000, 3_000_000, 2_147_483_647])
def test_limits_that_librdkafka_does_not_take_for_its_own(broker: Broker, limit: int) -> None:
    """From a topic's smallest to its largest; a sink without a topic of its own goes by the
    topic's as well.
    """
    shown = min(limit, 4_000_000)
    name = broker.topic(f"limit-{limit}", partitions=1, config={"max.message.bytes": limit})
    value = fitting(shown)
    batch = frame([value, value + b"!"], [b"k", b"k"], topic=pa.array([name] * 2))
    for own_topic in (name, None):
        with opened(broker.sink(own_topic)) as run:
            run.epoch(batch)
            assert (not run.rejections) == (limit > shown)
    expected = [value, value + b"!"] if limit > shown else [value]
    assert broker.values(name) == expected * 2


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("made_anew", "codec"),
    [
        (a, c)
        for a in (*CODECS[1:], "uncompressed")
        for c in sorted({"none", a, "zstd"} - {"uncompressed"})
    ],
)
def test_a_topic_whose_broker_compresses_anew(broker: Broker, made_anew: str, codec: str) -> None:
    """What it makes of random bytes is a little larger, and counts: what is not handed back
    arrives.
    """
    name = broker.topic(
        "anew", partitions=1, config={"max.message.bytes": LIMIT, "compression.type": made_anew}
    )
    most = LIMIT if made_anew == "uncompressed" else after_recompression(LIMIT)
    value = fitting(most)
    many = [os.urandom(100) for _ in range(3 * LIMIT // 100)]  # which fill batches to their end
    batch = frame([value, value + b"!", *many], [b"k"] * (2 + len(many)))
    sink = broker.sink(name, producer={"compression.type": codec})
    with opened(sink) as run:
        run.epoch(batch)
        (rejection,) = run.rejections
    assert rejection.rows.num_rows == 1
    assert broker.values(name) == [value, *many]


def test_librdkafkas_own_limit(broker: Broker) -> None:
    """Where the user sets it below the topic's: 36 bytes less, whatever the lengths."""
    name = broker.topic("own-limit", partitions=1)
    producer = {"message.max.bytes": LIMIT}
    fits = b"x" * (LIMIT - 36 - 1)
    keys, values = [b"k", b"k", b"kk"], [fits, fits + b"!", fits]
    with opened(broker.sink(name, producer=producer)) as run:
        run.epoch(frame(values, keys))
        (rejection,) = run.rejections
    assert [len(value) for value in rejection.rows.column("value").to_pylist()] == [
        len(fits) + 1,
        len(fits),
    ]
    assert "message.max.bytes of the sink's producer settings" in rejection.reasons[0]
    assert len(broker.read(name)) == 1


def test_a_queue_that_could_not_hold_a_record(broker: Broker) -> None:
    """It would be waited for until a timeout, again and again: so it holds the largest."""
    name = broker.topic("queue", partitions=1, config={"max.message.bytes": 3_000_000})
    large = b"x" * 2_900_000
    with opened(broker.sink(name, producer={"queue.buffering.max.kbytes": 1024})) as run:
        run.epoch(frame([large, b"small", large]))
        assert run.rejections == []
    assert broker.values(name) == [large, b"small", large]


@pytest.mark.deep
@pytest.mark.parametrize("own_topic", [True, False])
def test_a_record_larger_than_a_request_may_be(own_topic: bool) -> None:
    """A broker ends the connection of a client that sends more, and would do so again and again."""
    limit = 200_000
    with LocalKafka(properties={"socket.request.max.bytes": limit}) as cluster:
        cluster.create_topic("large", partitions=1, config={"max.message.bytes": 10 * limit})
        fits = b"x" * (limit - 4_096 - 36)
        batch = frame([fits, fits + b"!"], topic=pa.array(["large"] * 2))
        for producer in ({}, {"message.max.bytes": 5 * limit}):
            sink = KafkaSink(
                "large" if own_topic else None,
                bootstrap_servers=cluster.bootstrap_servers,
                transactional_id_prefix="long-" * 40,
                producer=producer,
            )
            with opened(sink) as run:
                run.epoch(batch)
                (rejection,) = run.rejections
            assert "socket.request.max.bytes" in rejection.reasons[0]
        assert [r.value for r in read_all(cluster.bootstrap_servers, "large")] == [fits] * 2
