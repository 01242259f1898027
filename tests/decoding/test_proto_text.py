"""Texts of .proto files as a schema registry may give them: read like protoc's descriptors."""

from __future__ import annotations

import importlib
from importlib.metadata import files
from pathlib import PurePath
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor

from exactum import Protobuf
from exactum.errors import SettingRefused
from exactum.formats.format import BadRecord
from exactum.formats.message_type import descriptor_of, name_at
from tests.kit.decoding.format_cases import (
    PROTO_DECODED,
    decoded,
    framed,
    message,
    proto_file,
    proto_order,
    reason,
)
from tests.kit.decoding.registry import Registry
from tests.kit.errors import raised

PUBLISHED = [one for one in files("googleapis-common-protos") or () if one.suffix == ".proto"]

ORDERS = """
// What "protoc" makes of proto_file(): { ; }
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
option java_package = "com.shop;}";  /* message Lost { */
message Order {
  int64 id = 1;
  optional string name = 2 [json_name = "];", (mine) = { a: [1, 2] b < c: "}" > }];
  uint64 big = 0x3;
  repeated string tags = 4; ;
  State state = 5;
  google.protobuf.Timestamp at = 6;
  bytes raw = 7; reserved 9, 20 to max; reserved "gone";
  map < string, int32 > counts = 8 [deprecated = true];
}
enum State { option (mine) = true; NEW = 0; DONE = 1 [deprecated = true]; }
message Other { string id = 1; }
message Tree { .shop.Tree child = 1; }
service Shop { rpc Buy (Order) returns (stream Other) { option deprecated = true; } }
"""
OLD = """
package p;
message A {
  required group Part = 1 { optional B.C c = 2; }
  oneof either { int32 x = 3; B y = 4 [lazy = true]; group Sub = 5 { } }
  extensions 100 to 199;
  message B { message C { optional E e = 1 [default = LOW]; } }
  enum E { LOW = -1; MIN = -1; }
  extend A { optional int32 extra = 100; }
}
"""


def file_of(made: Any, *known: FileDescriptor) -> FileDescriptor:
    """What a descriptor pool makes of a file; without it among those that it imports."""
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = {made.name}

    def add(file: FileDescriptor) -> None:
        if file.name not in added:
            added.add(file.name)
            for one in file.dependencies:
                add(one)
            pool.AddSerializedFile(file.serialized_pb)

    for file in known:
        add(file)
    pool.AddSerializedFile(made.SerializeToString())
    return pool.FindFileByName(made.name)


def facts(file: FileDescriptor) -> list[Any]:
    """All that says how values are read, and where messages stand."""

    def of_enum(enum: Any) -> Any:
        return enum.full_name, enum.is_closed, [(one.name, one.number) for one in enum.values]

    def of_message(one: Any) -> Any:
        fields = [
            (
                *(item.name, item.number, item.type, item.is_repeated, item.is_required),
                item.has_presence,
                item.message_type and item.message_type.full_name,
                item.enum_type and item.enum_type.full_name,
                item.containing_oneof and item.containing_oneof.name,
            )
            for item in one.fields
        ]
        inside = [of_message(other) for other in one.nested_types]
        return one.full_name, fields, inside, [of_enum(enum) for enum in one.enum_types]

    messages = file.message_types_by_name.values()
    return [*map(of_message, messages), *map(of_enum, file.enum_types_by_name.values())]


@pytest.mark.parametrize("path", PUBLISHED, ids=str)
def test_published_files_are_read_as_protoc_reads_them(path: Any) -> None:
    """Their packages hold the text and what protoc made of it."""
    module = ".".join(PurePath(path).with_suffix("").parts)
    right: FileDescriptor = importlib.import_module(f"{module}_pb2").DESCRIPTOR
    made = descriptor_of(path.read_text())
    made.name = right.name
    assert facts(file_of(made, *right.dependencies)) == facts(right)


def test_old_texts() -> None:
    """Groups, extensions, oneofs and names that stand further out, in the syntax of proto2."""
    made = descriptor_of(OLD)
    made.name = "old.proto"
    (a,) = file_of(made).message_types_by_name.values()
    part = a.fields_by_name["part"]
    assert (part.type, part.is_required) == (part.TYPE_GROUP, True)
    assert part.message_type.fields_by_name["c"].message_type.full_name == "p.A.B.C"
    assert [item.name for item in a.oneofs[0].fields] == ["x", "y", "sub"]
    assert [one.name for one in a.nested_types] == ["Part", "Sub", "B"]
    enum = a.nested_types_by_name["B"].nested_types[0].fields[0].enum_type
    assert (enum.full_name, enum.is_closed, [one.number for one in enum.values]) == (
        "p.A.E",
        True,
        [-1, -1],
    )


