"""Records at the edges of what a format can say, from a seeded generator, for the fuzz."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from datetime import datetime, timezone
from fractions import Fraction
from functools import cache
from typing import Any

import hypothesis.strategies as st
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from pyspark.sql import types as t

KIND = t.StructType(
    [
        t.StructField("id", t.LongType(), False),
        t.StructField("name", t.StringType()),
        t.StructField("small", t.ByteType()),
        t.StructField("price", t.DoubleType()),
        t.StructField("rate", t.FloatType()),
        t.StructField("money", t.DecimalType(10, 2)),
        t.StructField("whole", t.DecimalType(38, 0)),
        t.StructField("fine", t.DecimalType(38, 38)),
        t.StructField("at", t.TimestampType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField("day", t.DateType()),
        t.StructField("tags", t.ArrayType(t.DecimalType(5, 1))),
        t.StructField("counts", t.MapType(t.StringType(), t.DecimalType(5, 1))),
        t.StructField(
            "inner",
            t.StructType([t.StructField("n", t.IntegerType()), t.StructField("b", t.BinaryType())]),
        ),
    ]
)


def numbers(dice: random.Random) -> str:
    """A number's JSON, or nearly: long, tiny, huge, with zeros, in every notation."""
    digits = "".join(
        dice.choice("0123456789") for _ in range(dice.choice((1, 1, 2, 5, 17, 39, 80, 400)))
    )
    whole = digits.lstrip("0") or "0"
    fraction = dice.choice(
        (
            "",
            "",
            ".5",
            ".25",
            f".{digits}",
            "." + "0" * dice.choice((1, 37, 38, 39, 80)) + "1",
            ".0",
        )
    )
    size = dice.choice((0, 1, 2, 7, 37, 38, 39, 76, 77, 400, 999_999_999, 10**18, 10**19))
    exponent = dice.choice(("", "", "", f"e{size}", f"E-{size}", f"e+{size}"))
    return dice.choice(("", "-")) + dice.choice((whole, "0", "1", "9" * 38)) + fraction + exponent


def decimals(dice: random.Random) -> str:
    text = numbers(dice)
    junk = (
        "1_0",
        " 1",
        "1 ",
        "١٢",
        "NaN",
        "sNaN1",
        "Infinity",
        "-Infinity",
        "+1",
        ".5",
        "5.",
        "0x1",
        "",
        "1\\u005f0",
        "\\u0031",
    )
    return dice.choice((text, text, f'"{text}"', f'"{dice.choice(junk)}"', "null", "true"))


