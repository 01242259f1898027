"""Consumers that stay between ranges, on a real broker: what they hand out, also after they were
sent elsewhere, and what they refuse.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.kafka.consumer.consumed import Consumed, binary
from exactum.kafka.consumer.kept_consumers import IDLE_MAX_S, KeptConsumers
from exactum.kafka.consumer.topic_consumer import Range, RangeRead, TopicConsumer
from exactum.kafka.settings.consumer_settings import consumer_settings
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.broker

TIMEOUT_S = WAIT_MAX_S


def settings(servers: str, isolation: str = "read_committed", **options: str) -> dict[str, str]:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    given["kafka.bootstrap.servers"] = servers
    return consumer_settings(given, {}, isolation, 2, "the test")


def shape(_partition: int, records: Consumed) -> Any:
    return pa.RecordBatch.from_arrays(
        [pa.array(records.offsets.copy()), records.keys(), records.values()],
        names=["offset", "key", "value"],
    )


def read(consumer: TopicConsumer, *ranges: Range, timeout_s: float = TIMEOUT_S) -> list[Any]:
    batches = consumer.read(ranges, shape, timeout_s, [])
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def consumers() -> Iterator[Callable[..., TopicConsumer]]:
    made: list[TopicConsumer] = []

    def make(name: str, given: dict[str, str]) -> TopicConsumer:
        made.append(TopicConsumer(name, given))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def filled(kafka: Any, topic: Any, count: int, **config: Any) -> tuple[str, list[Any]]:
    """A topic of one partition; keys and values of all kinds, null, empty, short and long."""
    name = topic("ranges", partitions=1, config=config)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
    rng = random.Random(count)
    kinds = (lambda: None, lambda: b"", lambda: b"x" * rng.randrange(60), lambda: os.urandom(3))
    rows = []
    for number in range(count):
        key, value = rng.choice(kinds)(), rng.choice(kinds)()
        producer.produce(name, key=key, value=value, partition=0)
        rows.append((number, key, value))
    assert producer.flush(WAIT_MAX_S) == 0
    return name, rows


def test_ranges_in_any_order(kafka: Any, topic: Any, consumers: Any) -> None:
    """On, back, into the middle of what was read ahead, and again: each time what is asked for."""
    name, rows = filled(kafka, topic, 3_000)
    consumer = consumers(name, settings(kafka.bootstrap_servers))
    rng = random.Random(1)
    at = 0
    for _ in range(40):
        first = at if rng.random() < 0.6 and at < 2_900 else rng.randrange(2_900)
        until = min(3_000, first + rng.choice((1, 7, 90, 800)))
        assert read(consumer, Range(0, first, until)) == rows[first:until]
        at = until


def test_ranges_of_one_partition(kafka: Any, topic: Any, consumers: Any) -> None:
    """As Spark plans them with minPartitions: in their order."""
    name, rows = filled(kafka, topic, 100)
    consumer = consumers(name, settings(kafka.bootstrap_servers))
    assert read(consumer, Range(0, 60, 80), Range(0, 10, 60), Range(0, 90, 100)) == [
        *rows[10:80],
        *rows[90:],
    ]


def test_a_reader_that_is_left_in_the_middle(kafka: Any, topic: Any, consumers: Any) -> None:
    name, rows = filled(kafka, topic, 2_000)
    consumer = consumers(name, settings(kafka.bootstrap_servers))
    batches = consumer.read([Range(0, 0, 2_000)], shape, TIMEOUT_S, [])
    assert next(batches).num_rows < 2_000
    batches.close()
    assert read(consumer, Range(0, 0, 2_000)) == rows


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_what_is_visible(kafka: Any, topic: Any, consumers: Any, isolation: str) -> None:
    """And the first offset without a record is told."""
    name = topic("visible", partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(WAIT_MAX_S)
    for number in range(12):
        producer.begin_transaction()
        producer.produce(name, b"%d" % number, partition=0)
        assert producer.flush(WAIT_MAX_S) == 0
        (producer.abort_transaction if number % 3 else producer.commit_transaction)(30)
    consumer = consumers(name, settings(kafka.bootstrap_servers, isolation))
    step = 6 if isolation == "read_committed" else 2
    visible = range(0, 24, step)
    for first in range(0, 24, 3):
        reads: list[RangeRead] = []
        found = [
            offset
            for batch in consumer.read([Range(0, first, first + 3)], shape, TIMEOUT_S, reads)
            for offset in batch.column("offset").to_pylist()
        ]
        assert found == [offset for offset in range(first, first + 3) if offset in visible]
        missing = next(offset for offset in range(first, first + 3) if offset not in visible)
        assert reads == [RangeRead(0, len(found), missing)]


def test_offsets_that_are_not_there(kafka: Any, topic: Any, consumers: Any) -> None:
    name, rows = filled(kafka, topic, 10)
    consumer = consumers(name, settings(kafka.bootstrap_servers))
    with pytest.raises(CheckpointRefused, match=f"'{name}' .* from offset 50 of partition 0"):
        read(consumer, Range(0, 50, 60))
    assert read(consumer, Range(0, 0, 10)) == rows, "the next range is read as ever"
    with pytest.raises(Unavailable, match=r"at offset 10, which is to be read to 12"):
        read(consumer, Range(0, 5, 12), timeout_s=1.0)
    with pytest.raises(Unavailable, match="partition 7"):
        read(consumer, Range(7, 0, 1), timeout_s=1.0)


def test_records_that_are_damaged(kafka: Any, topic: Any, consumers: Any) -> None:
    """A byte of the log is another one: the checksum is looked at."""
    name, _ = filled(kafka, topic, 10)
    (log,) = kafka.data_dir.glob(f"**/{name}-0/*.log")
    with log.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    consumer = consumers(name, settings(kafka.bootstrap_servers))
    with pytest.raises(Unavailable, match="offset 0 of partition 0: Local: Bad message format"):
        read(consumer, Range(0, 0, 10))


def test_a_broker_that_does_not_answer(consumers: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]}"
        consumer = consumers("none", settings(servers))
        began_s = time.monotonic()
        with pytest.raises(Unavailable, match=r"nothing came for 0\.5 s of partition 0"):
            read(consumer, Range(0, 0, 1), timeout_s=0.5)
        assert time.monotonic() - began_s < 10


def test_a_broker_that_is_away(consumers: Any) -> None:
    """The error says what librdkafka has met."""
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    consumer = consumers("none", settings(f"127.0.0.1:{port}"))
    with pytest.raises(Unavailable, match=rf"partition 0 .*127\.0\.0\.1:{port}.*refused"):
        read(consumer, Range(0, 0, 1), timeout_s=1.0)


def test_what_is_kept(consumers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the same topic, id and settings; closed where the topic is another one, or it
    was not used for long."""
    closed: list[TopicConsumer] = []

    def close(self: TopicConsumer) -> None:
        closed.append(self)

    monkeypatch.setattr(TopicConsumer, "close", close)
    kept = KeptConsumers(consumers)
    plain = tuple(sorted(settings("127.0.0.1:9").items()))
    first = kept.of("one", "id", plain)
    assert kept.of("one", "id", plain) is first
    other = kept.of("two", "id", plain)
    assert other is not first
    assert closed == []
    anew = kept.of("one", "another id", plain)
    assert anew is not first
    assert closed == [first]
    other.used_s -= 2 * IDLE_MAX_S
    assert kept.of("one", "another id", plain) is anew
    assert closed == [first, other]
    monkeypatch.undo()
    closed.clear()


