"""A type of Protobuf messages as it travels to the tasks, as a type of Spark, and as a reader of
messages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from exactum.errors import SettingRefused
from exactum.formats import wire
from exactum.formats.format import BadRecord
from exactum.formats.registry import SchemaText

TIMESTAMP = "google.protobuf.Timestamp"
WELL_KNOWN = (
    "any",
    "api",
    "duration",
    "empty",
    "field_mask",
    "source_context",
    "struct",
    "timestamp",
    "type",
    "wrappers",
)
NANOS = 1_000_000_000
VARINT = 0
"""The wire type of numbers, and of enums."""
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class MessageType:
    """``descriptors`` are the bytes of a FileDescriptorSet with all that ``name`` needs, in any
    order.
    """

    descriptors: bytes = field(repr=False)
    name: str

    def descriptor(self) -> Any:
        """The message's descriptor, in a pool of its own.

        Raises:
            KeyError, TypeError: the set does not have it, or not all that it needs.
        """
        from google.protobuf import descriptor_pb2, descriptor_pool  # type: ignore[import-untyped]

        files = {
            file.name: file
            for file in descriptor_pb2.FileDescriptorSet.FromString(self.descriptors).file
        }
        pool = descriptor_pool.DescriptorPool()
        added: set[str] = set()

        def add(name: str) -> None:
            if name in added:
                return
            added.add(name)
            file = files[name] if name in files else _well_known(name)
            for dependency in file.dependency:
                add(dependency)
            pool.AddSerializedFile(file.SerializeToString())

        for name in files:
            add(name)
        return pool.FindMessageTypeByName(self.name)


def of_class(message: Any) -> MessageType:
    """The type of a generated class."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    added: set[str] = set()

    def add(file: Any) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        file.CopyToProto(files.file.add())

    add(message.DESCRIPTOR.file)
    return MessageType(files.SerializeToString(), message.DESCRIPTOR.full_name)


def of_schema(schema: SchemaText, name: str | None) -> MessageType:
    """The message ``name`` of a registered schema, its first one where that is None.

    Raises:
        SettingRefused: the registry did not give the schema as a descriptor.
    """
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()

    def add(text: str, file_name: str) -> Any:
        file = file_of(text)
        if file is None:
            raise SettingRefused(
                "Protobuf: the schema registry gives schemas as text only, not as descriptors "
                "(format=serialized). Give the generated class, or descriptors=."
            )
        file.name = file_name
        files.file.append(file)
        return file

    for reference_name, text in schema.references:
        add(text, reference_name)
    main = add(schema.text, "exactum_registered.proto")
    return MessageType(files.SerializeToString(), name or name_at(main, [0]))


def file_of(text: str) -> Any:
    """The FileDescriptorProto of a registered schema; None where the registry gives text only."""
    from google.protobuf import descriptor_pb2

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None


def name_at(file: Any, indexes: Sequence[int]) -> str:
    """The full name of the message that stands at this place of a file: in it, in that one, and so
    on.

    Raises:
        BadRecord: there is none.
    """
    names = [file.package] if file.package else []
    messages = file.message_type
    for index in indexes:
        if index >= len(messages):
            raise BadRecord(f"its schema has no message at {list(indexes)}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def kind_of(descriptor: Any, inside: tuple[str, ...] = ()) -> Any:
    """Spark's type for a message.

    Raises:
        SettingRefused: it contains itself, or has no fields.
    """
    from pyspark.sql import types as t

    name = descriptor.full_name
    if name == TIMESTAMP:
        return t.TimestampType()
    if name in inside:
        raise SettingRefused(
            f"Protobuf: the message {name} contains itself, which has no type of Spark."
        )
    if not descriptor.fields:
        raise SettingRefused(
            f"Protobuf: the message {name} has no fields, which has no type of Spark."
        )

    def one(number: Any) -> Any:
        if number.message_type is not None:
            return kind_of(number.message_type, (*inside, name))
        return _plain_kind(number)

    fields = []
    for item in descriptor.fields:
        if _is_map(item):
            parts = item.message_type.fields_by_name
            made: Any = t.MapType(one(parts["key"]), one(parts["value"]), False)
        else:
            made = t.ArrayType(one(item), False) if _repeated(item) else one(item)
        fields.append(t.StructField(item.name, made, True))
    return t.StructType(fields)


def reader(descriptor: Any) -> Callable[[Any], Any]:
    """A function from a message of this type to a value that Arrow takes: a dictionary, or a
    time.
    """
    if descriptor.full_name == TIMESTAMP:
        return _time_of
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    fields = [
        (item.name, item.has_presence and not _repeated(item), _value_reader(item))
        for item in descriptor.fields
    ]
    numbers = {item.number: item for item in descriptor.fields}

    def read(message: Any) -> dict[str, Any]:
        for unknown in UnknownFieldSet(message):
            if unknown.field_number in numbers:
                raise BadRecord(_why_unknown(unknown, numbers[unknown.field_number]))
        return {
            name: None if presence and not message.HasField(name) else value(getattr(message, name))
            for name, presence, value in fields
        }

    return read


def _time_of(message: Any) -> datetime:
    """A time in microseconds; nanoseconds below are cut off, as Spark does it.

    Raises:
        BadRecord: it has more nanoseconds than a second has.
    """
    if not 0 <= message.nanos < NANOS:
        raise BadRecord(
            f"a timestamp has {message.nanos} nanoseconds, and may have 0 to {NANOS - 1}"
        )
    return EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)