def times(dice: random.Random) -> str:
    clock = dice.choice(("00:00:00", "23:59:59", "12:30:01", "24:00:00", "23:59:60"))
    fraction = dice.choice(
        (
            "",
            ".5",
            ".999999",
            ".9999999",
            ".123456000",
            ".0000001",
            ".999999999999",
            "\\u002e1234567",
        )
    )
    day = dice.choice(("2026-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "2024-02-30"))
    return f'"{day}{dice.choice("T ")}{clock}{fraction}{dice.choice(("Z", "", "+01:00", "-23:59", "z"))}"'


def json_record(dice: random.Random) -> bytes:
    """A record of ``KIND``, each field with a value at the edges, some under the wrong name."""
    makers: dict[str, Callable[[random.Random], str]] = {
        "id": lambda d: d.choice(("1", "-9223372036854775808", "9223372036854775807", numbers(d))),
        "name": lambda d: d.choice(
            ('"Zoë"', r'"\u005a\ud83d\ude00"', r'"\ud800"', '"a_b 1"', numbers(d))
        ),
        "small": numbers,
        "price": numbers,
        "rate": numbers,
        "money": decimals,
        "whole": decimals,
        "fine": decimals,
        "at": times,
        "local": times,
        "day": lambda d: d.choice(
            ('"2026-01-01"', '"2026-01-01T00:00:00Z"', '"0000-01-01"', "20000")
        ),
        "tags": lambda d: "[" + ", ".join(decimals(d) for _ in range(d.randrange(3))) + "]",
        "counts": lambda d: (
            "{" + ", ".join(f'"{k}": {decimals(d)}' for k in ("a", "b_1")[: d.randrange(3)]) + "}"
        ),
        "inner": lambda d: d.choice(
            ('{"n": 1, "b": "YWJj"}', '{"n": 2147483648}', '{"b": "a"}', "{}")
        ),
    }
    chosen = dice.sample(list(makers), dice.choice((0, 1, 1, 2)))
    fields = ['"id": 1'] if "id" not in chosen else []
    return (
        "{" + ", ".join([*fields, *(f'"{name}": {makers[name](dice)}' for name in chosen)]) + "}"
    ).encode()


class Field(dict[str, Any]):
    """All that a schema says of a field but its name, where that is more than a type."""


def avro_record(name: str, /, **fields: Any) -> Any:
    """Avro's schema of a record: of each field its type, or a ``Field``."""
    made = [
        {"name": field, **(said if isinstance(said, Field) else {"type": said})}
        for field, said in fields.items()
    ]
    return {"type": "record", "name": name, "fields": made}


def logical(kind: str, name: str, /, **more: Any) -> Any:
    """Avro's schema of a logical type."""
    return {"type": kind, "logicalType": name, **more}


AVRO = avro_record(
    "R",
    id="long",
    name=["null", "string"],
    state={"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]},
    at=logical("long", "timestamp-micros"),
    day=logical("int", "date"),
    money=logical("bytes", "decimal", precision=10, scale=2),
    token={"type": "fixed", "name": "T", "size": 3},
    tags={"type": "array", "items": ["null", "int"]},
    counts={"type": "map", "values": "double"},
    paid="boolean",
)
_STATES = {"type": "enum", "name": "S"}
READER = avro_record(
    "R",
    id="long",
    name=Field(type=["null", "string"], default=None),
    size=Field(type="double", aliases=["width"]),
    at=logical("long", "timestamp-micros"),
    note=Field(type="string", default="-"),
    raw=Field(type="bytes", default="\u00ff\u0000"),
    since=Field(type=logical("long", "timestamp-millis"), default=1000),
    share=Field(type=logical("bytes", "decimal", precision=5, scale=2), default="\u0081"),
    paid=Field(type="boolean", default=True),
    state={**_STATES, "symbols": ["NEW", "DONE"], "default": "DONE"},
    tags=Field(type={"type": "array", "items": ["null", "long"]}, default=[]),
    counts=Field(type={"type": "map", "values": "double"}, default={}),
)
"""What the records of ``WRITERS`` are read with."""
DEFAULTS = {
    "name": None,
    "note": "-",
    "raw": b"\xff\0",
    "since": datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc),
    "share": Fraction(-127, 100),
    "paid": True,
    "tags": [],
    "counts": {},
}
"""The values of ``READER``'s defaults, by the specification."""


WRITERS = (
    avro_record(
        "R",
        id="int",
        name="string",
        width="float",
        gone={"type": "array", "items": ["string", "boolean"]},
        at=logical("long", "timestamp-millis"),
        state={**_STATES, "symbols": ["DONE", "OLD", "NEW"]},
    ),
    {**READER, "fields": READER["fields"][::-1]},
    avro_record(
        "R",
        state={**_STATES, "symbols": ["NEW"]},
        note="bytes",
        raw="string",
        size="long",
        id="long",
        name=["string", "null"],
        at=logical("long", "timestamp-micros"),
        tags={"type": "array", "items": "int"},
        counts={"type": "map", "values": "float"},
    ),
)
"""Schemas that are resolved to ``READER`` by promotions, defaults, an alias, and fields that it
lacks."""


def avro_bytes(schema: Any, dice: random.Random) -> bytes:
    """A value of the schema as the specification writes it, with its members at the edges."""
    if isinstance(schema, list):
        member = dice.randrange(len(schema))
        return zigzag(member) + avro_bytes(schema[member], dice)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return b"".join(avro_bytes(one["type"], dice) for one in schema["fields"])
    if kind in ("array", "map"):
        items = [
            (_text(dice) if kind == "map" else b"")
            + avro_bytes(schema.get("items", schema.get("values")), dice)
            for _ in range(dice.choice((0, 0, 1, 3)))
        ]
        sized = zigzag(-len(items)) + zigzag(sum(map(len, items)))
        return (
            (dice.choice((zigzag(len(items)), sized)) if items else b"") + b"".join(items) + b"\0"
        )
    if kind in ("int", "long", "enum"):
        return zigzag(_number(schema, dice))
    if kind in ("float", "double"):
        value = dice.choice((0.0, -0.0, -1.5, 3e38, math.inf, math.nan))
        return struct.pack("<f" if kind == "float" else "<d", value)
    if kind == "fixed":
        return dice.randbytes(schema["size"])
    if kind == "string":
        return _text(dice)
    if kind == "bytes":
        number = dice.choice((0, -1, 127, -12345, 99999, 10**10, 10**40))
        data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        return zigzag(len(data)) + data
    return b"" if kind == "null" else dice.choice((b"\0", b"\1"))


def _text(dice: random.Random) -> bytes:
    data = dice.choice(("", "Zoë", "x" * 70, "\u4e2d\u6587\u4e2d\u6587")).encode()
    return zigzag(len(data)) + data


def _number(schema: Any, dice: random.Random) -> int:
    if isinstance(schema, dict) and schema["type"] == "enum":
        return dice.randrange(len(schema["symbols"]))
    logical = schema.get("logicalType", "") if isinstance(schema, dict) else ""
    if logical == "date":
        return dice.choice((0, -719162, 2932896))
    if logical:
        at = dice.choice((0, -62135596800000000, 253402300799999999, 1767225600000001))
        return at // 1000 if logical.endswith("millis") else at
    size = 2**31 if "int" in schema else 2**63
    return dice.choice((0, 5, -1, -size, size - 1))


def zigzag(number: int) -> bytes:
    return varint((number << 1) ^ (number >> 63))


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


@cache
def narrow_and_wide() -> tuple[Any, Any]:
    """The same message with fields of 32 bits, and with the fields of 64 bits that a newer
    schema has instead.
    """
    narrow, wide = (class_of(narrow_or_wide(wide=is_wide), "n.Out") for is_wide in (False, True))
    return narrow, wide


def narrow_or_wide(*, wide: bool) -> Any:
    """The file of the one or the other."""
    kinds = ("int64", "uint64", "sint64") if wide else ("int32", "uint32", "sint32")
    inner = [
        *(proto_field(f"f{number}", number, kind) for number, kind in enumerate(kinds, 1)),
        proto_field("many", 4, kinds[0], "repeated", options={"packed": True}),
        proto_field("state", 5, "enum", of=".n.State"),
        proto_field("states", 6, "enum", "repeated", of=".n.State"),
    ]
    outer = [proto_field("one", 1, "message", of=".n.In"), proto_field("at", 2, "int64")]
    return descriptor_pb2.FileDescriptorProto(
        name="n.proto",
        package="n",
        syntax="proto2",
        message_type=[{"name": "In", "field": inner}, {"name": "Out", "field": outer}],
        enum_type=[proto_enum("State", NEW=0, **({"LATE": 7} if wide else {}))],
    )


def proto_field(
    name: str, number: int, kind: str, label: str = "optional", *, of: str = "", **more: Any
) -> Any:
    """``of``: the name of a message or an enum."""
    made = descriptor_pb2.FieldDescriptorProto
    return made(
        name=name,
        number=number,
        type=made.Type.Value(f"TYPE_{kind.upper()}"),
        label=made.Label.Value(f"LABEL_{label.upper()}"),
        type_name=of or None,
        **more,
    )


def proto_enum(name: str, /, **numbers: int) -> Any:
    value = [{"name": each, "number": number} for each, number in numbers.items()]
    return descriptor_pb2.EnumDescriptorProto(name=name, value=value)


def class_of(file: Any, message: str) -> Any:
    """The class of a message of a file, which may import what Google has."""
    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(message))


def proto_record(dice: random.Random) -> bytes:
    wide = narrow_and_wide()[1]
    at_edges = (0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**63 - 1, -(2**63))
    number = dice.choice
    one = {
        "f1": number(at_edges),
        "f2": abs(number(at_edges)) & (2**64 - 1),
        "f3": number(at_edges),
    }
    chosen = {name: one[name] for name in dice.sample(sorted(one), dice.randrange(3))}
    more = {
        "many": [number(at_edges) for _ in range(dice.choice((0, 0, 2)))],
        "states": [0] * dice.randrange(2),
    }
    return wide(
        one={**chosen, **more, "state": number((0, 0, 7))}, at=number(at_edges)
    ).SerializeToString()


PIECES = (
    b"\0",
    b"\xff" * 9,
    b"\xff" * 9 + b"\x01",
    b"\x80" * 9 + b"\x02",
    b"\x80" * 12 + b"\x00",
    b"[" * 2_000,
    b"9" * 400,
    b"e-999999999",
    b"_",
    b'"',
    b"\x80\x01",
)
"""What is put into records in the fuzz, each of which some reader was once wrong about."""
_AT = st.integers(0, 400)
_BYTES = st.binary(min_size=1, max_size=4)
_EDIT = st.one_of(
    st.tuples(st.just("flip"), _AT, st.integers(0, 7)),
    st.tuples(st.just("insert"), _AT, st.one_of(st.sampled_from(PIECES), _BYTES)),
    st.tuples(st.just("replace"), _AT, st.one_of(st.sampled_from(PIECES), _BYTES)),
    st.tuples(st.just("delete"), _AT, st.integers(1, 9)),
    st.tuples(st.just("repeat"), _AT, st.integers(1, 30)),
)
_SEED = st.integers(0, 2**32 - 1)
SPOILED = st.one_of(
    st.tuples(_SEED, st.just([])),
    st.tuples(_SEED, st.lists(_EDIT, min_size=1, max_size=2)),
    st.tuples(_SEED, st.lists(_EDIT, min_size=1, max_size=4)),
    st.tuples(st.binary(max_size=30), st.lists(_EDIT, max_size=1)),
)
"""A record of ``make`` by its seed, or bytes, and what is done to it."""


def spoiled(make: Callable[[random.Random], bytes], drawn: Any) -> bytes:
    """The bytes that a value of ``SPOILED`` stands for."""
    base, edits = drawn
    made = bytearray(base if isinstance(base, bytes) else make(random.Random(base)))
    for what, where, how in edits:
        at = where % (len(made) + 1)
        if what == "flip" and at < len(made):
            made[at] ^= 1 << how
        elif what == "insert":
            made[at:at] = how
        elif what == "replace":
            made[at : at + len(how)] = how
        elif what == "delete":
            del made[at : at + how]
        elif what == "repeat":
            made[at:at] = made[at : at + how]
    return bytes(made)
