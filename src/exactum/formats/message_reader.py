"""Protobuf messages of one type, read as another: each field by its number, each value kept, or the
record is bad.

Protobuf's own parser reads a message by any type: a number that is too large for the type is cut
off, sint32 becomes another int32, a Duration a Timestamp. So the bytes are parsed as what was
written, in a view of it: a type with the fields that are read, in which numbers of 32 bits have 64,
and every field knows whether it is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from exactum.formats.format import BadRecord, text_of

KINDS = (
    "",
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string"),
    *("group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The types of fields, by their number in a descriptor."""
_INT32, _UINT32 = (-(2**31), 2**31 - 1), (0, 2**32 - 1)
_INT64, _UINT64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)
NUMBERS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32", "enum"), _INT32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), _INT64),
    **dict.fromkeys(("uint32", "fixed32"), _UINT32),
    **dict.fromkeys(("uint64", "fixed64"), _UINT64),
    "bool": (0, 1),
}
"""The least and the largest number of each type of whole numbers. Each is read as any other one,
where the number fits.
"""
KEPT = (("float", "double"), ("string", "bytes"), ("bytes", "string"))
"""Written and read: what else is read as another type. A text of bytes must be UTF-8."""
VIEWED = {
    **dict.fromkeys(("int32", "enum"), "int64"),
    "sint32": "sint64",
    "uint32": "uint64",
    "string": "bytes",
}
"""As what a field is parsed, where not as what it was written. A text is looked at when it is
read.
"""
TIMESTAMP = "google.protobuf.Timestamp"
NANOS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

Convert = Callable[[Any], Any]


def reader(written: Any, read: Any) -> Callable[[bytes], Any]:
    """A function from the bytes of a message of the type ``written`` to a value of the type
    ``read``, as Arrow takes it. Both are descriptors.

    Raises:
        BadRecord: values of the one are none of the other.
    """
    from google.protobuf import (  # type: ignore[import-untyped]
        descriptor_pb2,
        descriptor_pool,
        message_factory,
    )
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    views = descriptor_pb2.FileDescriptorProto(name="views.proto")
    name, convert = _message(views, written, read, "")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(views.SerializeToString())
    parse = message_factory.GetMessageClass(pool.FindMessageTypeByName(name)).FromString

    def one(data: bytes) -> Any:
        try:
            message = parse(data)
        except DecodeError:  # it does not say where
            raise BadRecord(
                f"its {len(data)} bytes are no Protobuf message: a field is cut off, or is none"
            ) from None
        return convert(message)

    return one


def _message(views: Any, written: Any, read: Any, place: str) -> tuple[str, Convert]:
    """Adds a view of a message; its name, and a function from it to a value."""
    if written.full_name != read.full_name and not _is_entry(read):
        raise BadRecord(
            f"{place or 'it'} holds the message {written.full_name}, not {read.full_name}"
        )
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    view = views.message_type.add(name=f"View{len(views.message_type)}")
    numbers, fields = {}, []
    for item in read.fields:
        numbers[item.number] = where = f"{place}.{item.name}" if place else item.name
        own = written.fields_by_number.get(item.number)
        fields.append((item.name, _field(views, view, own, item, where)))

    def convert(message: Any) -> Any:
        for unknown in UnknownFieldSet(message):
            where = numbers.get(unknown.field_number)
            if where is not None:
                raise BadRecord(
                    f"the field {where} is not there by its schema, or has another wire type"
                )
        return {name: value(message) for name, value in fields}

    if read.full_name == TIMESTAMP:
        return view.name, lambda message: _time(**convert(message))
    return view.name, convert