def test_numbers_in_each_notation_of_protobuf() -> None:
    """Decimal, hexadecimal and octal, of fields, of groups and of enums."""
    made = descriptor_of(
        "message A { int32 a = 017; int32 b = 0x1F; int32 c = 0XA; optional group G = 010 { } }"
        "enum E { N = 0; O = -017; H = - 0x1f; D = 8; P = 00; }"
    )
    assert [one.number for one in made.message_type[0].field] == [15, 31, 10, 8]
    assert [one.number for one in made.enum_type[0].value] == [0, -15, -31, 8, 0]


@pytest.mark.parametrize(
    "text",
    [
        'edition = "2023"; message A { int32 a = 1; }',
        "message A { int32 a = 1;",
        "message A { int32 a = 1 [x = 2; }",
        "message A { int32 a; }",
        "message A { int32 a = one; }",
        "messages A { }",
        "message A { int32 a = 08; }",
        "message A { int32 a = 1_0; }",
        "message A { int32 a = 4294967297; }",
        "message A { enum E { X; } }",
        "message",
        "syntax; message A { int32 a = 1; }",
        "message A { $ }",
        'message A { string a = 1; } "',
        "/* message A { }",
        "",
    ],
)
def test_texts_that_are_not_understood(registry: Registry, text: str) -> None:
    """They are refused as a reader's schema, and records of theirs are bad."""
    number = registry.register("s", b"", kind="PROTOBUF", text=text)
    registry.texts = True
    with pytest.raises(SettingRefused):
        Protobuf(registry=registry.url, subject="s").bind()
    why = reason(Protobuf(message("Order"), registry=registry.url), framed(number) + b"\0")
    assert why.startswith("its schema") and "Error" not in why


def test_a_registry_that_has_texts_only(registry: Registry) -> None:
    """Another message is bad, and a subject can be read, as where descriptors are given; a file
    that another one imports, too.
    """
    file = proto_file()
    number = registry.register("in", file.SerializeToString(), kind="PROTOBUF", text=ORDERS)
    data = proto_order().SerializeToString()
    registry.register(
        "money", b"", kind="PROTOBUF", text="message Money { optional sint32 c = 1; }"
    )
    importing = registry.register(
        "bill",
        b"",
        kind="PROTOBUF",
        text='import "money.proto"; message Bill { optional Money sum = 1; }',
        references=({"name": "money.proto", "subject": "money", "version": 1},),
    )
    registry.texts = True
    for given in (
        Protobuf(message("Order"), registry=registry.url),
        Protobuf(registry=registry.url, subject="in"),
    ):
        assert decoded(given, [framed(number) + b"\0" + data]) == ([PROTO_DECODED], {})
        assert "holds the message shop.Other" in reason(given, framed(number) + b"\x02\x02")
    given = Protobuf(registry=registry.url, subject="bill")
    assert decoded(given, [framed(importing) + b"\0\x0a\x02\x08\x01"])[0] == [{"sum": {"c": -1}}]


def test_a_registry_whose_descriptors_cannot_be_built(registry: Registry) -> None:
    """Its text counts then: one registry's descriptors have no oneofs for optional fields, and
    name the types of maps.
    """
    file = proto_file()
    order = file.message_type[0]
    del order.oneof_decl[:], order.nested_type[:]
    order.field[1].ClearField("oneof_index")
    order.field[-1].ClearField("type")
    order.field[-1].label, order.field[-1].type_name = 1, "map<string, int32>"
    number = registry.register("in", file.SerializeToString(), kind="PROTOBUF", text=ORDERS)
    given = Protobuf(message("Order"), registry=registry.url)
    data = framed(number) + b"\0" + proto_order().SerializeToString()
    assert decoded(given, [data]) == ([PROTO_DECODED], {})


def test_imports(registry: Registry) -> None:
    """Files that Protobuf and the registry's client bring need no reference; another one that is
    not there is named.
    """
    head = 'syntax = "proto3"; import "confluent/meta.proto"; import "google/type/money.proto";'
    body = "message M { google.type.Money m = 1; }"
    number = registry.register("m", b"", kind="PROTOBUF", text=head + body)
    gone = registry.register("g", b"", kind="PROTOBUF", text=f'{head} import "gone.proto"; {body}')
    registry.texts = True
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
