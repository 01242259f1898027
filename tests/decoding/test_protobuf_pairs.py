"""Protobuf messages that were written with one schema and are read with another: every pair of
types.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from exactum import Protobuf
from tests.kit.decoding import records as made
from tests.kit.decoding.format_cases import decoded, framed, reason
from tests.kit.decoding.records import proto_enum, proto_field
from tests.kit.decoding.registry import Registry

TYPES = (
    *("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32"),
    *("sfixed64", "bool", "enum", "float", "double", "string", "bytes", "message", "group"),
)
NUMBERS = TYPES[:12]
READ_AS = {
    **dict.fromkeys(NUMBERS, NUMBERS),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string", "bytes"),
    "bytes": ("string", "bytes"),
    "message": ("message", "group"),
    "group": ("message", "group"),
}
"""What each type is read as. Whatever is missing here makes a record bad."""
SAME_ON_THE_WIRE = {(f"{kind}64", f"{kind}32") for kind in ("int", "uint", "sint")}
"""Of which Protobuf itself cuts a number off."""
HOLDS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), range(-(2**31), 2**31)),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), range(-(2**63), 2**63)),
    **dict.fromkeys(("uint32", "fixed32"), range(2**32)),
    **dict.fromkeys(("uint64", "fixed64"), range(2**64)),
    "bool": range(2),
    "enum": range(-(2**31), 2**31),
}
EDGES = (0, 1, -1, 2, 5, -5, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 - 1, 2**32, 2**63 - 1)
EDGES = (*EDGES, 2**63, -(2**63), 2**64 - 1)
NAMES = {0: "NONE", 1: "ONE", 5: "FIVE"}
TEXTS: tuple[Any, ...] = ("", "a", "Zoë", b"\x08\x01", b"\xff")
VALUES: dict[str, Sequence[Any]] = {
    **{kind: [one for one in EDGES if one in HOLDS[kind]] for kind in NUMBERS},
    "float": (0.0, 1.5, struct.unpack("f", struct.pack("f", 0.1))[0], float("inf")),
    "double": (0.0, 0.1),
    "string": [one for one in TEXTS if isinstance(one, str)],
    "bytes": [one if isinstance(one, bytes) else one.encode() for one in TEXTS],
    **dict.fromkeys(("message", "group"), ({"a": 5},)),
}


OF = {"message": ".p.In", "group": ".p.In", "enum": ".p.E"}


def file_with(kind: str, label: str = "optional", syntax: str = "proto2") -> Any:
    """A file with the message p.M, whose field v has this type; ``kind`` may be a message's name."""
    outer = {"name": "M", "field": [proto_field("v", 1, kind, label, of=OF.get(kind, ""))]}
    return descriptor_pb2.FileDescriptorProto(
        name="m.proto",
        package="p",
        syntax=syntax,
        message_type=[outer, {"name": "In", "field": [proto_field("a", 1, "int32")]}],
        enum_type=[proto_enum("E", **{name: number for number, name in NAMES.items()})],
    )


def class_of(file: Any) -> Any:
    return made.class_of(file, "p.M")


def frame_of(registry: Registry, file: Any) -> bytes:
    """What stands before a record of this file's p.M."""
    return framed(registry.register("v", file)) + b"\0"


def expected(value: Any, read: str) -> Any:
    """The value of the column, or BadRecord for one that its type does not hold."""
    if read in HOLDS:
        number = int(value)
        if number not in HOLDS[read] or (read == "enum" and number not in NAMES):
            return "bad"
        if read == "enum":
            return NAMES[number]
        if read == "bool":
            return bool(number)
        return Decimal(number) if read in ("uint64", "fixed64") else number
    if read == "string" and isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "bad"
    return value.encode() if read == "bytes" and isinstance(value, str) else value


@cache
def plain(kind: str) -> Any:
    return class_of(file_with(kind))


@pytest.mark.parametrize("written", TYPES)
def test_each_type_is_read_as_each_other_or_bad(registry: Registry, written: str) -> None:
    """A value is kept, or the record is bad: Protobuf itself would make others of most."""
    frame = frame_of(registry, file_with(written))
    given = [value for value in VALUES[written] if written != "enum" or value in NAMES]
    data = [plain(written)(v=value).SerializeToString() for value in given]
    by_id = [frame + one for one in data]
    for read in TYPES:
        is_read = read in READ_AS[written]
        wanted = [repr(expected(value, read) if is_read else "bad") for value in given]
        ways = [(Protobuf(plain(read), registry=registry.url), by_id)]
        if (written, read) in SAME_ON_THE_WIRE:  # whose schema nobody knows without a registry
            ways.append((Protobuf(plain(read)), data))
        for by, records in ways:
            values, reasons = decoded(by, [*records, None])
            got = [repr("bad" if n in reasons else values[n]["v"]) for n in range(len(data))]
            assert got == wanted, f"{written} {given} as {read}: {by}"


