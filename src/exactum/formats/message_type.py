"""A type of Protobuf messages as it travels to the tasks, and as a type of Spark."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import SettingRefused
from exactum.formats.format import BadRecord
from exactum.formats.message_reader import TIMESTAMP, is_map
from exactum.formats.registry import DESCRIPTORS, SchemaText

REGISTERED = "exactum_registered.proto"
"""The name of the file that a registered schema is."""
_OWN_FILE = re.compile(r"(google|confluent)/((?:protobuf|type|types)/\w+|meta)\.proto")
"""Files that need no reference in a schema registry."""


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


def at(schema: SchemaText, indexes: Sequence[int], name: str | None = None) -> MessageType:
    """The message of a registered schema that stands at this place, or has this name.

    Raises:
        SettingRefused: the registry does not give its descriptor.
        BadRecord: it has no such message.
    """
    from google.protobuf import descriptor_pb2

    texts = (*schema.references, (REGISTERED, schema.text))
    files = descriptor_pb2.FileDescriptorSet(file=[_file(text, name) for name, text in texts])
    return MessageType(files.SerializeToString(), name or name_at(files.file[-1], indexes))


def _file(text: str, name: str) -> Any:
    """The FileDescriptorProto that a registry gives in base64.

    Raises:
        SettingRefused: it gives something else.
    """
    from google.protobuf import descriptor_pb2, message

    try:
        made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        raise SettingRefused(
            "REGISTRY_SCHEMA",
            "The schema registry does not give the descriptors of Protobuf schemas (it was asked "
            f"for format={DESCRIPTORS}), but their texts. Use a registry that does, or decode with "
            "a function around your message class. Nothing of the epoch is visible.",
        ) from None
    made.name = name
    return made


def name_at(file: Any, indexes: Sequence[int]) -> str:
    """The full name of the message that stands at this place of a file: in it, in that one, and so
    on. Some clients count the entries of maps, and some do not.

    Raises:
        BadRecord: there is none, or which one depends on the client.
    """
    names = [file.package] if file.package else []
    messages = list(file.message_type)
    for index in indexes:
        uncounted = [one for one in messages if not one.options.map_entry]
        at = slice(index, index + 1) if index >= 0 else slice(0)
        meant = {one.name: one for one in (*messages[at], *uncounted[at])}
        found = [one for one in meant.values() if not one.options.map_entry]
        if len(found) != 1:
            which = " or ".join(sorted(meant)) if found else "no message"
            raise BadRecord(f"its schema has {which} at {list(indexes)}")
        names.append(found[0].name)
        messages = list(found[0].nested_type)
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
            "PROTOBUF_MESSAGE",
            f"Protobuf: the message {name} contains itself, which has no type of Spark.",
        )
    if not descriptor.fields:
        raise SettingRefused(
            "PROTOBUF_MESSAGE",
            f"Protobuf: the message {name} has no fields, which has no type of Spark.",
        )

    def one(number: Any) -> Any:
        if number.message_type is not None:
            return kind_of(number.message_type, (*inside, name))
        return _plain_kind(number)

    fields = []
    for item in descriptor.fields:
        if is_map(item):
            parts = item.message_type.fields_by_name
            made: Any = t.MapType(one(parts["key"]), one(parts["value"]), False)
        else:
            made = t.ArrayType(one(item), False) if item.is_repeated else one(item)
        fields.append(t.StructField(item.name, made, True))
    return t.StructType(fields)


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


def _well_known(name: str) -> Any:
    """One of the files that Protobuf and Confluent's client bring themselves.

    Raises:
        KeyError: there is none of this name.
    """
    import importlib

    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    found = _OWN_FILE.fullmatch(name)
    try:
        if found is None:
            raise ImportError
        package = "confluent_kafka.schema_registry." if found[1] == "confluent" else ""
        module = f"{package}{found[1]}/{found[2]}".replace("/", ".")
        importlib.import_module(f"{module}_pb2").DESCRIPTOR.CopyToProto(file)
    except ImportError:
        raise KeyError(f"the file {name}, which it imports, is missing") from None
    return file
