"""What an Avro value that was written as one type becomes as another: the value, or a bad record.

The tables are written after the specification, not after the code.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from exactum import Avro
from tests.kit.decoding.format_cases import UTC, decoded, framed, reason
from tests.kit.decoding.records import Field, avro_record, logical, varint
from tests.kit.decoding.registry import Registry

SEVEN, AB = b"\x0e", b"\x04ab"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TWELVE = bytes(10) + b"\x04\xd2"


def decimal(scale: int, precision: int = 20) -> Any:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def number(value: int) -> bytes:
    """Of bytes that are a decimal."""
    data = value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)
    return varint(2 * len(data)) + data


def after(**time: int) -> datetime:
    return EPOCH + timedelta(**time)


F, E = {"name": "F", "size": 12}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}
TYPES: dict[str, tuple[Any, bytes, Any]] = {
    "boolean": ("boolean", b"\1", True),
    "int": ("int", SEVEN, 7),
    "long": ("long", SEVEN, 7),
    "float": ("float", struct.pack("<f", 1.5), 1.5),
    "double": ("double", struct.pack("<d", 1.5), 1.5),
    "bytes": ("bytes", AB, b"ab"),
    "string": ("string", AB, "ab"),
    "fixed": ({"type": "fixed", **F}, TWELVE, TWELVE),
    "enum": (E, b"\2", "B"),
    "record": (avro_record("R", x="int"), SEVEN, {"x": 7}),
    "array": ({"type": "array", "items": "int"}, b"\2\x0e\0", [7]),
    "map": ({"type": "map", "values": "int"}, b"\2" + AB + b"\x0e\0", [("ab", 7)]),
    "decimal": (decimal(2), number(1234), Decimal("12.34")),
    "fixed-decimal": (
        logical("fixed", "decimal", precision=20, scale=2, **F),
        TWELVE,
        Decimal("12.34"),
    ),
    "big-decimal": (logical("bytes", "big-decimal"), AB, b"ab"),
    "date": (logical("int", "date"), SEVEN, date(1970, 1, 8)),
    "time-millis": (logical("int", "time-millis"), SEVEN, 7),
    "time-micros": (logical("long", "time-micros"), SEVEN, 7),
    "timestamp-millis": (logical("long", "timestamp-millis"), SEVEN, after(milliseconds=7)),
    "timestamp-micros": (logical("long", "timestamp-micros"), SEVEN, after(microseconds=7)),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), SEVEN, 7),
    "local-millis": (
        logical("long", "local-timestamp-millis"),
        SEVEN,
        after(milliseconds=7).replace(tzinfo=None),
    ),
    "local-micros": (
        logical("long", "local-timestamp-micros"),
        SEVEN,
        after(microseconds=7).replace(tzinfo=None),
    ),
    "local-nanos": (logical("long", "local-timestamp-nanos"), SEVEN, 7),
    "uuid": (logical("string", "uuid"), AB, "ab"),
    "duration": (logical("fixed", "duration", **F), TWELVE, TWELVE),
    # not of Avro's: Avro wants the types under them to be read
    "unknown": (logical("long", "connect-time"), SEVEN, 7),
    "misplaced": (logical("string", "timestamp-millis"), AB, "ab"),
    # of another name, or size
    "other-record": (avro_record("Q", x="int"), SEVEN, {"x": 7}),
    "other-enum": ({**E, "name": "G"}, b"\2", "B"),
    "other-fixed": ({"type": "fixed", "name": "G", "size": 12}, TWELVE, TWELVE),
    "short-fixed": ({"type": "fixed", "name": "F", "size": 2}, AB[1:], b"ab"),
}
"""A schema, the bytes of a value, and what its column has."""

TEXTS, LONGS = "bytes string uuid misplaced", "int long unknown"
FROM = {
    **{name: name for name in TYPES},
    "long": LONGS,
    "unknown": LONGS,
    "float": f"{LONGS} float",
    "double": f"{LONGS} float double",
    **dict.fromkeys(TEXTS.split(), TEXTS),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), "timestamp-millis timestamp-micros"),
    **dict.fromkeys(("local-millis", "local-micros"), "local-millis local-micros"),
}
"""What each type is read from. From everything else it is not."""

Place = tuple[
    Callable[[Any], Any], Callable[[Any], Any], Callable[[bytes], bytes], Callable[[Any], Any]
]
PLACES: dict[str, Place] = {
    "value": (lambda w: w, lambda r: r, lambda data: data, lambda value: value),
    "field": (
        lambda w: avro_record("Z", before="string", x=w, after=["null", logical("int", "date")]),
        lambda r: avro_record("Z", x=r),
        lambda data: AB + data + b"\2" + varint(2**32 - 2),  # a date that no calendar has
        lambda value: {"x": value},
    ),
    "alias": (
        lambda w: avro_record("Z", old=w),
        lambda r: avro_record("Z", x=Field(type=r, aliases=["old"])),
        lambda data: data,
        lambda value: {"x": value},
    ),
    "items": (
        lambda w: {"type": "array", "items": w},
        lambda r: {"type": "array", "items": r},
        lambda data: b"\2" + data + b"\0",
        lambda value: [value],
    ),
    "values": (
        lambda w: {"type": "map", "values": w},
        lambda r: {"type": "map", "values": r},
        lambda data: b"\2" + AB + data + b"\0",
        lambda value: [("ab", value)],
    ),
    "nullable": (
        lambda w: ["null", w],
        lambda r: [r, "null"],
        lambda data: b"\2" + data,
        lambda value: value,
    ),
    "one of many": (
        lambda w: [{"type": "enum", "name": "Other", "symbols": ["X"]}, w, "null"],
        lambda r: r,
        lambda data: b"\2" + data,
        lambda value: value,
    ),
}
"""Around the writer's schema, the reader's, the bytes and the value."""


@pytest.fixture(scope="module")
def writers() -> Iterator[Registry]:
    """Knows each type in each place once."""
    server = Registry()
    yield server
    server.close()


@pytest.fixture(scope="module")
def ids(writers: Registry) -> dict[tuple[str, str], int]:
    return {
        (place, name): writers.register("x", json.dumps(written(schema)))
        for place, (written, *_) in PLACES.items()
        for name, (schema, *_) in TYPES.items()
    }


def alone(schema: Any, data: bytes, place: str) -> bytes:
    """Bytes that are the whole value have no length, as Confluent writes them."""
    return data[1:] if schema == "bytes" and place == "value" else data


@pytest.mark.parametrize("read", TYPES)
def test_each_written_type_is_read_with_its_value_or_is_bad(
    writers: Registry, ids: dict[tuple[str, str], int], read: str
) -> None:
    """Every type, in every place, as every other one: a number is never taken for a time, nor one
    unit or scale for another.
    """
    for place, (_, around, in_bytes, expected) in PLACES.items():
        data = [alone(TYPES[name][0], in_bytes(TYPES[name][1]), place) for name in TYPES]
        records = [framed(ids[place, name]) + one for name, one in zip(TYPES, data, strict=True)]
        given = Avro(json.dumps(around(TYPES[read][0])), registry=writers.url)
        values, reasons = decoded(given, records)
        for row, name in enumerate(TYPES):
            if name in FROM[read].split():
                assert row not in reasons, (place, name, reasons[row])
                assert values[row] == expected(as_read(read, TYPES[name][2])), (place, name)
            else:
                assert row in reasons, (place, name, values[row])


def as_read(read: str, value: Any) -> Any:
    if read == "bytes":
        return value.encode() if isinstance(value, str) else value
    return value.decode() if read in TEXTS.split() and isinstance(value, bytes) else value


class Bad(str):
    """What the reason says, where that is not plain from the types."""


BAD = Bad()
FLOATS = {"float": 2**24, "double": 2**53}
FEW, MORE = avro_record("R", a="int"), avro_record("R", a="int", b="long")
AB_FIELDS, BA_FIELDS = avro_record("R", a="int", b="int"), avro_record("R", b="int", a="int")
OLD_A = avro_record("R", b=Field(type="int", aliases=["a"]))
OF_MAPS = {"type": "array", "items": ["null", {"type": "map", "values": decimal(3, 9)}]}
SYMBOLS = {**E, "symbols": ["B", "C"]}
LONG_NUMBER = number(12345)
"""Of more digits than its writer's schema says."""


