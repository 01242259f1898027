"""Odd records of Kafka through ``read_kafka`` and ``decode``: each is in its target as it was, or put
aside with its bytes and its place, and no error is a library's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import exactum
from exactum.errors import RowsRefused
from exactum.spark.source import columnar
from kafka import KafkaProducer
from tests.kit.decoding.decoded_stream import Job
from tests.kit.errors import check_query_error
from tests.kit.kafka.broker import Broker, producer_to
from tests.kit.spark.torn_stream import configured
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]

ANY = {
    "message.timestamp.after.max.ms": 2**63 - 1,
    "message.timestamp.before.max.ms": 2**63 - 1,
    "max.message.bytes": 3_000_000,
}
DEEP = 100_000
LAST_MS = (2**63 - 1) // 1000
SCHEMA = (
    "s string, d double, n bigint, c decimal(38,10), t timestamp, b binary, m map<string,string>"
)
GOOD: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (None, None, []),
    (b"tombstone", None, []),
    (b"\xff\xfe\0", b'{"s":"x"}', []),
    (b"twice", b"{}", [("h", b"1"), ("h", b"2"), ("", b""), ("n", None), ("\u00e9", b"\xff")]),
    (b"many", b"{}", [(f"h{n}", b"%d" % n) for n in range(3000)]),
    (b"huge", b"{}", [("h", os.urandom(900_000))]),
    (b"pair", b'{"s":"\\ud83d\\ude00\\r\\n"}', []),
    (b"no characters", '{"s":"\u2028\ufffe\uffff"}'.encode(), []),
    (b"zero", b'{"d":-0.0}', []),
    (b"long", b'{"s":"' + b"x" * 1_500_000 + b'"}', []),
]
BAD: list[tuple[bytes, str]] = [
    (b"", "truncated"),
    (b'{"d":NaN}', "malformed"),
    (b'{"d":-Infinity}', "malformed"),
    (b'{"d":1e400}', "out of range"),
    (b'{"s":"\\ud800"}', "truncated"),
    (b'{"s":"\\udc00\\ud800"}', "surrogate"),
    (b'{"s":"\xed\xa0\x80"}', "not valid UTF-8: byte 6 is 0xed"),
    (b"[" * DEEP + b"]" * DEEP, "got `array`"),
    (b'{"other":' + b"[" * DEEP + b"]" * DEEP + b"}", "nested too deeply"),
    (b'{"m":' * DEEP, "got `object`"),
    (b'{"n":18446744073709551616}', "9223372036854775807"),
    (b'{"n":' + b"9" * 5000 + b"}", "out of range"),
    (b'{"c":1e999999999}', "does not fit decimal(38,10)"),
    (b'{"c":"Infinity"}', "is not a decimal number"),
    (b'{"t":1e300}', "datetime"),
    (b'{"b":"A"}', "base64"),
    (b'\xef\xbb\xbf{"s":"x"}', "malformed"),
    ('{"s":"x"}'.encode("utf-16"), "not valid UTF-8: byte 0 is 0xff"),
    (b'{"s":"x"}{"s":"y"}', "trailing"),
    (b'{"s":"\x01"}', "malformed"),
]
TIMES = (0, -2, LAST_MS, -62_135_596_800_001)
NO_TIMES = (LAST_MS + 1, 2**63 - 1, -LAST_MS - 1, -(2**63), 1_764_000_000_000_000_000)
GOOD_COUNT = len(GOOD) + len(TIMES)
REASONS = [reason for _, reason in BAD] + ["timestamp: Spark cannot hold it"] * len(NO_TIMES)


@pytest.fixture(scope="module")
def odd(broker: Broker) -> str:
    """A topic of one partition: first what is good, by its place in the tables above."""
    broker.kafka.create_topic("odd-records", 1, ANY)
    producer = producer_to(broker.servers, {"message.max.bytes": 3_000_000})
    timed = KafkaProducer(bootstrap_servers=broker.servers)

    def give(key: bytes | None, value: bytes | None, headers: Any = ()) -> None:
        producer.produce("odd-records", value, key, headers=list(headers))
        assert producer.flush(WAIT_MAX_S) == 0

    def at(ms: int) -> None:
        timed.send("odd-records", b"{}", b"%d" % ms, timestamp_ms=ms).get(WAIT_MAX_S)

    for key, value, headers in GOOD:
        give(key, value, headers)
    for ms in TIMES:
        at(ms)
    for value, _ in BAD:
        give(b"bad", value)
    for ms in NO_TIMES:
        at(ms)
    timed.close()
    return "odd-records"


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path / "checkpoint")


def source(job: Job, broker: Broker, topic: str, **options: Any) -> DataFrame:
    return broker.frame(job.spark, topic, start="earliest", **options)


def lines(folder: Path) -> list[Any]:
    texts = [file.read_bytes() for file in folder.glob("part-*")]
    return [json.loads(line) for text in texts for line in text.split(b"\n") if line]


def test_each_record_is_there_or_put_aside(
    job: Job, broker: Broker, odd: str, tmp_path: Path
) -> None:
    """None is lost, doubled or changed, and the query goes on."""
    decoded = exactum.decode(source(job, broker, odd), exactum.Json(SCHEMA), on_error="dead_letter")
    frame = decoded.select("offset", *[f"value.{n}" for n in "sdnctb"])
    letters = exactum.FileSink(tmp_path / "dead", format="parquet")
    sink = exactum.FileSink(tmp_path / "out", format="json")
    assert job.run(frame, job.exactly_once(sink, dead_letters=letters)) is None
    assert sorted(row["offset"] for row in lines(tmp_path / "out")) == list(range(GOOD_COUNT))
    values = broker.values(odd)
    dead = [row for file in (tmp_path / "dead").glob("part-*") for row in read_parquet(file)]
    dead.sort(key=lambda row: row["source_offset"])
    assert [row["source_offset"] for row in dead] == list(range(GOOD_COUNT, len(values)))
    for row, reason, value in zip(dead, REASONS, values[GOOD_COUNT:], strict=True):
        assert reason in row["error"], row
        assert row["value"] == value


def read_parquet(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
    return rows


def test_a_copy_is_exact(job: Job, broker: Broker, odd: str) -> None:
    """Whatever keys, values and headers are, and times that nobody asks for."""
    out = broker.topic("out", partitions=1, config=ANY)
    frame = source(job, broker, odd, includeHeaders=True).select("key", "value", "headers")
    sink = broker.sink(out)
    assert job.run(frame, job.exactly_once(sink)) is None
    found, given = (
        [(one.key, one.value, one.headers) for one in broker.read(name)] for name in (out, odd)
    )
    assert found == given


FIRST = f"odd-records-0 at offset {GOOD_COUNT + len(BAD)}"
JSON_OF_ANY = exactum.Function(lambda data: None, "bigint")


@pytest.mark.parametrize(
    ("made", "in_columns", "said"),
    [
        pytest.param(lambda s: s.select("timestamp"), True, FIRST, id="packed"),
        pytest.param(lambda s: s.selectExpr("cast(timestamp as date) d"), True, FIRST, id="computed"),
        pytest.param(
            lambda s: exactum.decode(s.where("timestamp is not null"), JSON_OF_ANY, on_error="skip"),
            True,
            FIRST,
            id="looked at before",
        ),
        pytest.param(
            lambda s: exactum.decode(s.where("offset > 0"), JSON_OF_ANY), True, FIRST, id="decoded"
        ),
        pytest.param(lambda s: s.select("key"), False, "odd-records-0 from 0", id="Spark's rows"),
    ],
)  # fmt: skip
def test_a_timestamp_that_spark_cannot_hold_is_refused_by_its_place(
    job: Job,
    broker: Broker,
    odd: str,
    tmp_path: Path,
    made: Callable[[DataFrame], DataFrame],
    in_columns: bool,
    said: str,
) -> None:
    """Where it is asked for, and nobody has said what becomes of bad records."""
    once = job.exactly_once(exactum.FileSink(tmp_path / "out", format="parquet"))
    with configured(job.spark, {} if in_columns else {columnar.SETTING: "false"}):
        text = job.run(made(source(job, broker, odd)), once) or ""
    code = "RECORD_BAD" if "RECORD_BAD" in text else "SOURCE_TIMESTAMP"  # decoded, or as it is read
    check_query_error(text, RowsRefused, code, said)
    assert not list((tmp_path / "out").glob("part-*"))


def test_such_a_record_is_skipped_in_any_plan(
    job: Job, broker: Broker, odd: str, tmp_path: Path
) -> None:
    """As text, beside the same frame without a decoding, and in an aggregation."""
    frame = source(job, broker, odd)
    texts = exactum.decode(frame, key=exactum.String(), on_error="skip").select(
        "offset", "timestamp"
    )
    both = texts.select("offset").union(frame.select("offset"))
    totals = both.groupBy("offset").agg(f.count("*").alias("n"))
    once = job.exactly_once(exactum.FileSink(tmp_path / "out", format="json"))
    assert job.run(totals, once, "update") is None
    found = {row["offset"]: row["n"] for row in lines(tmp_path / "out")}
    count = GOOD_COUNT + len(BAD) + len(NO_TIMES)
    alone = {2, *range(GOOD_COUNT + len(BAD), count)}  # its key is no text
    assert found == {n: 1 if n in alone else 2 for n in range(count)}
