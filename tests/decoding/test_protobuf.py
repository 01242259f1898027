"""Protobuf: what is decoded, what is bad."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from exactum import Avro, Protobuf
from exactum.errors import SettingRefused
from tests.kit.decoding.format_cases import (
    PROTO_DECODED,
    decoded,
    framed,
    message,
    proto_file,
    proto_order,
    proto_set,
    reason,
)
from tests.kit.decoding.messages import narrow_and_wide
from tests.kit.decoding.registry import Registry

pytestmark = pytest.mark.spark


def test_protobuf_round_trip(spark: SparkSession) -> None:
    """Every kind of field comes out with its value; a class and a descriptor set mean the same."""
    data = proto_order().SerializeToString()
    for given in (Protobuf(message("Order")), Protobuf("shop.Order", proto_set())):
        assert decoded(given, [data, None]) == ([PROTO_DECODED, None], {})
    nothing = {
        "id": 0,
        "name": None,
        "big": Decimal(0),
        "tags": [],
        "state": "NEW",
        "at": None,
        "raw": b"",
        "counts": [],
    }
    assert decoded(Protobuf(message("Order")), [b""]) == ([nothing], {}), (
        "an empty message is a message"
    )


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"\x08", "DecodeError"),  # a field without its value
        (b"\x12\x05ab", "DecodeError"),  # a text shorter than it says
        (b"\x12\x02\xff\xfe", "DecodeError"),  # a text that is not UTF-8
        (b"\x12\xff\xff\xff\xff\x0fab", "DecodeError"),  # a huge one
        (b"\x0a\x01a", "field id has a wire type"),  # a text where a number belongs
        (b"\x08\x01\x00", "DecodeError"),  # a field with the number 0 behind the message
        (b"\x32\x06\x10\x80\x94\xeb\xdc\x03", "1000000000 nanoseconds"),
        (
            b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
            "Error",
        ),  # a time outside of the calendar
    ],
)
def test_protobuf_that_is_not_the_message_is_bad(
    spark: SparkSession, record: bytes, why: str
) -> None:
    """Broken messages, wrong wire types and values outside of their column's range are bad
    records.
    """
    assert why in reason(Protobuf(message("Order")), record)


def test_protobuf_numbers_are_never_cut_off(spark: SparkSession) -> None:
    """A number of 64 bits in a field of 32 is taken where it fits, and else makes the record
    bad: none wraps around.
    """
    narrow, wide = narrow_and_wide()
    ranges = {"f1": (-(2**31), 2**31 - 1), "f2": (0, 2**32 - 1), "f3": (-(2**31), 2**31 - 1)}
    for name, (low, high) in ranges.items():
        for number in (low, high, 0, 5):
            data = wide(one={name: number}, at=-1).SerializeToString()
            assert decoded(Protobuf(narrow), [data])[0][0]["one"][name] == number
        for number in (
            high + 1,
            2**32,
            2**33 + 5,
            2**63 - 1,
            *((low - 1, -(2**33) - 1) if low else ()),
        ):
            data = wide(one={name: number}, at=-1).SerializeToString()
            why = reason(Protobuf(narrow), data)
            assert f"the field {name} holds" in why and "does not fit its 32 bits" in why
    assert decoded(Protobuf(narrow), [wide(one={"many": [1, -1]}).SerializeToString()])[0][0][
        "one"
    ]["many"] == [1, -1]
    assert "many holds 4294967296" in reason(
        Protobuf(narrow), wide(one={"many": [1, 2**32]}).SerializeToString()
    )
    last_wins = (
        wide(one={"f1": 2**32}).SerializeToString()
        + wide(one={"f1": 5}, at=2**60).SerializeToString()
    )
    assert "f1 holds 4294967296" in reason(Protobuf(narrow), last_wins)


def test_protobuf_numbers_of_more_than_64_bits_are_bad(spark: SparkSession) -> None:
    """Protobuf keeps 64 of them in silence, whatever the field; a text may have such bytes."""
    over = b"\x80" * 9 + b"\x02"
    for cls in narrow_and_wide():
        assert "more than 64 bits" in reason(Protobuf(cls), b"\x10" + over)
        for field in (b"\x08", b"\x10", b"\x18"):
            inner = field + over
            assert "more than 64 bits" in reason(
                Protobuf(cls), b"\x0a" + bytes([len(inner)]) + inner
            )
        packed = b"\x22" + bytes([len(over)]) + over
        assert "more than 64 bits" in reason(Protobuf(cls), b"\x0a" + bytes([len(packed)]) + packed)
    least = b"\x10" + b"\x80" * 9 + b"\x01"
    assert decoded(Protobuf(narrow_and_wide()[1]), [least])[0][0]["at"] == -(2**63)
    # A field that no schema has is read by nobody, with or without a number that is written longer
    # than it need be, and makes the bytes be looked at.
    for beside in (b"", b"\x10\x80\x00"):
        assert decoded(Protobuf(narrow_and_wide()[0]), [beside + b"\x18" + over])[1] == {}
    order = proto_order()
    order.name = "\u4e2d" * 9 + "\x02"
    assert decoded(Protobuf(message("Order")), [order.SerializeToString()])[1] == {}


def test_protobuf_enums_of_a_newer_schema(spark: SparkSession) -> None:
    """A value that a closed enum lacks makes the record bad and is named; one that an open enum
    lacks is its number.
    """
    narrow, wide = narrow_and_wide()
    assert "the field state holds 7, which the closed enum n.State does not have" in reason(
        Protobuf(narrow), wide(one={"state": 7}).SerializeToString()
    )
    assert "the field states holds 7" in reason(
        Protobuf(narrow), wide(one={"states": [0, 7]}).SerializeToString()
    )
    assert decoded(Protobuf(message("Order")), [b"\x28\x07"])[0][0]["state"] == "7"
    assert "has a wire type that is not its own" in reason(Protobuf(narrow), b"\x0a\x03\x2a\x01a")


def test_protobuf_with_a_registry(spark: SparkSession, registry: Registry) -> None:
    """The message's place in its schema is read and checked; the columns come from the class or
    the subject.
    """
    number = registry.register("in-value", proto_file().SerializeToString(), kind="PROTOBUF")
    data = proto_order().SerializeToString()
    for given in (
        Protobuf(message("Order"), registry=registry.url),
        Protobuf(registry=registry.url, subject="in-value"),
        Protobuf("shop.Order", registry=registry.url, subject="in-value"),
    ):
        records = [
            framed(number) + b"\x00" + data,
            framed(number) + b"\x02\x00" + data,
        ]  # both mean the first message
        assert decoded(given, records) == ([PROTO_DECODED] * 2, {})
        assert "holds the message shop.Other" in reason(given, framed(number) + b"\x02\x02")
        assert "no message at [9]" in reason(given, framed(number) + b"\x02\x12")
        assert "cut off" in reason(given, framed(number))
        assert "not known" in reason(given, framed(99) + b"\x00" + data)


def test_a_bad_key_does_not_change_how_values_are_read(
    spark: SparkSession, registry: Registry
) -> None:
    """A key that was written with the value's serializer: its schema is asked for as another kind
    first, in a form that tells nothing of messages.
    """
    number = registry.register("in-value", proto_file().SerializeToString(), kind="PROTOBUF")
    given = Protobuf(message("Order"), registry=registry.url)
    other = Avro('"long"', registry=registry.url)
    assert "is of kind PROTOBUF, not AVRO" in reason(other, framed(number) + b"\x02")
    data = proto_order().SerializeToString()
    assert decoded(given, [framed(number) + b"\x00" + data]) == ([PROTO_DECODED], {})
    assert "holds the message shop.Other" in reason(given, framed(number) + b"\x02\x02")


def test_a_message_that_contains_itself_is_refused(spark: SparkSession) -> None:
    """It has no type of Spark."""
    with pytest.raises(SettingRefused, match=r"shop\.Tree contains itself"):
        Protobuf(message("Tree")).bind()
