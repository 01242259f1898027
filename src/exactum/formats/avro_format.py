"""``Avro(schema)``: values that are Avro records, alone or in a schema registry's wire format, read
by fastavro.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.formats import exact, registry
from exactum.formats.avro_resolution import (
    COLUMNS,
    DEFAULT,
    Schema,
    default_value,
    meaning,
    parsed,
    resolved,
    value_reader,
)
from exactum.formats.format import BadRecord, Bound, Reader, arrow_type, require

if TYPE_CHECKING:
    import pyarrow as pa

DIGITS_MAX = 38
"""Of Spark's decimals."""
PADDING = bytes(16)
"""Put behind each record, so that one that is cut off is seen to read past its end, also where
fastavro would take a text that is shorter than its length says."""
NINE = b"\xff" * 9
LEAST = re.compile(rb"\xff(?=\xff{8}[" + re.escape(bytes(range(1, 256, 2))) + b"])")
"""Where -2^63 may begin, as Avro writes it. As the count of a block it has no absolute value in 64
bits, and fastavro takes such a block of an array or a map for an empty one."""


@dataclass(frozen=True)
class Avro:
    """One Avro value (binary encoding, no file header) in each record.

    Args:
        schema: the reader's schema as JSON text (or as the value it stands for). Without a registry
            it is also what the records were written with.
        registry: URL of a Confluent schema registry, or a mapping of the settings of
            confluent-kafka's client (``url``, ``basic.auth.user.info``, ...). Then each record
            names the schema it was written with, before its value or in a header, so that headers
            have to be read (``read_kafka(..., includeHeaders=True)``). It is resolved to the
            reader's by Avro's rules, where its values stay what they are; an unknown id, and a
            schema that cannot be resolved to the reader's, make the record bad.
        subject: with ``registry``: the subject whose schema the records are read with, where no
            ``schema`` is given.
        version: which version of it; None is the latest one, looked up when ``decode`` is called.

    A union of null and one other type is a nullable column; other unions, and types that contain
    themselves, have no type of Spark and are refused; records that were written with a schema that
    contains itself are bad.
    """

    schema: Any = None
    registry: str | Mapping[str, Any] | None = field(default=None, repr=False)
    subject: str | None = None
    version: int | None = None

    def bind(self) -> Bound:
        """See ``Format.bind``."""
        require("fastavro", "avro", "Avro")
        place = registry.place(self.registry, self.subject, "Avro")
        if not isinstance(self.schema, str | Mapping | list | None):
            raise SettingRefused(
                "DECODE_ARGUMENT",
                f"Avro({self.schema!r}): a schema is its text in JSON, or the same as a dictionary "
                "or a list.",
            )
        if self.schema is not None:
            text = self.schema if isinstance(self.schema, str) else json.dumps(self.schema)
            reader = registry.SchemaText(text, "AVRO")
        elif place is not None:
            reader = registry.reader_schema(place, self.subject, self.version)
        else:
            raise SettingRefused(
                "DECODE_ARGUMENT", "Avro() needs a schema, or registry= and subject=."
            )
        try:
            schema = parsed(reader)
            # a subject's default that is wrong is no concern of who has the field
            kind = _column(schema, "value", self.schema is not None and place is not None)
            resolved(schema, schema, "value")
        except SettingRefused:
            raise
        except BadRecord as error:
            raise SettingRefused(
                "AVRO_SCHEMA", f"Avro: {error}. Correct it in schema=, or take it out."
            ) from None
        except Exception as error:  # noqa: BLE001  (fastavro has many of its own)
            raise SettingRefused(
                "AVRO_SCHEMA",
                f"Avro: the schema cannot be used ({type(error).__name__}: {error}). Correct it.",
            ) from None
        made = partial(_reader, reader, place, arrow_type(kind, "Avro"))
        return Bound(kind, made, place is not None)


def _reader(
    schema: registry.SchemaText, place: registry.RegistryAddress | None, kind: pa.DataType
) -> Reader:
    own = parsed(schema)
    if place is None:
        return exact.fitted(kind, record_reader(own, own))
    return exact.fitted(kind, registry.registered(place, lambda text, _: _registered(text, own)))