def _why_unknown(unknown: Any, item: Any) -> str:
    """Why a field that the message has was not taken: Protobuf leaves a value that a closed enum
    lacks, too.
    """
    enum = _enum_of(item)
    if enum is None:
        return f"the field {item.name} has a wire type that is not its own"
    if _is_map(item):
        return (
            f"the field {item.name} has an entry with a value that the closed enum "
            f"{enum.full_name} does not have"
        )
    if unknown.wire_type != VARINT:
        return f"the field {item.name} has a wire type that is not its own"
    number = wire.signed(unknown.data)
    return (
        f"the field {item.name} holds {number}, which the closed enum {enum.full_name} does not "
        "have"
    )


def _enum_of(item: Any) -> Any:
    return item.message_type.fields_by_name["value"].enum_type if _is_map(item) else item.enum_type


def _value_reader(item: Any) -> Callable[[Any], Any]:
    if _is_map(item):
        of_value = _single_reader(item.message_type.fields_by_name["value"])
        of_key = _single_reader(item.message_type.fields_by_name["key"])
        return lambda values: [(of_key(key), of_value(values[key])) for key in values]
    single = _single_reader(item)
    return (lambda values: [single(value) for value in values]) if _repeated(item) else single


def _single_reader(item: Any) -> Callable[[Any], Any]:
    if item.message_type is not None:
        return reader(item.message_type)
    if item.enum_type is not None:
        names = {value.number: value.name for value in item.enum_type.values}
        return lambda number: names.get(number, str(number))
    return Decimal if item.cpp_type == item.CPPTYPE_UINT64 else lambda value: value


def _plain_kind(item: Any) -> Any:
    from pyspark.sql import types as t

    if item.cpp_type == item.CPPTYPE_STRING:
        return t.BinaryType() if item.type == item.TYPE_BYTES else t.StringType()
    return {
        item.CPPTYPE_INT32: t.IntegerType(),
        item.CPPTYPE_INT64: t.LongType(),
        item.CPPTYPE_UINT32: t.LongType(),
        item.CPPTYPE_UINT64: t.DecimalType(20, 0),
        item.CPPTYPE_DOUBLE: t.DoubleType(),
        item.CPPTYPE_FLOAT: t.FloatType(),
        item.CPPTYPE_BOOL: t.BooleanType(),
        item.CPPTYPE_ENUM: t.StringType(),
    }[item.cpp_type]


def _repeated(item: Any) -> bool:
    return bool(item.is_repeated)


def _is_map(item: Any) -> bool:
    return item.message_type is not None and bool(item.message_type.GetOptions().map_entry)


def _well_known(name: str) -> Any:
    """One of the files that Protobuf brings itself.

    Raises:
        KeyError: there is none of this name.
    """
    import importlib

    from google.protobuf import descriptor_pb2

    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in WELL_KNOWN:
        raise KeyError(f"the file {name}, which it imports, is missing")
    file = descriptor_pb2.FileDescriptorProto()
    importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(file)
    return file
