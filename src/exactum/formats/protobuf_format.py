"""``Protobuf(message)``: values that are Protobuf messages, alone or in a schema registry's wire
format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.formats import exact, message_reader, message_type, registry
from exactum.formats.format import BadRecord, Bound, Reader, arrow_type, reason_of, require
from exactum.formats.registry import RegistryAddress, SchemaText

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Protobuf:
    """One Protobuf message in each record.

    Args:
        message: a generated message class; or the full name of a message (``"shop.Order"``),
            together with ``descriptors`` or ``registry`` and ``subject``. With a subject it may be
            left out: its first message.
        descriptors: path of a descriptor set (``protoc --include_imports
            --descriptor_set_out=shop.desc``), or its bytes.
        registry: URL of a Confluent schema registry, or a mapping of the settings of
            confluent-kafka's client (``url``, ``basic.auth.user.info``, ...). Then each record
            names the schema and the message it was written with. Values are kept where fields have
            another type; what cannot be kept, an unknown id, and another message, make it bad.
        subject: with ``registry``: the subject that has the message, where no class and no
            descriptors are given.
        version: which version of it; None is the latest one, looked up when ``decode`` is called.

    A field with presence (``optional``, a message, one of a oneof) is null where it is not set; any
    other has its default. ``google.protobuf.Timestamp`` is a timestamp, an enum its name, an
    unsigned 64-bit integer a decimal(20,0). A field that is not known is ignored, as Protobuf wants
    it; a known one of another wire type makes the record bad. A message that contains itself has no
    type of Spark and is refused.
    """

    message: Any = None
    descriptors: str | Path | bytes | None = None
    registry: str | Mapping[str, Any] | None = field(default=None, repr=False)
    subject: str | None = None
    version: int | None = None

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        require("google.protobuf", "protobuf", "Protobuf")
        from google.protobuf.message import Error  # type: ignore[import-untyped]

        place = registry.place(self.registry, self.subject, "Protobuf")
        try:
            made = self._message(place)
            descriptor = made.descriptor()
        except (TypeError, KeyError, ValueError, OSError, Error, BadRecord) as error:
            raise SettingRefused(
                "PROTOBUF_MESSAGE", f"Protobuf: the message cannot be found ({reason_of(error)})."
            ) from None
        kind = message_type.kind_of(descriptor)
        reader = partial(_reader, made, place, arrow_type(kind, "Protobuf"))
        return Bound(kind, reader, place is not None)

    def _message(self, place: RegistryAddress | None) -> message_type.MessageType:
        if hasattr(self.message, "DESCRIPTOR"):
            return message_type.of_class(self.message)
        if self.descriptors is not None and self.message:
            given = self.descriptors
            return message_type.MessageType(
                given if isinstance(given, bytes) else Path(given).read_bytes(), str(self.message)
            )
        if place is not None:
            found = registry.reader_schema(place, self.subject, self.version)
            return message_type.at(found, (0,), str(self.message) if self.message else None)
        raise SettingRefused(
            "PROTOBUF_MESSAGE",
            "Protobuf() needs a message: a generated class, a full name with descriptors=, or "
            "registry= and subject=.",
        )


def _reader(
    message: message_type.MessageType, place: RegistryAddress | None, kind: pa.DataType
) -> Reader:
    read = message.descriptor()
    if place is None:
        return exact.fitted(kind, message_reader.reader(read, read))

    def made(schema: SchemaText, indexes: tuple[int, ...]) -> Reader:
        return message_reader.reader(message_type.at(schema, indexes).descriptor(), read)

    return exact.fitted(kind, registry.registered(place, made))
