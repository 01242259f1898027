"""Protobuf messages as bytes: which field holds a number that does not fit it.

Protobuf's parsers cut such a number off in silence: 2^32, written by a schema with int64, is 0 for
one with int32; and of a number of more than 64 bits they keep 64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from exactum.formats.format import BadRecord

_LONG = re.compile(rb"[\x80-\xff]{4}")
"""In every number of more than 28 bits."""
_OVER = re.compile(rb"[\x80-\xff]{9}[\x02-\x7f]")
"""In every number of more than 64 bits that Protobuf takes, which is one of ten bytes."""
_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)


def fit_check(descriptor: Any) -> Callable[[bytes, Any], None]:
    """A function of a message's bytes and of the message that was parsed from them: raises
    BadRecord for a number that was cut off.

    Nearly all messages are cleared by a search for long numbers, or by being the same bytes when
    they are written again; the others are walked.
    """
    long = (_LONG if _has_narrow(descriptor, set()) else _OVER).search

    def check(data: bytes, message: Any) -> None:
        if long(data) is not None and message.SerializePartialToString() != data:
            _walk(data, 0, len(data), descriptor, 0)

    return check


def signed(number: int) -> int:
    """A number of 64 bits as Protobuf's signed types read it."""
    return number - (1 << 64) if number >> 63 & 1 else number


def _has_narrow(descriptor: Any, seen: set[str]) -> bool:
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        _range(item) is not None
        or (item.message_type is not None and _has_narrow(item.message_type, seen))
        for item in descriptor.fields
    )


def _numbers(item: Any) -> tuple[int, ...]:
    """The types whose values are numbers of varying length."""
    return (
        *(item.TYPE_INT32, item.TYPE_UINT32, item.TYPE_SINT32, item.TYPE_BOOL, item.TYPE_ENUM),
        *(item.TYPE_INT64, item.TYPE_UINT64, item.TYPE_SINT64),
    )


def _range(item: Any) -> tuple[int, int] | None:
    """The least and the largest number, as on the wire; None for a field that holds every
    number.
    """
    if item.type in (item.TYPE_INT32, item.TYPE_ENUM):
        return -(2**31), 2**31 - 1
    return (0, 2**32 - 1) if item.type in (item.TYPE_UINT32, item.TYPE_SINT32) else None


def _walk(data: bytes, place: int, end: int, descriptor: Any, group: int) -> int:
    """Looks at the fields of a message, up to the end or to the end of its group; the place behind
    it.
    """
    items = descriptor.fields_by_number if descriptor is not None else {}
    while place < end:
        tag, place = _varint(data, place, end)
        item = items.get(tag >> 3)
        wire_type = tag & 7
        if wire_type == _END and tag >> 3 == group:
            return place
        if wire_type == _VARINT:
            number, place = _varint(data, place, end)
            _check(item, number)
        elif wire_type == _BYTES:
            length, place = _varint(data, place, end)
            _look_inside(data, place, place + length, item)
            place += length
        elif wire_type == _GROUP:
            inner = item.message_type if item is not None and item.type == item.TYPE_GROUP else None
            place = _walk(data, place, end, inner, tag >> 3)
        elif wire_type in (_FIXED32, _FIXED64):
            place += 4 if wire_type == _FIXED32 else 8
        else:
            raise BadRecord(f"the wire type {wire_type} is none of Protobuf's")
    return place


def _look_inside(data: bytes, place: int, end: int, item: Any) -> None:
    if item is None:
        return
    if item.message_type is not None:
        _walk(data, place, end, item.message_type, 0)
    elif item.is_repeated and item.type in _numbers(item):
        for number in _packed(data, place, end):
            _check(item, number)


def _packed(data: bytes, place: int, end: int) -> Iterator[int]:
    while place < end:
        number, place = _varint(data, place, end)
        yield number


def _check(item: Any, number: int) -> None:
    if item is None or item.type not in _numbers(item):
        return  # no field of this message: whatever it holds, it is not read
    if number >> 64:
        raise BadRecord(f"the field {item.name} holds a number of more than 64 bits")
    limits = _range(item)
    if limits is None:
        return
    value = signed(number) if limits[0] < 0 else number
    if not limits[0] <= value <= limits[1]:
        raise BadRecord(f"the field {item.name} holds {value}, which does not fit its 32 bits")


def _varint(data: bytes, place: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while place < end:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise BadRecord("a number is cut off")