def _field(views: Any, view: Any, written: Any, read: Any, where: str) -> Convert:
    """Adds a field to a view; a function from the view's message to the field's value."""
    unset, required = _unset(read, where), read.is_required

    def missing() -> Any:
        if required:
            raise BadRecord(f"the required field {where} is missing")
        return unset

    if written is None:
        return lambda message: missing()
    if is_map(written) != is_map(read):
        raise BadRecord(f"its schema and the column differ in whether {where} is a map")
    name, kind = f"f{read.number}", KINDS[written.type]
    field = view.field.add(name=name, number=read.number)
    field.label = field.LABEL_REPEATED if written.is_repeated else field.LABEL_OPTIONAL
    field.type = KINDS.index(VIEWED.get(kind, kind))
    if written.containing_oneof is not None:  # of which the last one counts
        oneof, known = f"oneof{written.containing_oneof.index}", [o.name for o in view.oneof_decl]
        if oneof not in known:
            view.oneof_decl.add(name=oneof)
        field.oneof_index = [*known, oneof].index(oneof)
    if written.message_type is not None and read.message_type is not None:
        field.type_name, convert = _message(views, written.message_type, read.message_type, where)
    else:
        convert = _single(written, read, where)

    def single(message: Any) -> Any:
        return convert(getattr(message, name)) if message.HasField(name) else missing()

    def many(message: Any) -> Any:
        if written.is_repeated:
            return [convert(value) for value in getattr(message, name)]
        return [single(message)] if message.HasField(name) else []

    def only(message: Any) -> Any:
        found = many(message)
        if len(found) > 1:
            raise BadRecord(f"the field {where} has {len(found)} values, and may have one")
        return found[0] if found else missing()

    if is_map(read):
        return lambda message: list({one["key"]: one["value"] for one in many(message)}.items())
    if read.is_repeated:
        return many
    if _is_entry(read.containing_type) and read.message_type is not None:
        return lambda message: convert(getattr(message, name))
    return only if written.is_repeated else single


def _single(written: Any, read: Any, where: str) -> Convert:
    """A function from a value that is no message to the column's."""
    kind, other = KINDS[written.type], KINDS[read.type]
    if kind in NUMBERS and other in NUMBERS:
        return _number(written, read, where)
    if kind != other and (kind, other) not in KEPT:
        raise BadRecord(f"its schema has {kind} for {where}, which is not read as {other}")
    return _final(read, where)


def is_map(item: Any) -> bool:
    return item.message_type is not None and _is_entry(item.message_type)


def _is_entry(message: Any) -> bool:
    return bool(message.GetOptions().map_entry)


def _unset(read: Any, where: str) -> Any:
    """The value of a field that a message does not have. Those of a map's entry have defaults."""
    if read.is_repeated:
        return []
    if read.message_type is not None or (read.has_presence and not _is_entry(read.containing_type)):
        return None
    if read.enum_type is not None:
        return read.enum_type.values_by_number[read.default_value].name
    return _final(read, where)(read.default_value)


def _number(written: Any, read: Any, where: str) -> Convert:
    """Whole numbers as another type of them, or as the names of an enum."""
    kind, other = KINDS[written.type], KINDS[read.type]
    low, high = NUMBERS[other]
    final = _final(read, where) if read.enum_type is None else _name(written, read, where)

    def convert(number: int) -> Any:
        if not low <= number <= high:
            raise BadRecord(f"the field {where} holds {number}, which does not fit {other}")
        return final(number)

    least, most = NUMBERS[VIEWED.get(kind, kind)]
    return final if low <= least and most <= high else convert


def _final(read: Any, where: str) -> Convert:
    """A function from a value that fits to what Arrow takes."""
    kind = KINDS[read.type]
    if kind == "string":
        named = f"the field {where}: "
        return lambda value: value if isinstance(value, str) else text_of(value, named)
    if kind == "bool":
        return bool
    if kind in NUMBERS:
        return Decimal if NUMBERS[kind] == _UINT64 else int
    return lambda value: value


def _name(written: Any, read: Any, where: str) -> Convert:
    """The names of an enum by number. Where the writer's schema has other names for it only, the
    record is bad.
    """
    enum, ours, theirs = read.enum_type, _names(read.enum_type), _names(written.enum_type)
    names = {
        number: next((one for one in theirs.get(number, known) if one in known), None)
        for number, known in ours.items()
    }

    def convert(number: int) -> str:
        name = names.get(number, "")
        if name is None:
            raise BadRecord(
                f"the field {where} holds {number}, which its schema calls {theirs[number][0]} and "
                f"the column {ours[number][0]}"
            )
        if not name and enum.is_closed:
            raise BadRecord(
                f"the field {where} holds {number}, which the closed enum {enum.full_name} does "
                "not have"
            )
        return name or str(number)

    return convert


def _names(enum: Any) -> dict[int, list[str]]:
    made: dict[int, list[str]] = {}
    for one in enum.values if enum is not None else ():
        made.setdefault(one.number, []).append(one.name)
    return made


def _time(seconds: int, nanos: int) -> datetime:
    """A time in microseconds; nanoseconds below are cut off, as Spark does it.

    Raises:
        BadRecord: it has more nanoseconds than a second has, or is not of the years 1 to 9999.
    """
    if not 0 <= nanos < NANOS:
        raise BadRecord(f"a timestamp has {nanos} nanoseconds, and may have 0 to {NANOS - 1}")
    try:
        return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise BadRecord(f"a timestamp has {seconds} seconds, which no calendar has") from None
