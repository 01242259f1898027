"""A type of Protobuf messages as it travels to the tasks, and as a type of Spark; and the text of a
.proto file as its descriptor, for schema registries that have no other form of it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import SettingRefused
from exactum.formats.format import BadRecord
from exactum.formats.message_reader import KINDS, TIMESTAMP, is_map
from exactum.formats.registry import SchemaText

REGISTERED = "exactum_registered.proto"
"""The name of the file that a registered schema is."""
_OWN_FILE = re.compile(r"(google|confluent)/((?:protobuf|type|types)/\w+|meta)\.proto")
"""Files that need no reference in a schema registry."""
_TOKEN = re.compile(
    r"(?:\s|//[^\n]*|/\*.*?\*/)*"
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[.\w+-]+|[][{}()<>=,;:/]|\Z|(?P<wrong>.))""",
    re.DOTALL,
)
_OCTAL = re.compile("-?0[0-7]+")
LABELS = ("optional", "required", "repeated")
PASSED_OVER = ("option", "service", "extend", "reserved", "extensions")
Statement = tuple[list[str], list[Any]]
"""Its words, and the statements in its braces."""


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
        ValueError: the schema is given as a text that is not understood.
        BadRecord: it has no such message.
    """
    from google.protobuf import descriptor_pb2

    texts = (*schema.references, (REGISTERED, schema.text))
    files = descriptor_pb2.FileDescriptorSet(file=[_file(text, name) for name, text in texts])
    return MessageType(files.SerializeToString(), name or name_at(files.file[-1], indexes))


def _file(text: str, name: str) -> Any:
    """The FileDescriptorProto of a registered schema: of its descriptor in base64, or of its text.

    Raises:
        ValueError: it is neither, or a text that is not understood.
    """
    from google.protobuf import descriptor_pb2, message

    try:
        made = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        made = descriptor_of(text)
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
        meant = {one.name: one for one in (*messages[index:][:1], *uncounted[index:][:1])}
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


# ---- the text of a file --------------------------------------------------------------------------


def descriptor_of(text: str) -> Any:
    """The FileDescriptorProto of a file, without a name.

    It takes what such a registry has checked before, in the syntax of proto2 and proto3. Options
    are passed over: none changes how values are read. Names of types are left to the descriptor
    pool.

    Raises:
        ValueError: it is not understood.
    """
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto()
    for words, inner in _statements(_tokens(text), ""):
        try:
            _add(file, words, inner)
        except (LookupError, TypeError, ValueError):
            where = " ".join(words[:2])
            raise ValueError(f"the text of a schema is not understood at {where!r}") from None
    return file


def _add(file: Any, words: list[str], inner: list[Statement]) -> None:
    if words[0] == "syntax":
        file.syntax = words[2][1:-1]
    elif words[0] == "package":
        file.package = words[1]
    elif words[0] == "import":
        if words[1] == "public":
            file.public_dependency.append(len(file.dependency))
        file.dependency.append(words[-1][1:-1])
    elif not _type(file.message_type, file.enum_type, words, inner, file.syntax == "proto3"):
        raise ValueError


def _tokens(text: str) -> Iterator[str]:
    for found in _TOKEN.finditer(text):
        if found["wrong"]:
            raise ValueError(f"the text of a schema is not understood at {found[0][-20:]!r}")
        yield found[1]


def _statements(tokens: Iterator[str], end: str) -> list[Statement]:
    """What stands up to ``end``. What stands in brackets is left out."""
    made: list[Statement] = []
    words: list[str] = []
    depth = 0
    for token in tokens:
        if depth or token == "[":
            depth += (token in ("[", "{")) - (token in ("]", "}"))
        elif token in ("{", ";", end):
            inner = _statements(tokens, "}") if token == "{" else []
            if words:
                made.append((words, inner))
            words = []
            if token == end:
                return made
        else:
            words.append(token)
    raise ValueError("the text of a schema is cut off")


def _type(messages: Any, enums: Any, words: list[str], inner: list[Statement], new: bool) -> bool:
    """Adds a type, if it is one, or nothing that changes values; ``new`` is proto3."""
    if words[0] == "message":
        _message(messages.add(name=words[1]), inner, new)
    elif words[0] == "enum":
        enum = enums.add(name=words[1])
        for value, _ in inner:
            if value[0] not in PASSED_OVER:
                enum.value.add(name=value[0], number=_number(value[2:]))
        enum.options.allow_alias = True
    else:
        return words[0] in PASSED_OVER
    return True


def _message(message: Any, inner: list[Statement], new: bool) -> None:
    optional = []
    for words, within in inner:
        if words[0] == "oneof":
            index = len(message.oneof_decl)
            message.oneof_decl.add(name=words[1])
            for member, group in within:
                if member[0] not in PASSED_OVER:
                    _field(message, member, group, new).oneof_index = index
        elif not _type(message.nested_type, message.enum_type, words, within, new):
            field = _field(message, words, within, new)
            if new and words[0] == "optional":
                optional.append(field)
    for field in optional:  # each has a oneof of its own, behind the real ones
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")


def _number(words: list[str]) -> int:
    """As Protobuf writes it: decimal, 0x1F or 017; the sign of an enum's may stand apart.

    Raises:
        ValueError: it is none.
    """
    text = "".join(words)
    if "_" in text:  # which Python would pass over
        raise ValueError
    return int(text, 8 if _OCTAL.fullmatch(text) else 0)


def _field(message: Any, words: list[str], group: list[Statement], new: bool) -> Any:
    label = words[0] if words[0] in LABELS else "optional"
    *kind, name, _, number = words[words[0] in LABELS :]
    field = message.field.add(name=name, number=_number([number]))
    field.label = getattr(field, f"LABEL_{label.upper()}")
    if kind[0] == "group":
        field.name = name.lower()
        _message(message.nested_type.add(name=name), group, new)
        field.type, field.type_name = KINDS.index("group"), name
    elif kind[1:2] == ["<"]:
        _, _, key, _, value, _ = kind  # map < string , Money >
        field.label = field.LABEL_REPEATED
        field.type_name = "".join(w[:1].upper() + w[1:] for w in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=field.type_name)
        entry.options.map_entry = True
        for at, part in enumerate((["key", key], ["value", value]), 1):
            _field(entry, [part[1], part[0], "=", str(at)], [], new)
    else:
        (field_type,) = kind
        if field_type in KINDS:
            field.type = KINDS.index(field_type)
        else:
            field.type_name = field_type
    return field