@pytest.mark.parametrize("kind", ["sint32", "enum", "string", "message"])
def test_one_value_and_many(registry: Registry, kind: str) -> None:
    """A list of one value is that value; of more it is bad where there can be one only."""
    one, two = (0, 5) if kind == "enum" else (VALUES[kind][0], VALUES[kind][-1])
    classes = {label: class_of(file_with(kind, label)) for label in ("optional", "repeated")}
    frames = {label: frame_of(registry, file_with(kind, label)) for label in classes}

    def read(written: str, label: str, **fields: Any) -> Any:
        data = frames[written] + classes[written](**fields).SerializeToString()
        values, reasons = decoded(Protobuf(classes[label], registry=registry.url), [data, None])
        return reasons.get(0, values[0] and values[0]["v"])

    assert read("optional", "repeated") == []
    assert len(read("optional", "repeated", v=one)) == 1
    assert read("repeated", "optional") is None
    assert read("repeated", "optional", v=[one]) == read("optional", "optional", v=one)
    assert "2 values" in read("repeated", "optional", v=[one, two])
    assert len(read("repeated", "repeated", v=[one, two])) == 2


def with_field(kind: str, name: str = "v") -> Any:
    file = file_with("int32")
    file.dependency.extend(
        f"google/protobuf/{one}.proto" for one in ("timestamp", "duration", "wrappers")
    )
    field = file.message_type[0].field[0]
    field.type, field.type_name, field.name = field.TYPE_MESSAGE, f".google.protobuf.{kind}", name
    return file


def test_messages_are_told_apart_by_name(registry: Registry) -> None:
    """A Duration has the fields of a Timestamp, an Int64Value those of half the world."""
    kinds = ("Timestamp", "Duration", "Int64Value", "BytesValue", "StringValue")
    for written in kinds:
        data = frame_of(registry, with_field(written)) + b"\x0a\x00"
        for read in kinds:
            given = Protobuf(class_of(with_field(read, "renamed")), registry=registry.url)
            values, reasons = decoded(given, [data, None])
            if read == written:
                assert values[0]["renamed"] is not None, "fields are found by number"
            else:
                assert f"renamed holds the message google.protobuf.{written}" in reasons[0]


def with_map(key: str, value: str, *, is_map: bool = True) -> Any:
    file = file_with("message", "repeated")
    file.message_type[0].field[0].type_name = ".p.M.VEntry"
    file.message_type[0].nested_type.add(
        name="VEntry",
        field=[proto_field("key", 1, key), proto_field("value", 2, value, of=OF.get(value, ""))],
        options={"map_entry": is_map},
    )
    return file


def test_maps(registry: Registry) -> None:
    """Keys and values are read as fields are; the last value of a key counts, and a missing one is
    a default.
    """
    frame = frame_of(registry, with_map("string", "int64"))
    writer = class_of(with_map("string", "int64"))
    given = Protobuf(class_of(with_map("string", "int32")), registry=registry.url)
    data = frame + writer(v={"a": 1, "b": 2}).SerializeToString()
    again = writer(v={"a": -7}).SerializeToString() + b"\x0a\x00"
    assert sorted(decoded(given, [data + again])[0][0]["v"]) == [("", 0), ("a", -7), ("b", 2)]
    too_large = frame + writer(v={"a": 2**31}).SerializeToString()
    assert "v.value holds 2147483648" in reason(given, too_large)
    assert "v.value" in reason(given, frame + b"\x0a\x05\x0a\x01a\x12\x00"), "another wire type"
    unknown = frame + b"\x0a\x05\x0a\x01a\x18\x05" + b"\x0a\x07\x0a\x01b\x10\x07\x22\x00"
    assert decoded(given, [unknown])[0][0]["v"] == [("a", 0), ("b", 7)], "as in other messages"
    assert decoded(Protobuf(class_of(with_map("string", "int32"))), [unknown[6:]])[1] == {}
    as_list = Protobuf(class_of(with_map("string", "int64", is_map=False)), registry=registry.url)
    assert "is a map" in reason(as_list, data)
    for kind, default in (("enum", "NONE"), ("message", {"a": None}), ("bool", False)):
        file = with_map("sint32", kind)
        given = Protobuf(class_of(file), registry=registry.url)
        data = frame_of(registry, file) + b"\x0a\x00"
        assert decoded(given, [data])[0][0]["v"] == [(0, default)]


