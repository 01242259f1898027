"""Protobuf: what is decoded, what is bad."""

from __future__ import annotations

from decimal import Decimal

import pytest
from google.protobuf import descriptor_pb2

from exactum import Avro, Protobuf
from exactum.errors import SettingRefused
from exactum.formats.format import BadRecord
from exactum.formats.message_type import name_at
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
from tests.kit.decoding.records import narrow_and_wide, proto_field
from tests.kit.decoding.registry import Registry
from tests.kit.errors import raised

pytestmark = pytest.mark.usefixtures("spark")


def test_protobuf_round_trip() -> None:
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
        (b"\x08", "no Protobuf message"),  # a field without its value
        (b"\x12\x05ab", "no Protobuf message"),  # a text shorter than it says
        (
            b"\x12\x02\xff\xfe",
            "the field name: it is not valid UTF-8: byte 0 is 0xff",
        ),  # a text that is not UTF-8
        (b"\x12\xff\xff\xff\xff\x0fab", "no Protobuf message"),  # a huge one
        (b"\x0a\x01a", "field id is not there by its schema"),  # a text where a number belongs
        (b"\x08\x01\x00", "no Protobuf message"),  # a field with the number 0 behind the message
        (b"\x32\x06\x10\x80\x94\xeb\xdc\x03", "1000000000 nanoseconds"),
        (
            b"\x32\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            "9223372036854775807 seconds, which no calendar has",
        ),  # a time outside of the calendar
    ],
)
def test_protobuf_that_is_not_the_message_is_bad(record: bytes, why: str) -> None:
    """Broken messages, wrong wire types and values outside of their column's range are bad
    records.
    """
    assert why in reason(Protobuf(message("Order")), record)


def test_protobuf_lists_and_later_values_are_not_cut_off() -> None:
    """Numbers of 64 bits where the schema has 32 (all others: test_protobuf_pairs)."""
    narrow, wide = narrow_and_wide()
    fits = wide(one={"many": [1, -1]}).SerializeToString()
    assert decoded(Protobuf(narrow), [fits])[0][0]["one"]["many"] == [1, -1]
    large = wide(one={"many": [1, 2**32]}).SerializeToString()
    assert "one.many holds 4294967296, which does not fit" in reason(Protobuf(narrow), large)
    last_wins = wide(one={"f1": 2**32}).SerializeToString()
    last_wins += wide(one={"f1": 5}, at=2**60).SerializeToString()
    assert decoded(Protobuf(narrow), [last_wins])[0][0]["one"]["f1"] == 5


def test_protobuf_enums_of_a_newer_schema() -> None:
    """A value that a closed enum lacks makes the record bad and is named; one that an open enum
    lacks is its number.
    """
    narrow, wide = narrow_and_wide()
    assert "one.state holds 7, which the closed enum n.State does not have" in reason(
        Protobuf(narrow), wide(one={"state": 7}).SerializeToString()
    )
    assert "one.states holds 7" in reason(
        Protobuf(narrow), wide(one={"states": [0, 7]}).SerializeToString()
    )
    assert decoded(Protobuf(message("Order")), [b"\x28\x07"])[0][0]["state"] == "7"
    assert "one.state is not there by its schema" in reason(Protobuf(narrow), b"\x0a\x03\x2a\x01a")


def test_protobuf_with_a_registry(registry: Registry) -> None:
    """The message's place in its schema is read and checked; the columns come from the class or
    the subject.
    """
    number = registry.register("in-value", proto_file())
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
        assert "no message at [-1]" in reason(given, framed(number) + b"\x02\x01")
        assert "too short" in reason(given, framed(number))
        assert "too short" in reason(given, framed(number) + b"\x02")
        assert "not known" in reason(given, framed(99) + b"\x00" + data)


def test_a_registry_that_has_texts_only(registry: Registry) -> None:
    """It is refused, at the start or by the first record: no record is bad by it."""
    number = registry.register("in", proto_file())
    registry.texts = True
    with raised(SettingRefused, "REGISTRY_SCHEMA", "format=serialized"):
        Protobuf(registry=registry.url, subject="in").bind()
    with raised(SettingRefused, "REGISTRY_SCHEMA", "format=serialized"):
        decoded(Protobuf(message("Order"), registry=registry.url), [framed(number) + b"\0"])


def test_imports(registry: Registry) -> None:
    """Files that Protobuf and the registry's client bring need no reference; another one that is
    not there is named.
    """

    def register(subject: str, *more: str) -> int:
        imports = ("confluent/meta.proto", "google/type/money.proto", *more)
        file = descriptor_pb2.FileDescriptorProto(syntax="proto3", dependency=imports)
        money = proto_field("m", 1, "message", of="google.type.Money")
        file.message_type.add(name="M", field=[money])
        return registry.register(subject, file)

    number, gone = register("m"), register("g", "gone.proto")
    given = Protobuf(registry=registry.url, subject="m")
    assert decoded(given, [framed(number) + b"\0\x0a\x02\x10\x05"])[0][0]["m"]["units"] == 5
    assert "gone.proto" in reason(given, framed(gone) + b"\0")
    with raised(SettingRefused, "PROTOBUF_MESSAGE", "gone.proto"):
        Protobuf(registry=registry.url, subject="g").bind()


def test_the_place_of_a_message_beside_maps() -> None:
    """Some clients count the entries of a map among the messages, some do not: where they mean two
    messages, the record is bad.
    """
    file = descriptor_pb2.FileDescriptorProto(package="p")
    outer = file.message_type.add(name="A")
    for name in ("MapEntry", "X", "Y"):
        outer.nested_type.add(name=name).options.map_entry = name == "MapEntry"
    assert name_at(file, [0]) == "p.A"
    assert name_at(file, [0, 0]) == "p.A.X"
    assert name_at(file, [0, 2]) == "p.A.Y"
    for place, why in (([0, 1], "X or Y"), ([0, 3], "no message"), ([1], "no message")):
        with pytest.raises(BadRecord, match=why):
            name_at(file, place)


def test_a_bad_key_does_not_change_how_values_are_read(registry: Registry) -> None:
    """A key that was written with the value's serializer: its schema is asked for as another kind
    first, in a form that tells nothing of messages.
    """
    number = registry.register("in-value", proto_file())
    given = Protobuf(message("Order"), registry=registry.url)
    other = Avro('"long"', registry=registry.url)
    assert "is of kind PROTOBUF, not AVRO" in reason(other, framed(number) + b"\x02")
    data = proto_order().SerializeToString()
    assert decoded(given, [framed(number) + b"\x00" + data]) == ([PROTO_DECODED], {})
    assert "holds the message shop.Other" in reason(given, framed(number) + b"\x02\x02")


def test_a_message_that_contains_itself_is_refused() -> None:
    """It has no type of Spark."""
    with raised(SettingRefused, "PROTOBUF_MESSAGE", "shop.Tree"):
        Protobuf(message("Tree")).bind()
