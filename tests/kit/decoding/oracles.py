"""What a record's value must be, by other readers of the same bytes than those under test: Python's
json with exact numbers, the specifications of Avro and Protobuf by the letter.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
from pyspark.sql import types as t

from tests.kit.decoding.records import narrow_and_wide

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def is_json_of(kind: Any, text: Any, value: Any) -> bool:
    """True if a column's value is exactly what Python's own json reads; numbers as texts of
    ``parse_float=str``.
    """
    if value is None or text is None:
        return value is None and text is None
    if isinstance(kind, t.StructType):
        return all(
            is_json_of(one.dataType, text.get(one.name), value[one.name]) for one in kind.fields
        )
    if isinstance(kind, t.ArrayType):
        return len(text) == len(value) and all(
            map(is_json_of, [kind.elementType] * len(text), text, value)
        )
    if isinstance(kind, t.MapType):
        return text.keys() == dict(value).keys() and all(
            is_json_of(kind.valueType, text[k], v) for k, v in value
        )
    if isinstance(kind, t.DecimalType):
        return is_number(str(text)) and same_number(str(text), value)
    if isinstance(kind, t.DoubleType):
        return bool(value == float(str(text)))
    if isinstance(kind, t.FloatType):
        return bool(value == pa.scalar(str(text)).cast(pa.float32()).as_py())
    if isinstance(kind, (t.TimestampType, t.TimestampNTZType)):
        return same_time(text, value)
    if isinstance(kind, t.DateType):
        return str(value) == text
    if isinstance(kind, t.StringType):
        return type(text) is str and value == text
    if isinstance(kind, t.BinaryType):
        return type(text) is str and base64.b64encode(value).decode() == text
    return isinstance(text, Digits) and int(text) == value


def is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is not None


def same_number(text: str, value: Decimal) -> bool:
    """By their digits: no arithmetic with the exponents of the text, which may be huge."""
    mantissa, _, exponent = text.lower().partition("e")
    if not mantissa.strip("+-.0"):
        return value == 0
    size = int(exponent or 0)
    return abs(size) < 1_000 and Fraction(
        mantissa if mantissa[-1] != "." else mantissa[:-1]
    ) * Fraction(10) ** size == Fraction(value)


def same_time(text: str, value: datetime) -> bool:
    """Its nanoseconds are none, and its seconds are those of Python's own reader."""
    clock = re.fullmatch(r"(.{19})(?:\.([0-9]+))?(.*)", text)
    assert clock is not None, text
    fraction = (clock[2] or "").ljust(6, "0")
    read = datetime.fromisoformat(
        clock[1].replace(" ", "T") + "." + fraction[:6] + clock[3].upper()
    )
    return not fraction[6:].strip("0") and read == value


class Digits(str):
    """A number of a JSON text, as it is written."""


def is_json_record_of(kind: Any, data: bytes, value: Any) -> bool:
    def refuse(text: str) -> None:
        raise ValueError(text)

    read = json.loads(data.decode(), parse_float=Digits, parse_int=Digits, parse_constant=refuse)
    return is_json_of(kind, read, value)


class NotWritten(Exception):
    """Bytes that no writer of Avro makes: what they are is not said."""


