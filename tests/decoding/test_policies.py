"""100 poison records of ten kinds in a stream of 10,000: what each policy does with them,
through any plan.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum import events
from exactum.errors import FrameRefused, RowsRefused, SettingRefused, Unavailable
from exactum.protocol.model import Decision, DecisionRecord
from exactum.testing import MemoryDecisionLog, MemoryStorage
from tests.kit.decoding.decoded_stream import (
    ORDER,
    PARTITIONS,
    RECORDS,
    Job,
    Poisoned,
    poisoned,
)
from tests.kit.decoding.registry import Registry, guid_of
from tests.kit.docs.code import blocks
from tests.kit.docs.program import replaced
from tests.kit.environment import ROOT
from tests.kit.errors import check_error, check_query_error, raised
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.kafka.named import topics_named
from tests.kit.waiting import WAIT_MAX_S

TopicFactory = Callable[..., str]


@pytest.fixture(scope="module")
def stream(broker: Broker) -> Iterator[Poisoned]:
    server = Registry()
    topic = "poisoned"
    broker.kafka.create_topic(topic, partitions=PARTITIONS)
    yield poisoned(broker.kafka, topic, server)
    server.close()


def orders(spark: SparkSession, broker: Broker, stream: Poisoned, on_error: str) -> DataFrame:
    source = broker.frame(
        spark,
        stream.topic,
        maxOffsetsPerTrigger=3_000,
        includeHeaders=True,
    )
    value = exactum.Avro(registry=stream.registry.url, subject="orders-value")
    return exactum.decode(source, value, exactum.String(), on_error=on_error, nulls="error")


def stateless(frame: DataFrame) -> DataFrame:
    return frame.select("key", f.col("value.id").cast("string").alias("value"))


def totals(frame: DataFrame) -> DataFrame:
    counted = frame.groupBy(f.col("value.k").cast("string").alias("key")).agg(
        f.count("*").alias("n")
    )
    return counted.select("key", f.col("n").cast("string").alias("value"))


def check_output(broker: Broker, topic: str, stream: Poisoned, *, aggregated: bool) -> None:
    """Every good record is in the output once; of an aggregate, the last total of each key is
    exact.
    """
    found = broker.read(topic)
    if aggregated:
        last = {record.key.decode(): int(record.value) for record in found}
        assert last == {str(k): n for k, n in Counter(i % 10 for i in stream.good()).items()}
    else:
        assert Counter(int(record.value) for record in found) == Counter(stream.good())
        assert all(record.key == record.value for record in found)


def check_letters(broker: Broker, topic: str, stream: Poisoned) -> None:
    """Every poison record is there once, with its bytes, its place, its time and a reason."""
    letters = broker.read(topic)
    assert Counter(int(one.key) for one in letters) == Counter(list(stream.poison))
    reasons: dict[str, set[str]] = {}
    for one in letters:
        number = int(one.key)
        assert one.value == stream.poison[number]
        headers = dict(one.headers)
        place = int(headers["exactum.source_partition"]), int(headers["exactum.source_offset"])
        assert stream.number(*place) == number
        assert headers["exactum.source_topic"] == stream.topic.encode()
        assert headers["exactum.source_timestamp"].startswith(b"20")
        assert headers["exactum.sink"] == b"decode"
        reasons.setdefault(stream.kinds[number], set()).add(headers["exactum.error"].decode())
    expected = {
        "empty": "0 bytes are too short",
        "truncated": "cut off",
        "wrong magic byte": "the magic byte is 7",
        "unknown schema id": "is not known to the schema registry",
        "wrong encoding": "is a text that is not valid UTF-8",
        "too deep": "contains itself",
        "huge": "cut off",
        "null": "it is null",
        "wrong type": "string for value.id",
        "trailing garbage": "5 bytes follow",
    }
    for kind, texts in reasons.items():
        for text in texts:
            assert text.startswith("value: ") and expected[kind] in text, (kind, text)


STATELESS_AND_AGGREGATED = pytest.mark.parametrize(
    "aggregated",
    [
        pytest.param(False, id="stateless"),
        pytest.param(True, id="aggregated", marks=pytest.mark.deep),
    ],
)


@pytest.mark.deep
@STATELESS_AND_AGGREGATED
def test_dead_letters_are_complete_and_in_the_epoch_of_their_neighbours(
    job: Job, broker: Broker, stream: Poisoned, aggregated: bool
) -> None:
    """Nothing is lost and nothing doubled, though the query dies once after a decision and once
    before one.
    """
    out, dead = broker.topic("out"), broker.topic("dead")
    dead_letters = broker.sink(dead)
    frame = (totals if aggregated else stateless)(orders(job.spark, broker, stream, "dead_letter"))
    mode = "update" if aggregated else "append"
    log = DyingLog(job.checkpoint, batch_id=2)
    write = job.exactly_once(
        broker.sink(out), dead_letters=dead_letters, decision_log=log
    ).for_each_batch(checkpoint=job.checkpoint)
    deaths = [1]

    def batch(given: DataFrame, batch_id: int) -> None:
        write(given, batch_id)
        if batch_id in deaths:
            deaths.remove(batch_id)
            raise RuntimeError("died after the decision")

    assert "died after the decision" in str(job.run(frame, batch, mode))
    assert "died before the decision" in str(job.run(frame, batch, mode))
    assert job.run(frame, batch, mode) is None

    check_output(broker, out, stream, aggregated=aggregated)
    check_letters(broker, dead, stream)
    expected = job.poison_of_epochs(stream)
    assert len(expected) >= 4 and sum(expected.values()) == len(stream.poison)
    assert job.seen(events.RowsDeadLettered) == expected
    assert log.rows_committed("dead letters") == expected, "one decision for letters and rows"
    if not aggregated:
        assert sum(log.rows_committed("kafka").values()) == RECORDS - len(stream.poison)


class DyingLog:
    """A decision log in memory, before whose first COMMIT of one batch the driver dies."""

    def __init__(self, checkpoint: Path, batch_id: int) -> None:
        self._checkpoint = checkpoint
        self._storage = MemoryStorage()
        self._deaths = [batch_id]
        self.commits: list[DecisionRecord] = []

    def _log(self) -> MemoryDecisionLog:
        return MemoryDecisionLog(
            self._storage, json.loads((self._checkpoint / "metadata").read_text())["id"]
        )

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        return self._log().read(batch_id)

    def prune(self, below_batch_id: int) -> int:
        return self._log().prune(below_batch_id)

    def close(self) -> None:
        pass

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        if record.decision is Decision.COMMIT:
            if record.epoch.batch_id in self._deaths:
                self._deaths.remove(record.epoch.batch_id)
                raise RuntimeError("died before the decision")
            self.commits.append(record)
        return self._log().decide(record)

    def rows_committed(self, participant: str) -> dict[int, int]:
        """By epoch, how many rows its one COMMIT makes visible in the participants whose name
        begins like this.
        """
        assert len({one.epoch for one in self.commits}) == len(self.commits)
        return {
            one.epoch.batch_id: sum(
                p.rows for p in one.prepared if p.participant.startswith(participant)
            )
            for one in self.commits
        }


@STATELESS_AND_AGGREGATED
def test_skipped_records_are_counted_in_each_epoch(
    job: Job, broker: Broker, stream: Poisoned, aggregated: bool
) -> None:
    """Good records are all there, bad ones are nowhere, and the event of each epoch says exactly
    how many.
    """
    out = broker.topic("out")
    frame = (totals if aggregated else stateless)(orders(job.spark, broker, stream, "skip"))
    batch = job.exactly_once(broker.sink(out))
    assert job.run(frame, batch, "update" if aggregated else "append") is None
    check_output(broker, out, stream, aggregated=aggregated)
    assert job.seen(events.RowsSkipped) == job.poison_of_epochs(stream)


@STATELESS_AND_AGGREGATED
def test_fail_names_the_record_and_leaves_nothing(
    job: Job, broker: Broker, stream: Poisoned, aggregated: bool
) -> None:
    """The query stops with RowsRefused that says which record and why; nothing of its epoch is
    visible.
    """
    out = broker.topic("out")
    frame = (totals if aggregated else stateless)(orders(job.spark, broker, stream, "fail"))
    batch = job.exactly_once(broker.sink(out))
    text = str(job.run(frame, batch, "update" if aggregated else "append"))
    check_error(job.error, RowsRefused, "RECORD_BAD", stream.topic, "on_error='dead_letter'")
    assert str(job.error).splitlines()[0] in text
    place = re.search(rf"{stream.topic}-(\d+)\D+(\d+)", str(job.error))
    assert place is not None
    assert stream.number(int(place[1]), int(place[2])) in stream.poison
    assert broker.read(out) == []


@pytest.mark.deep
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_weaker_guarantees_have_the_same_policies(job: Job, broker: Broker, guarantee: str) -> None:
    """Where nothing dies, dead letters are complete under any guarantee."""
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    broker.produce(source, b'{"id": 1}', b"x", b'{"id": 2}', b"y", None)
    frame = exactum.decode(
        broker.frame(job.spark, source), exactum.Json("id int not null"), on_error="dead_letter"
    )
    batch = getattr(exactum, guarantee)(
        broker.sink(out), dead_letters=broker.sink(dead), on_event=job.events.append
    )
    chosen = f.col("value.id").cast("string").alias("value")
    assert job.run(frame.select(chosen), batch) is None
    assert Counter(broker.values(out)) == Counter([b"1", b"2", None])
    assert sorted(broker.values(dead)) == [b"x", b"y"]
    assert job.seen(events.RowsDeadLettered) == {0: 2}


@pytest.mark.deep
def test_a_bad_record_that_the_dead_letters_topic_does_not_take(job: Job, broker: Broker) -> None:
    """With what a letter says besides it is larger than the topic's limit: that one is to be
    raised, and dead letters are there already.
    """
    large = {"max.message.bytes": "2000000"}
    source, out, dead = (
        broker.topic("in", partitions=1, config=large),
        broker.topic("out"),
        broker.topic("dead"),
    )
    broker.produce(source, b'{"id": 1}', b"x" * 1_048_300, message_max_bytes=2_000_000)
    frame = exactum.decode(
        broker.frame(job.spark, source), exactum.Json("id int not null"), on_error="dead_letter"
    )
    batch = job.exactly_once(broker.sink(out), dead_letters=broker.sink(dead))
    chosen = frame.selectExpr("cast(value.id as string) as value")
    assert job.run(chosen, batch) is not None
    code = "DEAD_LETTERS_REFUSED"
    check_error(job.error, RowsRefused, code, repr(dead), "max.message.bytes")
    broker.configure(dead, "max.message.bytes", "2000000")
    assert job.run(chosen, batch) is None
    assert [len(one.value) for one in broker.read(dead)] == [1_048_300]
    assert broker.values(out) == [b"1"]


@pytest.mark.deep
def test_text_needs_no_python_and_has_the_same_policies(job: Job, broker: Broker) -> None:
    """Keys and values that are text: each policy as everywhere; filters of the user hide no bad
    record.
    """
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    bad = "Zoë".encode("latin-1")
    broker.produce(source, b"good", bad, None, "Zoë".encode(), key="key")
    sink = broker.sink(out)
    letters = broker.sink(dead)

    def run(name: str, on_error: str, nulls: str, **settings: Any) -> tuple[str | None, Job]:
        one = Job(job.spark, job.checkpoint.with_name(name), job.events)
        read_frame = broker.frame(job.spark, source)
        frame = exactum.decode(
            read_frame, exactum.String(), exactum.String(), on_error=on_error, nulls=nulls
        )
        assert [kind for name, kind in frame.dtypes if name in ("key", "value")] == [
            "string",
            "string",
        ]
        assert "InArrow" not in frame._jdf.queryExecution().toString()
        batch = one.exactly_once(sink, **settings)
        return one.run(
            frame.filter("value > 'a' or value is null").select("key", "value"), batch
        ), one

    error, one = run("fail", "fail", "keep")
    facts = "RECORD_BAD", f"{source}-0", 1, "value", "UTF-8"
    check_error(one.error, RowsRefused, *facts)
    check_query_error(str(error), RowsRefused, *facts)
    assert broker.read(out) == []
    assert run("skip", "skip", "keep")[0] is None
    assert job.seen(events.RowsSkipped) == {0: 1}
    assert broker.values(out) == [b"good", None]
    assert run("letters", "dead_letter", "error", dead_letters=letters)[0] is None
    assert Counter(broker.values(dead)) == Counter([bad, None])


@pytest.mark.deep
def test_a_registry_that_goes_away_stops_the_query_and_loses_nothing(
    job: Job, broker: Broker, registry: Registry
) -> None:
    """Unavailable, not a dead letter; when it is back, the next start reads the same records."""
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    number = registry.register("in-value", ORDER)
    broker.produce(source, b"\0" + number.to_bytes(4, "big") + b"\x02\x04\x02x")
    settings = {"url": registry.url, "max.retries": 0}
    value = exactum.Avro(registry=settings, subject="in-value")
    frame = broker.frame(job.spark, source, includeHeaders=True)
    decoded = exactum.decode(frame, value, on_error="dead_letter")
    letters = broker.sink(dead)
    batch = job.exactly_once(broker.sink(out), dead_letters=letters)
    registry.status = 500
    check_query_error(job.run(stateless(decoded), batch), Unavailable, registry.url)
    assert isinstance(job.error, Unavailable)
    registry.status = 200
    assert job.run(stateless(decoded), batch) is None
    assert (broker.values(out), broker.read(dead)) == ([b"1"], [])


def test_dead_letters_without_a_sink_for_them_are_refused(job: Job, broker: Broker) -> None:
    """At the first batch, before anything is written."""
    source, out = broker.topic("in", partitions=1), broker.topic("out")
    broker.produce(source, b"1")
    frame = exactum.decode(
        broker.frame(job.spark, source), exactum.Json("bigint"), on_error="dead_letter"
    )
    batch = job.exactly_once(broker.sink(out))
    job.run(frame.select(f.col("value").cast("string").alias("value")), batch)
    check_error(job.error, SettingRefused, "DEAD_LETTERS_MISSING", "dead_letters=")
    assert broker.read(out) == []


def test_frames_that_cannot_be_decoded_are_refused(job: Job, broker: Broker) -> None:
    """One clear error where decode is called."""
    frame = broker.frame(job.spark, broker.topic("in"))
    value = exactum.String()
    for format_ in (value, exactum.Json("bigint")):
        marked = exactum.decode(
            frame.withWatermark("timestamp", "1 minute"), format_, on_error="dead_letter"
        )
        assert marked.schema["timestamp"].metadata == {"spark.watermarkDelayMs": 60_000}, (
            "a watermark is kept"
        )
    with raised(FrameRefused, "DECODE_FRAME", "offset bigint"):
        exactum.decode(frame.drop("offset"), value)
    with raised(FrameRefused, "DECODE_FRAME", "value binary"):
        exactum.decode(exactum.decode(frame, value), key=value)
    with raised(FrameRefused, "DECODE_FRAME", "streaming"):
        exactum.decode(job.spark.range(1), value)
    with raised(FrameRefused, "DECODE_FRAME", "on_error='dead_letter'", "Deduplicate"):
        exactum.decode(frame.dropDuplicates(["key"]), value, on_error="dead_letter")
    with raised(SettingRefused, "DECODE_ARGUMENT", "'ignore'", "'fail'", "'skip'", "'dead_letter'"):
        exactum.decode(frame, value, on_error="ignore")
    with raised(SettingRefused, "DECODE_ARGUMENT", "value=", "key="):
        exactum.decode(frame)
    with raised(SettingRefused, "DECODE_ARGUMENT", "Function(f, returns)"):
        exactum.decode(frame, lambda data: data)  # type: ignore[arg-type]
    with raised(SettingRefused, "DECODE_ARGUMENT", "value='json'"):
        exactum.decode(frame, "json")  # type: ignore[arg-type]
    with raised(SettingRefused, "DECODE_ARGUMENT", "value=<class", "String"):
        exactum.decode(frame, exactum.String)  # type: ignore[arg-type]


def test_the_document_runs_as_it_stands(job: Job, broker: Broker, registry: Registry) -> None:
    """The blocks of docs/decoding.md, given what they need: totals and letters are right."""
    *first, with_registry = blocks(ROOT / "docs/decoding.md")
    good = [
        b'{"id": 1, "customer": "a", "amount": 1.25}',
        b'{"id": 2, "customer": "a", "amount": "2"}',
    ]
    names = {
        "spark": job.spark,
        "brokers": broker.servers,
        "checkpoint": str(job.checkpoint),
    }
    with topics_named(broker.kafka, "orders", "totals", "orders-rejected", partitions=1):
        broker.produce("orders", *good, b'{"id": 3}')
        for block in first:
            exec(block, names)
        assert [(one.key, one.value) for one in broker.read("totals")] == [(b"a", b"3.25")]
        assert broker.values("orders-rejected") == [b'{"id": 3}']
        registry.register("orders-value", '"long"')
        exec(replaced(with_registry, {"http://localhost:8081": registry.url}), names)
    types = dict(names["decoded"].dtypes)
    assert types["value"] == "bigint" and "headers" not in types


@pytest.mark.deep
def test_ids_of_schemas_in_headers(job: Job, broker: Broker, registry: Registry) -> None:
    """With the headers a record is read by the schema that its header names, key and value each by
    its own, and its bytes are its dead letter; without them it is bad.
    """
    source, out, dead = broker.topic("in", partitions=1), broker.topic("out"), broker.topic("dead")
    registry.has_guids = True

    def header(schema: str) -> bytes:
        number = registry.register(f"s{schema}", schema)
        return SchemaId("AVRO", None, str(guid_of(number))).guid_to_bytes()

    long, text = header('"long"'), header('"string"')
    producer = producer_to(broker.servers)
    for value_id, data in ((long, b"\x2e"), (text, b"\x04ab"), (b"\1" + bytes(16), b"\x2e")):
        ids = [("__key_schema_id", text), ("__value_schema_id", value_id)]
        producer.produce(source, data, b"\x02k", headers=ids)
    assert producer.flush(WAIT_MAX_S) == 0
    key, value = exactum.Avro('"string"', registry.url), exactum.Avro('"long"', registry.url)
    frame = broker.frame(job.spark, source, includeHeaders=True)
    decoded = exactum.decode(frame, value, key, on_error="dead_letter").drop("headers")
    sinks = [broker.sink(name) for name in (out, dead)]
    batch = job.exactly_once(sinks[0], dead_letters=sinks[1])
    shown = decoded.select("key", f.col("value").cast("string").alias("value"))
    assert job.run(shown, batch) is None
    assert [(one.key, one.value) for one in broker.read(out)] == [(b"k", b"23")]
    assert sorted(broker.values(dead)) == [b"\x04ab", b"\x2e"]
    for without in ({"key": key}, {"value": value}):
        with raised(FrameRefused, "DECODE_FRAME", "includeHeaders=True"):
            exactum.decode(frame.drop("headers"), **without)
    unseen = exactum.decode(frame.drop("headers"), exactum.Json("bigint", registry.url))
    job.checkpoint = job.checkpoint.with_name("unseen")
    batch = job.exactly_once(sinks[0])
    assert "includeHeaders" in str(job.run(unseen.select(f.col("value").cast("string")), batch))


@pytest.mark.deep
def test_each_source_has_its_own_decoding(job: Job, broker: Broker) -> None:
    """A union of three topics with formats and policies of their own: each bad record by the
    policy of its source.
    """
    sources, out, dead = (
        [broker.topic(name, partitions=1) for name in "abc"],
        broker.topic("out"),
        broker.topic("dead"),
    )
    for source, good, bad in zip(
        sources, (b"1", "é".encode(), b"3"), (b"x", b"\xff", b"z"), strict=True
    ):
        broker.produce(source, good, bad)
    kinds = (
        (exactum.Json("bigint"), "dead_letter"),
        (exactum.String(), "dead_letter"),
        (exactum.Json("int"), "skip"),
    )
    frames = []
    for source, (value, on_error) in zip(sources, kinds, strict=True):
        read_frame = broker.frame(job.spark, source, includeHeaders=True)
        frame = exactum.decode(read_frame.filter("partition = 0"), value, on_error=on_error)
        frames.append(frame.select(f.col("value").cast("string").alias("value"), "headers"))
    letters = broker.sink(dead)
    batch = job.exactly_once(broker.sink(out), dead_letters=letters)
    assert job.run(frames[0].union(frames[1]).union(frames[2]), batch) is None
    assert sorted(broker.values(out)) == [b"1", b"3", "é".encode()]
    where = {
        (one.value, dict(one.headers)["exactum.source_topic"].decode()) for one in broker.read(dead)
    }
    assert where == {(b"x", sources[0]), (b"\xff", sources[1])}
    assert (job.seen(events.RowsDeadLettered), job.seen(events.RowsSkipped)) == ({0: 2}, {0: 1})
