"""Headers in columns: as Spark's own source shows them, whichever way they take into Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

import exactum
from tests.kit.kafka.broker import Broker
from tests.kit.source.columnar_ways import PACKED, ROWS, WAYS, run, written
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S
from tests.source.test_columnar import schemas, sizes

pytestmark = [pytest.mark.broker, pytest.mark.spark]

Headers = list[tuple[str, bytes | None]]
KINDS: tuple[Headers, ...] = (
    [],
    [("a", b"1")],
    [("a", b"1"), ("a", None), ("", b""), ("é€", b"\x00\xff")],
    [("n" * 300, b"v" * 300)] * 20,
    [("null", None)],
)
MIXED = "records with and without headers"
GIVEN: dict[str, Sequence[Headers]] = {
    MIXED: [KINDS[number % len(KINDS)] for number in range(203)],
    "no record without": [KINDS[2]] * 9,
    "no record with": [[]] * 9,
    "none but nulls": [KINDS[4], [], KINDS[4]],
}


def give(broker: Broker, topic: str, given: Sequence[Headers]) -> None:
    producer = Producer({"bootstrap.servers": broker.servers})
    for number, headers in enumerate(given):
        key = (None, b"k")[number % 2]
        producer.produce(topic, b"%d" % number, key, partition=0, headers=headers or None)
    assert producer.flush(WAIT_MAX_S) == 0


def shown(headers: Headers) -> list[dict[str, Any]] | None:
    """As the source has them: null where there are none."""
    return [{"key": name, "value": value} for name, value in headers] or None


# Records that all have headers are among the mixed ones, of which the last epoch has some.
@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "given",
    [
        pytest.param(given, id=name, marks=pytest.mark.deep if name == "no record without" else ())
        for name, given in GIVEN.items()
    ],
)
def test_every_way(
    make_stream: Any, broker: Broker, packed_jobs: list[Any], given: Sequence[Headers]
) -> None:
    """The same Arrow types and values, in epochs that begin and end amid the records."""
    name = broker.topic("headers", partitions=1)
    found = []
    for way in WAYS:
        stream = make_stream()
        give(stream.broker, name, given) if way == ROWS else None
        packed_jobs.clear()
        with configured(stream.spark, WAYS[way]):
            frame = stream.read(name, includeHeaders=True, maxOffsetsPerTrigger=150)
            assert run(stream, frame if way == ROWS else in_columns(frame)) is None
        assert bool(packed_jobs) == (way == PACKED)
        found.append((schemas(stream), written(stream.out)))
    assert [row["headers"] for row in found[0][1]] == [shown(headers) for headers in given]
    assert found[0] == found[1] == found[2]


@pytest.mark.deep
def test_expressions(broker: Broker, make_stream: Any, packed_jobs: list[Any]) -> None:
    """Whatever Spark computes of headers it computes of the columns, compiled or not."""
    name = broker.topic("headers", partitions=1)
    found = []
    give(broker, name, GIVEN[MIXED])
    for way, compiled in ((ROWS, "true"), (PACKED, "true"), (PACKED, "false")):
        stream = make_stream()
        plain = {"spark.sql.codegen.wholeStage": compiled, **WAYS[way]}
        with configured(stream.spark, plain):
            frame = stream.read(name, includeHeaders=True).selectExpr(
                "partition",
                "offset",
                "headers IS NULL AS without",
                "size(headers) AS count",
                "try_element_at(headers, -1).value AS last",
                "transform(headers, h -> upper(h.key)) AS names",
                "filter(headers, h -> h.value IS NULL) AS nulls",
                "map_from_entries(array_distinct(slice(headers, 1, 1))) AS first",
                "array_sort(headers) AS sorted",
                "named_struct('all', headers) AS struct",
            )
            assert run(stream, frame) is None
        found.append((schemas(stream), written(stream.out)))
    assert [row["without"] for row in found[0][1]] == [not headers for headers in GIVEN[MIXED]]
    assert found[0] == found[1] == found[2]
    assert packed_jobs == []


def test_headers_count_for_the_size_of_a_batch(
    stream: Any, broker: Broker, packed_jobs: list[Any]
) -> None:
    """Small records with large headers do not come ten thousand at a time."""
    name = broker.topic("headers", partitions=1)
    give(stream.broker, name, [[("h", b"x" * 100_000)] * 5] * 20)
    assert run(stream, stream.read(name, includeHeaders=True)) is None
    assert [len(row["headers"]) for row in written(stream.out)] == [5] * 20
    assert packed_jobs
    assert 2_000_000 < max(sizes(stream)) < 3_000_000


def test_headers_without_a_byte_count_as_well(
    stream: Any, broker: Broker, packed_jobs: list[Any]
) -> None:
    """Compressed they are next to nothing to a broker, and many objects to whoever reads them."""
    name = broker.topic("headers", partitions=1)
    give(stream.broker, name, [[("", None)] * 1_000] * 200)
    assert run(stream, stream.read(name, includeHeaders=True)) is None
    assert [len(row["headers"]) for row in written(stream.out)] == [1_000] * 200
    assert packed_jobs
    assert len(sizes(stream)) > 4, "not all of them came at once"


def test_from_topic_to_topic(stream: Any, broker: Broker, packed_jobs: list[Any]) -> None:
    """A copy, exactly once: each record with its headers, in their order."""
    source, target = broker.topic("headers", partitions=1), broker.topic("copied", partitions=1)
    give(stream.broker, source, GIVEN[MIXED])
    frame = stream.read(source, includeHeaders=True, maxOffsetsPerTrigger=60)
    once = exactum.exactly_once(exactum.KafkaSink(target, bootstrap_servers=stream.broker.servers))
    writer = frame.selectExpr("key", "value", "headers").writeStream.trigger(availableNow=True)
    assert stream.end(once.start(writer, checkpoint=stream.checkpoint)) is None
    assert broker.read(target) == broker.read(source)
    assert len(packed_jobs) == 4