class AvroBytes:
    """Reads the bytes of one Avro value by the letter of the specification; any error means that
    they are none.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value >= 2**64 or shift > 70:
            raise NotWritten("a number of more than 64 bits")
        return (value >> 1) ^ -(value & 1)

    def take(self, count: int) -> bytes:
        found = self.data[self.place : self.place + count]
        assert count >= 0 and len(found) == count, "cut off"
        self.place += count
        return found

    def blocks(self) -> Iterator[None]:
        while count := self.long():
            if count == -(2**63):
                raise NotWritten("a block of as many")
            if count < 0:
                count = -count
                self.long()
            for _ in range(count):
                yield

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self.index(len(schema))])
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind == "record":
            return {one["name"]: self.value(one["type"]) for one in schema["fields"]}
        if kind == "array":
            return [self.value(schema["items"]) for _ in self.blocks()]
        if kind == "map":
            return {self.text(): self.value(schema["values"]) for _ in self.blocks()}
        if kind == "enum":
            return schema["symbols"][self.index(len(schema["symbols"]))]
        if kind == "fixed":
            return self.take(schema["size"])
        if kind == "string":
            return self.text()
        if kind == "bytes":
            return self.logical(schema, self.take(self.long()))
        if kind in ("float", "double"):
            form = "<f" if kind == "float" else "<d"
            return struct.unpack(form, self.take(struct.calcsize(form)))[0]
        if kind == "boolean":
            return self.take(1) != b"\0"
        return None if kind == "null" else self.logical(schema, self.long())

    def text(self) -> str:
        """Not of UTF-8 it is equal to no value, and a field that nobody reads may hold it."""
        return self.take(self.long()).decode(errors="surrogateescape")

    def index(self, count: int) -> int:
        found = self.long()
        assert 0 <= found < count, "no such member"
        return found

    def logical(self, schema: Any, value: Any) -> Any:
        name = schema.get("logicalType", "") if isinstance(schema, dict) else ""
        if name == "decimal":
            return Fraction(int.from_bytes(value, "big", signed=True), 100)
        if name == "date":
            return date(1970, 1, 1) + timedelta(days=value)
        if name.endswith("millis"):
            return EPOCH + timedelta(milliseconds=value)
        return EPOCH + timedelta(microseconds=value) if name else value


def is_avro_of(
    data: bytes, value: Any, writer: Any, reader: Any, defaults: Mapping[str, Any]
) -> bool:
    """``writer`` and ``reader`` are records; ``defaults`` are the values of the reader's."""
    bytes_ = AvroBytes(data)
    read = resolved(writer, reader, bytes_.value(writer), defaults)
    return bytes_.place == len(data) and same(read, value)


def resolved(writer: Any, reader: Any, value: Any, defaults: Mapping[str, Any]) -> Any:
    """A writer's value as the reader's, by Avro's rules; those of this file's schemas."""
    if value is None:
        return None
    if isinstance(reader, list):
        reader = next(one for one in reader if one != "null")
    if isinstance(writer, list):
        writer = next((one for one in writer if one != "null"), "null")
    kind = reader if isinstance(reader, str) else reader["type"]
    if kind == "record":
        made = {}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            kinds = [one["type"] for one in writer["fields"] if one["name"] in names]
            name = next((name for name in names if name in value), None)
            made[field["name"]] = (
                defaults[field["name"]]
                if name is None
                else resolved(kinds[0], field["type"], value[name], {})
            )
        return made
    if kind == "array":
        return [resolved(writer["items"], reader["items"], one, {}) for one in value]
    if kind == "map":
        return {
            key: resolved(writer["values"], reader["values"], one, {}) for key, one in value.items()
        }
    if kind == "enum":
        return value if value in reader["symbols"] else reader["default"]
    if kind == "string" and isinstance(value, bytes):
        return value.decode()
    if kind == "bytes" and isinstance(value, str):
        return value.encode(errors="surrogateescape")
    return float(value) if kind in ("float", "double") else value


def same(read: Any, value: Any) -> bool:
    """Equal, to the sign of a zero; a map may be a list of pairs."""
    if isinstance(read, dict):
        value = dict(value)
        return read.keys() == value.keys() and all(same(read[key], value[key]) for key in read)
    if isinstance(read, list):
        return len(read) == len(value) and all(map(same, read, value))
    if isinstance(read, Fraction):
        return read == Fraction(value)
    if isinstance(read, float):
        return repr(read) == repr(value)
    return isinstance(value, type(read)) and bool(read == value)


def is_proto_of(data: bytes, value: Any) -> bool:
    """As the same message with fields of 64 bits reads it."""
    read = narrow_and_wide()[1].FromString(data)
    if (read.at if read.HasField("at") else None) != value["at"]:
        return False
    one = read.one if read.HasField("one") else None
    if (one is None) != (value["one"] is None):
        return False
    for name in ("f1", "f2", "f3") if one is not None else ():
        if (getattr(one, name) if one.HasField(name) else None) != value["one"][name]:
            return False
    return one is None or list(one.many) == value["one"]["many"]


def varint_at(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            assert value < 2**64, "more than 64 bits"
            return value, place