def in_fixed(scale: int, precision: int, size: int = 2) -> Any:
    return logical("fixed", "decimal", name="D", size=size, precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("written", "read", "data", "expected"),
    [
        *(
            ("long", read, varint(2 * n if n >= 0 else -2 * n - 1), BAD if abs(n) > end else n)
            for read, end in FLOATS.items()
            for n in (end, -end, end + 1, -end - 1)
        ),
        ("int", "float", varint(2**25 + 2), BAD),
        ("int", "double", varint(2**32 - 2), 2**31 - 1),
        ("bytes", "string", b"\xc3\xab", "\u00eb"),
        ("bytes", "string", b"\xff", BAD),
        (decimal(2), decimal(4), number(1234), Decimal("12.3400")),
        (decimal(4), decimal(2), number(123400), Decimal("12.34")),
        (decimal(4), decimal(2), number(123456), BAD),
        (decimal(0), decimal(0, 3), number(-999), Decimal(-999)),
        (decimal(0), decimal(0, 3), number(-1000), BAD),
        (decimal(60, 60), decimal(3), number(1), BAD),
        (decimal(2, 4), decimal(2, 4), LONG_NUMBER, Bad("123.45 does not fit decimal(4,2)")),
        (decimal(2, 4), decimal(3, 8), LONG_NUMBER, Decimal("123.450")),
        (
            ["null", decimal(2, 4)],
            ["null", decimal(2, 4)],
            b"\2" + LONG_NUMBER,
            Bad("123.45 does not fit"),
        ),
        (in_fixed(2, 4), in_fixed(2, 4), b"09", Bad("123.45 does not fit decimal(4,2)")),
        (in_fixed(2, 4), in_fixed(3, 4), b"09", Bad("123.45 does not fit decimal(4,3)")),
        (["null", in_fixed(2, 4)], ["null", in_fixed(2, 4)], b"\x0209", Bad("123.45 does not fit")),
        (in_fixed(0, 2, 1), in_fixed(0, 2, 1), b"\x7f", Bad("127 does not fit decimal(2,0)")),
        (OF_MAPS, OF_MAPS, b"\2\0\0", [None]),
        # Oracle's NUMBER in Kafka Connect, which Avro itself does not take for a decimal
        (decimal(127, 64), decimal(2), number(5 * 10**127), Decimal(5)),
        (decimal(127, 64), decimal(2), number(5 * 10**127 + 1), BAD),
        (logical("bytes", "decimal", scale="2"), decimal(2), number(1), BAD),
        (logical("bytes", "decimal", scale=10**9), decimal(2), number(1), BAD),
        (
            logical("long", "timestamp-micros"),
            logical("long", "timestamp-millis"),
            b"\2",
            after(microseconds=1),
        ),
        (["null", "long"], "long", b"\2\2", 1),
        (["null", "long"], "long", b"\0", BAD),
        (["long", "string"], ["null", "long"], b"\2" + AB, BAD),
        (["long", "int"], "int", b"\2\2", 1),
        (["long", "int"], "int", b"\0\2", BAD),
        (["bytes", "string"], "string", b"\2" + AB, "ab"),
        ([FEW, "null"], ["null", MORE], b"\0\2", BAD),
        (E, SYMBOLS, b"\2", "B"),
        (E, SYMBOLS, b"\0", BAD),
        (E, {**SYMBOLS, "default": "C"}, b"\0", "C"),
        (E, {**SYMBOLS, "default": "A"}, b"\0", BAD),
        ({**FEW, "name": "a.R"}, {**FEW, "name": "b.R"}, b"\2", {"a": 1}),
        (FEW, {**FEW, "name": "Q", "aliases": ["R"]}, b"\2", {"a": 1}),
        (MORE, FEW, b"\2\2", {"a": 1}),
        (FEW, MORE, b"\2", BAD),
        # a field of the column's name, and one of its alias: neither is taken for the other
        (AB_FIELDS, OLD_A, b"\2\4", Bad("two fields for value.b")),
        (BA_FIELDS, OLD_A, b"\2\4", Bad("two fields for value.b")),
    ],
)
def test_a_value_that_would_change_is_bad(
    writers: Registry, written: Any, read: Any, data: bytes, expected: Any
) -> None:
    """At the edges: numbers that a float does not have, decimals of other scales, members and
    symbols that the reader lacks.
    """
    given = Avro(json.dumps(read), registry=writers.url)
    data = framed(writers.register("x", json.dumps(written))) + data
    if isinstance(expected, Bad):
        assert expected in reason(given, data)
    else:
        assert decoded(given, [data]) == ([expected], {})


A = avro_record("n1.A", x="int")
B = {**A, "name": "n2.A"}


@pytest.mark.parametrize(
    ("reader", "expected"),
    [(B, [None, {"x": 2}]), (["null", B], [None, {"x": 2}]), (["null", A], [{"x": 1}, None])],
    ids=["the second", "it or null", "the first or null"],
)
def test_a_member_of_a_union_is_taken_by_its_whole_name(
    registry: Registry, reader: Any, expected: list[Any]
) -> None:
    """Another namespace is forgiven where no member has the reader's."""
    number = registry.register("s", [A, B])
    records = [framed(number) + b"\x00\x02", framed(number) + b"\x02\x04"]
    values, reasons = decoded(Avro(reader, registry=registry.url), records)
    assert values == expected
    assert list(reasons) == [expected.index(None)]
    other = Avro({**B, "name": "n3.A"}, registry=registry.url)
    assert decoded(other, records) == ([{"x": 1}, {"x": 2}], {})
