"""Schemas, records and what they decode to, for the tests of each format."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2
from pyspark import cloudpickle

from exactum.formats import format as record_format
from exactum.formats.format import arrow_type
from tests.kit.decoding.records import class_of, proto_enum, proto_field

UTC = timezone.utc

Decoded = tuple[list[Any], dict[int, str]]
"""Of each record its value, and of the bad ones the reason."""


def decoder(given: Any) -> Callable[[Sequence[bytes | None]], Decoded]:
    """What a task makes of records, its reader having been carried there as Spark does."""
    bound = given.bind()
    reader = pickle.loads(cloudpickle.dumps(bound.reader))()
    kind = arrow_type(bound.column, "test")

    def decode(records: Sequence[bytes | None]) -> Decoded:
        column, reasons = record_format.decoded(pa.array(records, pa.binary()), kind, reader)
        assert column.type == kind and len(column) == len(records)
        return column.to_pylist(), reasons

    return decode


def decoded(given: Any, records: Sequence[bytes | None]) -> Decoded:
    return decoder(given)(records)


def reason(given: Any, record: bytes) -> str:
    """Why a record is bad, between two good ones of the same kind which stay."""
    values, reasons = decoded(given, [None, record, None])
    assert values == [None, None, None]
    assert list(reasons) == [1], f"{record[:50]!r} should be bad"
    return reasons[1]


def avro(schema: Any, value: Any, number: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named_schemas={}), value)
    return (b"" if number is None else framed(number)) + out.getvalue()


def framed(number: int) -> bytes:
    return b"\0" + struct.pack(">I", number)


def proto_file() -> Any:
    """A file with the messages Shop.Order and Shop.Other: what protoc would make of it."""
    order = {
        "name": "Order",
        "field": [
            proto_field("id", 1, "int64"),
            proto_field("name", 2, "string", proto3_optional=True, oneof_index=0),
            proto_field("big", 3, "uint64"),
            proto_field("tags", 4, "string", "repeated"),
            proto_field("state", 5, "enum", of=".shop.State"),
            proto_field("at", 6, "message", of=".google.protobuf.Timestamp"),
            proto_field("raw", 7, "bytes"),
            proto_field("counts", 8, "message", "repeated", of=".shop.Order.CountsEntry"),
        ],
        "oneof_decl": [{"name": "_name"}],
        "nested_type": [
            {
                "name": "CountsEntry",
                "field": [proto_field("key", 1, "string"), proto_field("value", 2, "int32")],
                "options": {"map_entry": True},
            }
        ],
    }
    other = {"name": "Other", "field": [proto_field("id", 1, "string")]}
    tree = {"name": "Tree", "field": [proto_field("child", 1, "message", of=".shop.Tree")]}
    return descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
        message_type=[order, other, tree],
        enum_type=[proto_enum("State", NEW=0, DONE=1)],
    )


def proto_set() -> bytes:
    return descriptor_pb2.FileDescriptorSet(file=[proto_file()]).SerializeToString()


def message(name: str) -> Any:
    return class_of(proto_file(), f"shop.{name}")


PROTO_DECODED = {
    "id": 7,
    "name": None,
    "big": Decimal(2**64 - 1),
    "tags": ["a", "b"],
    "state": "DONE",
    "at": datetime(2026, 1, 1, tzinfo=UTC),
    "raw": b"\xff",
    "counts": [("k", 1)],
}


def proto_order() -> Any:
    made = message("Order")(
        id=7, big=2**64 - 1, tags=["a", "b"], state=1, raw=b"\xff", counts={"k": 1}
    )
    made.at.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    return made
