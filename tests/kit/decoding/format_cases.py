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
from tests.kit.decoding.records import class_of

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
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_INT64, label=one)
    order.field.add(
        name="name",
        number=2,
        type=field.TYPE_STRING,
        label=one,
        proto3_optional=True,
        oneof_index=0,
    )
    order.oneof_decl.add(name="_name")
    order.field.add(name="big", number=3, type=field.TYPE_UINT64, label=one)
    order.field.add(name="tags", number=4, type=field.TYPE_STRING, label=many)
    order.field.add(
        name="state", number=5, type=field.TYPE_ENUM, type_name=".shop.State", label=one
    )
    order.field.add(
        name="at",
        number=6,
        type=field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
        label=one,
    )
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=one)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_INT32, label=one)
    order.field.add(
        name="counts",
        number=8,
        type=field.TYPE_MESSAGE,
        type_name=".shop.Order.CountsEntry",
        label=many,
    )
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="DONE", number=1)
    other = file.message_type.add(name="Other")
    other.field.add(name="id", number=1, type=field.TYPE_STRING, label=one)
    tree = file.message_type.add(name="Tree")
    tree.field.add(
        name="child", number=1, type=field.TYPE_MESSAGE, type_name=".shop.Tree", label=one
    )
    return file


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
