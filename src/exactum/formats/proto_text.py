"""The text of a .proto file as its descriptor, for schema registries that have no other form of it.

It takes what such a registry has looked at before, in the syntax of proto2 and proto3. Options are
passed over: none changes how values are read. Names of types are left to the descriptor pool.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from exactum.formats.message_reader import KINDS

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


def descriptor_of(text: str) -> Any:
    """The FileDescriptorProto of a file, without a name.

    Raises:
        ValueError: it is not understood.
    """
    from google.protobuf import descriptor_pb2  # type: ignore[import-untyped]

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
