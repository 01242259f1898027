"""What a dead letter says: the original bytes, whence it came, who refused it and why."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa

from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Rejection
from exactum.spark.dead_letter import dead_letters

COLUMNS = tuple(name for name, _ in DEAD_LETTER_COLUMNS)
WHEN = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.timezone.utc)
FROM_KAFKA = pa.record_batch(
    {
        "key": pa.array([b"k", None]),
        "value": pa.array([b"\xff\x00", None]),
        "topic": pa.array(["orders", "orders"]),
        "partition": pa.array([3, 4], pa.int32()),
        "offset": pa.array([17, 18], pa.int64()),
        "timestamp": pa.array([WHEN, WHEN], pa.timestamp("us", "UTC")),
        "more": pa.array([1, 2]),
    }
)


def test_a_record_of_kafka_keeps_its_bytes_and_its_place() -> None:
    """Key and value as they were, null as null; topic, partition, offset and timestamp of the source."""
    letters = dead_letters(Rejection(FROM_KAFKA, ("too long", "null")), "postgres:totals", COLUMNS)
    assert letters.to_pylist() == [
        {
            "key": b"k",
            "value": b"\xff\x00",
            "sink": "postgres:totals",
            "error": "too long",
            "source_topic": "orders",
            "source_partition": 3,
            "source_offset": 17,
            "source_timestamp": WHEN,
        },
        {
            "key": None,
            "value": None,
            "sink": "postgres:totals",
            "error": "null",
            "source_topic": "orders",
            "source_partition": 4,
            "source_offset": 18,
            "source_timestamp": WHEN,
        },
    ]


def test_to_kafka_the_reasons_go_as_headers() -> None:
    """So that the value stays the original one; a header for each thing that is known."""
    letters = dead_letters(Rejection(FROM_KAFKA.slice(0, 1), ("too long",)), "pg", ("key", "value", "headers"))
    (row,) = letters.to_pylist()
    assert (row["key"], row["value"]) == (b"k", b"\xff\x00")
    assert {h["key"]: h["value"] for h in row["headers"]} == {
        "exactum.sink": b"pg",
        "exactum.error": b"too long",
        "exactum.source_topic": b"orders",
        "exactum.source_partition": b"3",
        "exactum.source_offset": b"17",
        "exactum.source_timestamp": b"2026-11-21T12:00:00+00:00",
    }


def test_a_row_that_is_not_a_record_is_written_as_json() -> None:
    """Every column, in words that JSON has; a column that only shares a name with Kafka's is not the source."""
    rows = pa.record_batch(
        {
            "name": pa.array(["ä"]),
            "amount": pa.array([Decimal("1.50")]),
            "at": pa.array([WHEN], pa.timestamp("us", "UTC")),
            "raw": pa.array([b"\x01"]),
            "value": pa.array([7]),
            "topic": pa.array([5]),
        }
    )
    (row,) = dead_letters(Rejection(rows, ("no",)), "pg", COLUMNS).to_pylist()
    assert json.loads(row["value"]) == {
        "name": "ä",
        "amount": "1.50",
        "at": "2026-11-21T12:00:00+00:00",
        "raw": "01",
        "value": 7,
        "topic": 5,
    }
    assert (row["key"], row["source_topic"]) == (None, None)
