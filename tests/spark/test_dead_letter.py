"""What a dead letter says: the original bytes, whence it came, who refused it and why."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa

from exactum.protocol.sink import DEAD_LETTER_COLUMNS, Rejection
from exactum.spark.write.dead_letter import dead_letters

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


PLACE = '"topic":"orders","partition":%d,"offset":%d,"timestamp":"2026-11-21T12:00:00.000000Z","more":%d}'
ROWS = ['{"key":"aw==","value":"/wA=",' + PLACE % (3, 17, 1), "{" + PLACE % (4, 18, 2)]


def test_a_record_of_kafka_keeps_its_bytes_and_its_place() -> None:
    """Key and value as they were, null as null; topic, partition, offset and timestamp of the
    source.
    """
    letters = dead_letters(Rejection(FROM_KAFKA, ("too long", "null")), "postgres:totals", COLUMNS)
    both = {"sink": "postgres:totals", "source_topic": "orders", "source_timestamp": WHEN}
    places = [
        {"source_partition": 3, "source_offset": 17},
        {"source_partition": 4, "source_offset": 18},
    ]
    assert letters.to_pylist() == [
        {
            **both,
            **places[0],
            "key": b"k",
            "value": b"\xff\x00",
            "error": "too long",
            "row_json": ROWS[0],
        },
        {**both, **places[1], "key": None, "value": None, "error": "null", "row_json": ROWS[1]},
    ]


def test_to_kafka_the_reasons_go_as_headers() -> None:
    """So that the value stays the original one; a header for each thing that is known."""
    letters = dead_letters(
        Rejection(FROM_KAFKA.slice(0, 1), ("too long",)), "pg", ("key", "value", "headers")
    )
    (row,) = letters.to_pylist()
    assert (row["key"], row["value"]) == (b"k", b"\xff\x00")
    assert {h["key"]: h["value"] for h in row["headers"]} == {
        "exactum.sink": b"pg",
        "exactum.error": b"too long",
        "exactum.source_topic": b"orders",
        "exactum.source_partition": b"3",
        "exactum.source_offset": b"17",
        "exactum.source_timestamp": b"2026-11-21T12:00:00+00:00",
        "exactum.row_json": b"{" + (PLACE % (3, 17, 1)).encode(),
    }


def test_a_row_that_is_not_a_record_is_written_as_json() -> None:
    """Every column, in words that JSON has; a column that only shares a name with Kafka's is not
    the source.
    """
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
    assert row["row_json"].encode() == row["value"]
    assert json.loads(row["value"], parse_float=Decimal) == {
        "name": "ä",
        "amount": Decimal("1.50"),
        "at": "2026-11-21T12:00:00.000000Z",
        "raw": "AQ==",
        "value": 7,
        "topic": 5,
    }
    assert (row["key"], row["source_topic"]) == (None, None)


def test_a_text_column_called_value_is_not_the_whole_row() -> None:
    """The column that was refused is kept beside it, in the table's dead letters and in Kafka's
    headers.
    """
    rows = pa.record_batch({"value": ["short"], "culprit": ["too long"], "x": [float("nan")]})
    (row,) = dead_letters(Rejection(rows, ("no",)), "pg", COLUMNS).to_pylist()
    assert row["value"] == b"short"
    assert json.loads(row["row_json"]) == {"value": "short", "culprit": "too long", "x": "NaN"}
    (row,) = dead_letters(Rejection(rows, ("no",)), "pg", ("key", "value", "headers")).to_pylist()
    assert {h["key"]: h["value"] for h in row["headers"]}[
        "exactum.row_json"
    ] == b'{"culprit":"too long","x":"NaN"}'


def test_to_kafka_the_row_is_not_sent_twice() -> None:
    """Where the value is the row, or there is nothing but key and value, no header repeats it."""
    for columns in ({"a": [1], "b": ["x"]}, {"key": ["k"], "value": ["v"]}):
        letters = dead_letters(
            Rejection(pa.record_batch(columns), ("no",)), "pg", ("key", "value", "headers")
        )
        assert {h["key"] for h in letters.to_pylist()[0]["headers"]} == {
            "exactum.sink",
            "exactum.error",
        }


def test_what_only_looks_like_a_place_in_kafka_breaks_nothing() -> None:
    """A topic that is no UTF-8 is shown by its bytes, an instant that few targets have is in the
    row alone.
    """
    rows = pa.record_batch(
        {
            "topic": pa.array([b"a\xff"]).view(pa.string()),
            "timestamp": pa.array([253_402_318_799_000_000]).view(
                pa.timestamp("us", "America/New_York")
            ),
        }
    )
    for columns in (COLUMNS, ("key", "value", "headers")):
        letters = dead_letters(Rejection(rows, ("half \udcff",)), "pg", columns)
        letters.validate(full=True)
    (row,) = dead_letters(Rejection(rows, ("half \udcff",)), "pg", COLUMNS).to_pylist()
    assert (row["source_topic"], row["source_timestamp"], row["error"]) == (
        "a\\xff",
        None,
        "half \\udcff",
    )
    assert json.loads(row["row_json"]) == {
        "topic": {"base64": "Yf8="},
        "timestamp": "9999-12-31T16:59:59.000000-12:00",
    }
