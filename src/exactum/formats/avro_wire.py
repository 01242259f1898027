"""Avro values as bytes: a number of more than 64 bits, or a byte that is no boolean.

fastavro keeps some bits of such a number, and takes every byte but 0 for true: a value that nobody
wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from exactum.formats.format import BadRecord

_LONG = re.compile(rb"[\x80-\xff]{9}")
"""In every number of more than 63 bits."""
_BYTES_MAX = 10
_BITS_MAX = 64
_SMALL = frozenset(range(0, 0x80, 2))
"""Bytes that are a number of their own, and not a negative one."""
_SIZES = {"null": 0, "float": 4, "double": 8}

_Step = Callable[[bytes, int], int]
"""From where a value begins to where it ends."""


def wire_check(schema: Any) -> Callable[[bytes, int, int], None]:
    """A function of a record's bytes, and where its value begins and ends: raises BadRecord where
    the value is not what fastavro made of it.

    Nearly all records are cleared by a search for long numbers, unless the schema has a boolean;
    the others are walked. To be called for what fastavro could read: up to the first number of more
    than 64 bits the two agree.

    Args:
        schema: the writer's, expanded; it does not contain itself, nor arrays without bytes.
    """
    walk, always, long = _step(schema), _has_boolean(schema), _LONG.search

    def check(data: bytes, start: int, end: int) -> None:
        if (always or long(data, start) is not None) and walk(data, start) != end:
            raise BadRecord("the lengths within the record do not fit each other")

    return check


def _has_boolean(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(_has_boolean(one) for one in schema)
    if isinstance(schema, str):
        return schema == "boolean"
    inner = [one["type"] for one in schema.get("fields", ())]
    inner += [schema[name] for name in ("items", "values") if name in schema]
    return schema["type"] == "boolean" or any(map(_has_boolean, inner))


def _step(schema: Any) -> _Step:
    if isinstance(schema, list):
        return _union([_step(one) for one in schema])
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _step(kind)
    if kind in ("int", "long", "enum"):
        return _number
    if kind in ("bytes", "string"):
        return _text
    if kind == "boolean":
        return _boolean
    if kind == "array":
        return _blocks(_step(schema["items"]))
    if kind == "map":
        return _blocks(_record([_text, _step(schema["values"])]))
    if kind == "record":
        return _record([_step(one["type"]) for one in schema["fields"]])
    size = schema["size"] if kind == "fixed" else _SIZES[kind]
    return lambda data, place: place + size


def _record(steps: list[_Step]) -> _Step:
    def record(data: bytes, place: int) -> int:
        for step in steps:
            place = step(data, place)
        return place

    return record


def _union(steps: list[_Step]) -> _Step:
    def union(data: bytes, place: int) -> int:
        byte = data[place]
        member, place = (byte >> 1, place + 1) if byte in _SMALL else _varint(data, place)
        return steps[member](data, place)

    return union


def _blocks(item: _Step) -> _Step:
    def blocks(data: bytes, place: int) -> int:
        while True:
            count, place = _varint(data, place)
            if count == 0:
                return place
            if count < 0:  # the block's size follows, which no reader needs
                count, place = -count, _number(data, place)
            for _ in range(count):
                place = item(data, place)
                if place > len(data):
                    raise BadRecord("the record is cut off")

    return blocks


def _number(data: bytes, place: int) -> int:
    return place + 1 if data[place] < 0x80 else _varint(data, place)[1]


def _text(data: bytes, place: int) -> int:
    byte = data[place]
    if byte in _SMALL:
        return place + 1 + (byte >> 1)
    length, place = _varint(data, place)
    if length < 0:
        raise BadRecord("a length is negative")
    return place + length


def _boolean(data: bytes, place: int) -> int:
    if data[place] > 1:
        raise BadRecord(f"a boolean is the byte {data[place]}, which is neither 0 nor 1")
    return place + 1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A zigzag number and the place behind it."""
    value = shift = 0
    for byte in data[place : place + _BYTES_MAX]:
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            if value >> _BITS_MAX:
                break
            return (value >> 1) ^ -(value & 1), place
    raise BadRecord("a number has more than 64 bits, or is cut off")