def test_settings() -> None:
    given = settings("b:9", client_id="me", request_timeout_ms="7000", max_poll_records="5")
    assert given["client.id"] == "me"
    assert given["socket.timeout.ms"] == "7000"
    assert "max.poll.records" not in given
    assert settings("b:9", check_crcs="false")["check.crcs"] == "true"
    assert settings("b:9", "read_uncommitted")["isolation.level"] == "read_uncommitted"
    ahead = [
        consumer_settings({"kafka.bootstrap.servers": "b:9"}, {}, "read_committed", count, "x")
        for count in (0, 2, 32, 1_000)
    ]
    records = [int(one["queued.min.messages"]) for one in ahead]
    assert records == [100_000, 100_000, 6_250, 2_000], "small records cost more than their bytes"
    with pytest.raises(SettingRefused, match="no counterpart of kafka.interceptor.classes"):
        settings("b:9", interceptor_classes="x")
    options = {"kafka.bootstrap.servers": "b:9", "kafka.sasl.kerberos.keytab": "x"}
    own = {"security.protocol": "SSL"}
    with pytest.raises(SettingRefused):
        consumer_settings(options, {}, "read_committed", 1, "the test")
    assert consumer_settings(options, own, "read_committed", 1, "x")["security.protocol"] == "SSL"


def test_the_memory_of_values() -> None:
    """Null, empty, far apart, backwards: the same values in one array."""
    import numpy as np

    rng = random.Random(3)
    pieces = [bytearray(os.urandom(rng.choice((1, 8, 70_000)))) for _ in range(60)]
    for _ in range(50):
        chosen = [rng.choice((None, b"", *pieces)) for _ in range(rng.randrange(1, 30))]
        views = [np.frombuffer(one or b"x", dtype=np.uint8) for one in chosen]
        addresses = np.array(
            [
                0 if one is None else view.ctypes.data
                for one, view in zip(chosen, views, strict=True)
            ],
            dtype=np.uint64,
        )
        sizes = np.array([len(one or b"") for one in chosen], dtype=np.uint64)
        found = binary(addresses, sizes)
        found.validate(full=True)
        assert found.to_pylist() == [None if one is None else bytes(one) for one in chosen]