def _registered(text: registry.SchemaText, own: Schema) -> Reader:
    """Confluent's serializers write a value of ``bytes`` itself as it is, without its length
    (AbstractKafkaAvroSerializer.java).
    """
    import fastavro

    writer = parsed(text)
    read = record_reader(writer, own)
    if isinstance(writer, list) or meaning(writer) != "bytes":
        return read

    def of_bytes(data: bytes) -> Any:
        with_length = io.BytesIO()
        fastavro.schemaless_writer(with_length, "bytes", data)
        return read(with_length.getvalue())

    return of_bytes


def record_reader(writer: Schema, reader: Schema) -> Reader:
    """A reader of values, which must end where their bytes end.

    Raises:
        BadRecord: nothing that was written is a value of the reader's.
    """
    value = value_reader(writer, reader)

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data + PADDING)
        try:
            made, why = value(stream), None
        except (BadRecord, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  (fastavro's own, and Python's of texts and times)
            made, why = None, _no_value(error)
        end = stream.tell()
        if end > len(data):
            raise BadRecord(
                f"the record is cut off: it has {len(data)} bytes and says that it has more"
            )
        if why is not None:
            raise BadRecord(f"what ends at byte {end} is {why}")
        if end < len(data):
            raise BadRecord(f"{len(data) - end} bytes follow the end of the value")
        if NINE in data and LEAST.search(data):
            # Another number of as many bytes: bad where it is a count, and else as good.
            read(LEAST.sub(b"\xfd", data))
        return made

    return read


def _no_value(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a text that is not valid UTF-8"
    if isinstance(error, (OverflowError, ValueError)):
        return "a number that is out of range: of a date, a time, or a length"
    return "no value of its schema"


def _column(schema: Schema, name: str, check_defaults: bool) -> Any:
    """Spark's type for a parsed schema.

    Raises:
        SettingRefused: there is none.
        BadRecord: a default is none of its field's type.
    """
    from pyspark.sql import types as t

    def inside(one: Schema, place: str) -> tuple[Any, bool]:
        return _column(one, place, check_defaults), isinstance(one, list) and "null" in one

    if isinstance(schema, list):
        return _column(_only(schema, name), name, check_defaults)
    means = meaning(schema)
    if means == "array":
        return t.ArrayType(*inside(schema["items"], f"{name}[]"))
    if means == "map":
        return t.MapType(t.StringType(), *inside(schema["values"], f"{name}{{}}"))
    if means == "record" and schema["fields"]:
        named = [(one, f"{name}.{one['name']}") for one in schema["fields"]]
        for one, place in named if check_defaults else ():
            if DEFAULT in one:
                default_value(one, place)
        return t.StructType(
            [t.StructField(one["name"], *inside(one["type"], place)) for one, place in named]
        )
    if means not in COLUMNS:
        why = "is a record without fields" if means == "record" else f"is of type {means}"
        if isinstance(schema, str) and means != "null":  # all other names were expanded
            why = "contains itself"
        raise SettingRefused(
            "AVRO_TYPE",
            f"Avro: {name} {why}, which has no type of Spark. Give a reader's schema without it.",
        )
    made = getattr(t, COLUMNS[means])
    return _decimal(schema, name) if made is t.DecimalType else made()


def _decimal(schema: Schema, name: str) -> Any:
    from pyspark.sql.types import DecimalType

    precision, scale = schema.get("precision"), schema.get("scale", 0)
    known = isinstance(precision, int) and isinstance(scale, int)
    if not known or not 0 <= scale <= precision <= DIGITS_MAX or not precision:
        raise SettingRefused(
            "AVRO_TYPE",
            f"Avro: {name} is decimal({precision},{scale}); Spark's have at most {DIGITS_MAX} "
            "digits, and no larger scale.\nGive it fewer digits and the same scale in schema=: "
            "records that have more are bad.\nWith a registry, schema= may have another scale, or "
            "leave it out; the other columns are read.",
        )
    return DecimalType(precision, scale)


def _only(union: list[Schema], name: str) -> Schema:
    rest = [one for one in union if one != "null"]
    if len(rest) != 1:
        raise SettingRefused(
            "AVRO_TYPE",
            f"Avro: {name} is a union of {len(rest)} types beside null, which has no type of "
            "Spark. Give a reader's schema with one of them; records that hold another one are "
            "bad then.",
        )
    return rest[0]
