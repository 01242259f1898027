"""Small micro-batches whose partitions one task reads at the same time: the same records as by Spark's
consumers, and the same errors.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from exactum import events
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.source.columnar_ways import LAZY, PACKED, WAYS, notes_of, written
from tests.kit.source.columnar_ways import run as into_parquet
from tests.kit.source.source_stream import Heard, transactions
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S

PARTITIONS = 5
LARGE = 2_000_000
"""Bytes of the largest record that a topic takes here."""
BY_BOTH = pytest.mark.parametrize("way", [PACKED, LAZY])


def give(broker: Broker, name: str, values: list[bytes], partitions: int) -> None:
    """To the partitions in turn."""
    producer = producer_to(broker.servers, {"message.max.bytes": LARGE})
    for place, value in enumerate(values):
        producer.produce(name, value, partition=place % partitions)
    assert producer.flush(WAIT_MAX_S) == 0


@pytest.fixture
def read(stream: Any, way: str) -> Any:
    """The query to its end, over a topic, so many records at a time; the text of its error, or
    None.
    """

    def read(name: str, at_most: int, **options: Any) -> str | None:
        frame = stream.read(name, maxOffsetsPerTrigger=at_most, **options)
        with configured(stream.spark, WAYS[way]):
            return into_parquet(stream, frame)

    return read


@BY_BOTH
def test_every_record_once_and_in_order(
    stream: Any, broker: Broker, read: Callable[..., str | None]
) -> None:
    """In partitions of other lengths each, so that the partitions of a micro-batch change; with
    transactions among the records, the aborted ones of which are left out.
    """
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    name = broker.topic("gathered", partitions=PARTITIONS)
    committed = []
    producer = broker.initialised(f"gathered-{name}")
    for number in range(40):
        producer.begin_transaction()
        values = [
            (rng.randrange(rng.randint(1, PARTITIONS)), b"%d-%d" % (number, row))
            for row in range(rng.randint(1, 12))
        ]
        for partition, value in values:
            producer.produce(name, value, partition=partition, headers=[("n", value)])
        producer.flush(WAIT_MAX_S)
        if rng.random() < 0.3:
            producer.abort_transaction(WAIT_MAX_S)
        else:
            producer.commit_transaction(WAIT_MAX_S)
            committed += values
    assert read(name, 40, includeHeaders=True) is None
    found = [(row["partition"], row["value"]) for row in written(stream.out)]
    assert found == sorted(committed, key=lambda each: each[0]), seed
    assert all(r["headers"] == [{"key": "n", "value": r["value"]}] for r in written(stream.out))
    for file in stream.out.glob("part-*"):
        rows = pq.ParquetFile(file).read(["partition", "offset"]).to_pylist()
        for partition in range(PARTITIONS):
            offsets = [row["offset"] for row in rows if row["partition"] == partition]
            assert offsets == sorted(offsets), seed
    assert len(transactions(stream)) > 4 and set(transactions(stream)[2:]) <= {0, 1}, seed


@BY_BOTH
@pytest.mark.parametrize("tolerant", [False, True])
def test_records_that_are_gone(
    stream: Any, topics: Any, read: Callable[..., str | None], tolerant: bool
) -> None:
    """From one of the partitions, deleted before the fourth micro-batch is read: an error, or passed
    over where that is accepted, and the others are read whole.
    """
    name = topics.topic("gone", partitions=3)
    topics.give(name, 24, partitions=3)

    def noted(event: Any) -> None:
        if isinstance(event, events.EpochBegan) and event.batch_id == 3:
            topics.delete_before(name, 1, 20)

    stream.events = Heard(noted)
    error = read(name, 18, failOnDataLoss=not tolerant)
    found = [(row["partition"], row["offset"]) for row in written(stream.out)]
    if tolerant:
        assert error is None
        gone = {(1, offset) for offset in (18, 19)}
        assert found == [(p, n) for p in range(3) for n in range(24) if (p, n) not in gone]
    else:
        assert "failOnDataLoss" in str(error)
        assert found == [(p, n) for p in range(3) for n in range(18)]
    assert transactions(stream)[2] == 1


@BY_BOTH
def test_large_records(stream: Any, broker: Broker, read: Callable[..., str | None]) -> None:
    """Larger than what is fetched of a partition at a time."""
    name = broker.topic("large", partitions=3, config={"max.message.bytes": LARGE})
    values = [bytes([number]) * 900_000 for number in range(18)]
    give(broker, name, values, 3)
    assert read(name, 6) is None
    found = [(row["partition"], row["value"]) for row in written(stream.out)]
    assert found == [(p, values[n]) for p in range(3) for n in range(p, 18, 3)]


def test_arrays_stay_small(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """Keys and values of several partitions come in one array, but for large ones."""
    name = broker.topic("arrays", partitions=6, config={"max.message.bytes": LARGE})
    values = [bytes([number]) * 900_000 for number in range(36)]
    values += [b"%d" % number for number in range(36)]
    give(broker, name, values, 6)
    frame = stream.read(name, maxOffsetsPerTrigger=18).select("value")
    assert into_parquet(stream, frame) is None
    assert packed_jobs
    read = [pq.ParquetFile(file).read().to_pylist() for file in stream.out.glob("part-*")]
    assert sorted(row["value"] for rows in read for row in rows) == sorted(values)
    sizes = [int(note.read_text().partition("\n")[0]) for note in notes_of(stream.out).iterdir()]
    assert max(sizes) < 4_000_000
    assert transactions(stream)[-2:] == [1, 1] and len(sizes) < len(values)