def with_enum(**names: int) -> Any:
    file = file_with("enum")
    file.enum_type[0].CopyFrom(proto_enum("E", **names))
    file.enum_type[0].options.allow_alias = len(set(names.values())) < len(names)
    return file


@pytest.mark.parametrize(
    ("written", "read", "wanted"),
    [
        ({"A": 0, "B": 1}, {"A": 0, "B": 1}, "B"),
        ({"A": 0, "B": 1}, {"A": 0, "C": 1}, "bad"),  # renamed, or used for something else
        ({"A": 0, "B": 1}, {"B": 0, "A": 1}, "bad"),
        ({"A": 0, "B": 1}, {"A": 0, "C": 1, "B": 1}, "B"),  # the writer's name
        ({"A": 0, "B": 1}, {"A": 0, "B": 2}, "bad"),
        ({"A": 0, "B": 1}, {"A": 0}, "bad"),
        ({"A": 0}, {"A": 0, "B": 1}, "B"),
    ],
)
def test_names_of_enums_keep_their_meaning(
    registry: Registry, written: dict[str, int], read: dict[str, int], wanted: str
) -> None:
    """The column has names: a number is only read by a name that its writer's schema does not
    gainsay.
    """
    given = Protobuf(class_of(with_enum(**read)), registry=registry.url)
    data = frame_of(registry, with_enum(**written)) + b"\x08\x01"
    values, reasons = decoded(given, [data, None])
    assert ("bad" if reasons else values[0]["v"]) == wanted


def test_fields_that_only_one_schema_has(registry: Registry) -> None:
    """The reader's are unset, the writer's are left out, and a field that is there against its
    schema is no value.
    """
    frame = frame_of(registry, file_with("int32"))
    file = file_with("int32")
    file.message_type[0].field[0].number = 2
    given = Protobuf(class_of(file), registry=registry.url)
    assert decoded(given, [frame + b"\x08\x05"])[0] == [{"v": None}]
    assert "v is not there by its schema" in reason(given, frame + b"\x08\x05\x10\x07")
    needed = Protobuf(class_of(file_with("int32", "required")), registry=registry.url)
    assert decoded(needed, [frame + b"\x08\x05"])[0] == [{"v": 5}]
    assert "required field v" in reason(needed, frame)
    file = file_with("int32", "required")
    file.message_type[0].field[0].number = 2
    needed = Protobuf(class_of(file), registry=registry.url)
    assert "required field v" in reason(needed, frame + b"\x08\x05")


def with_two(*, exclusive: bool) -> Any:
    file = file_with("int32")
    message = file.message_type[0]
    message.field.append(proto_field("w", 2, "int32"))
    if exclusive:
        message.oneof_decl.add(name="either")
        for field in message.field:
            field.oneof_index = 0
    return file


def test_oneofs(registry: Registry) -> None:
    """The last field counts of those that exclude each other where they were written; others are
    kept side by side, where Protobuf would keep the last one in silence.
    """
    frames = [frame_of(registry, with_two(exclusive=one)) for one in (False, True)]
    both = b"\x08\x05\x10\x07"
    for exclusive in (True, False):
        given = Protobuf(class_of(with_two(exclusive=exclusive)), registry=registry.url)
        values, _ = decoded(given, [frame + both for frame in frames])
        assert values == [{"v": 5, "w": 7}, {"v": None, "w": 7}]


def proto3(kind: str, label: str = "optional", *, presence: bool = False) -> Any:
    file = file_with(kind, label, "proto3")
    if presence:
        message = file.message_type[0]
        message.field[0].proto3_optional = True
        message.field[0].oneof_index = 0
        message.oneof_decl.add(name="_v")
    return file


def test_a_default_without_presence_is_not_written(registry: Registry) -> None:
    """So it is what a field that was not set is: Protobuf itself reads it so."""
    for kind, zero in (("int32", 0), ("string", "")):
        written = proto3(kind)
        data = frame_of(registry, written) + class_of(written)(v=zero).SerializeToString()
        for file, expected in (
            (proto3(kind), zero),
            (proto3(kind, presence=True), None),
            (proto3(kind, "repeated"), []),
        ):
            given = Protobuf(class_of(file), registry=registry.url)
            assert decoded(given, [data]) == ([{"v": expected}], {})


def test_a_number_that_only_the_writers_enum_names(registry: Registry) -> None:
    written = proto3("enum")
    written.enum_type[0].value.add(name="SEVEN", number=7)
    data = frame_of(registry, written) + class_of(written)(v=7).SerializeToString()
    opened, closed = (
        Protobuf(class_of(file), registry=registry.url)
        for file in (proto3("enum"), file_with("enum"))
    )
    assert decoded(opened, [data]) == ([{"v": "7"}], {})
    assert "closed enum" in decoded(closed, [data])[1][0]
