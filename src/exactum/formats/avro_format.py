"""``Avro(schema)``: values that are Avro records, alone or in a schema registry's wire format, read
by fastavro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from exactum.errors import SettingRefused
from exactum.formats import avro_defaults, registry
from exactum.formats.avro_schema import contains_itself, differences, endless, strict
from exactum.formats.avro_wire import wire_check
from exactum.formats.format import BadRecord, Bound, RecordDecoder, require

LOGICAL = (
    "date",
    "decimal",
    "timestamp-millis",
    "timestamp-micros",
    "local-timestamp-millis",
    "local-timestamp-micros",
)
"""Logical types that have a type of Spark; the values of others are taken as what they are
stored as.
"""

PADDING = bytes(16)
"""Put behind each record, so that one that is cut off is seen to read past its end, also where
fastavro would take a text that is shorter than its length says."""


@dataclass(frozen=True)
class Avro:
    """One Avro value (binary encoding, no file header) in each record.

    Args:
        schema: the reader's schema as JSON text (or as the value it stands for). Without a registry
            it is also what the records were written with.
        registry: URL of a Confluent schema registry, or a mapping of the settings of
            confluent-kafka's client (``url``, ``basic.auth.user.info``, ...). Then each record
            names the schema it was written with, and is resolved to the reader's by Avro's rules;
            an unknown id, and a schema that cannot be resolved to the reader's, make the record
            bad.
        subject: with ``registry``: the subject whose schema the records are read with, where no
            ``schema`` is given. Its context (``:.lab:orders-value``) is that of the records' ids.
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
        if self.schema is not None:
            text = self.schema if isinstance(self.schema, str) else json.dumps(self.schema)
            reader = registry.SchemaText(text, "AVRO")
        elif place is not None:
            reader = registry.reader_schema(place, self.subject, self.version)
        else:
            raise SettingRefused("Avro() needs a schema, or registry= and subject=.")
        try:
            schema = parsed(reader)
            kind = _Kinds().of(_value(schema))
            avro_defaults.with_values(schema)
            if endless(schema):
                raise SettingRefused(
                    "Avro: the schema has an array of values without bytes, which may be without "
                    "end."
                )
        except SettingRefused:
            raise
        except Exception as error:  # noqa: BLE001  (fastavro has many of its own)
            raise SettingRefused(
                f"Avro: the schema cannot be used ({type(error).__name__}: {error})."
            ) from None
        return Bound(kind, AvroCodec(reader, place), place is not None)


@dataclass(frozen=True)
class AvroCodec:
    """Opens decoders of Avro, with a schema of its own or a registry's, in a task. Picklable."""

    reader: registry.SchemaText
    place: registry.RegistryAddress | None

    def open(self, kind: Any) -> RecordDecoder:
        reader = parsed(self.reader)
        if self.place is None:
            read = value_reader(reader, None)
            return RecordDecoder(kind, lambda data: read(data, 0))
        return RecordDecoder(kind, _registered(registry.Writers(self.place), reader))


def value_reader(writer: Any, reader: Any) -> Callable[[bytes, int], Any]:
    """A function of a record and where its value begins: the value, which must end where the record
    ends; raises BadRecord where it does not, and whatever fastavro raises.
    """
    import fastavro

    strictly, check = strict(writer), wire_check(_value(writer))

    def read(data: bytes, start: int) -> Any:
        stream = io.BytesIO(data + PADDING)
        stream.seek(start)
        made: Any = fastavro.schemaless_reader(stream, strictly, reader)
        end = stream.tell()
        if end > len(data):
            raise BadRecord(
                f"the record is cut off: it has {len(data)} bytes and says that it has more"
            )
        check(data, start, end)
        if end < len(data):
            raise BadRecord(f"{len(data) - end} bytes follow the end of the value")
        return made["value"]

    return read


def parsed(schema: registry.SchemaText) -> Any:
    """A record with the schema as its field ``value``, as fastavro takes it, with those it refers
    to.

    Such a record has the same bytes, and fastavro takes a record that is parsed as it is.
    """
    import fastavro

    named: dict[str, Any] = {}

    def parse(text: str) -> Any:
        return fastavro.parse_schema(
            _without_foreign_logical(json.loads(text)), named_schemas=named, expand=True
        )

    for _, text in schema.references:
        parse(text)
    fields = [{"name": "value", "type": parse(schema.text)}]
    made = {"type": "record", "name": "Value", "fields": fields}
    return {
        **made,
        "__fastavro_parsed": True,
        "__named_schemas": dict(named),
    }  # as fastavro marks what it parsed


def _value(schema: Any) -> Any:
    return schema["fields"][0]["type"]


def _registered(writers: registry.Writers, reader: Any) -> Callable[[bytes], Any]:
    known: dict[int | str, Callable[[bytes, int], Any]] = {}
    filled = avro_defaults.with_values(reader)

    def one(data: bytes) -> Any:
        number, start = registry.schema_id(data)
        if number not in known:
            writer = parsed(writers.writer(number))
            if contains_itself(_value(writer)):
                raise BadRecord(
                    f"its schema, id {number}, contains itself: such records may be nested without "
                    "end"
                )
            if endless(writer):
                raise BadRecord(
                    f"its schema, id {number}, has an array of values without bytes: it may be "
                    "without end"
                )
            for difference in differences(_value(writer), _value(reader)):
                raise BadRecord(f"its schema, id {number}, {difference}")
            known[number] = value_reader(writer, filled)
        return known[number](data, start)

    return one


def _without_foreign_logical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_foreign_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: _without_foreign_logical(one)
        for name, one in schema.items()
        if name not in ("default", "symbols")
    }
    made.update({name: schema[name] for name in ("default", "symbols") if name in schema})
    if made.get("logicalType") not in LOGICAL:
        made.pop("logicalType", None)
    return made


class _Kinds:
    """Spark's types for the types of one parsed schema."""

    def __init__(self) -> None:
        self._inside: list[str] = []

    def of(self, schema: Any, name: str = "value") -> Any:
        """
        Raises:
            SettingRefused: there is no type of Spark for it.
        """
        from pyspark.sql import types as t

        if isinstance(schema, list):
            return self.of(_only(schema, name), name)
        if isinstance(schema, str):
            return self._plain(schema, name)
        kind = schema["type"]
        logical = self._logical(schema)
        if logical is not None:
            return logical
        if kind == "record":
            return self._record(schema, name)
        if kind == "array":
            return t.ArrayType(self.of(schema["items"], f"{name}[]"), _nullable(schema["items"]))
        if kind == "map":
            return t.MapType(
                t.StringType(),
                self.of(schema["values"], f"{name}{{}}"),
                _nullable(schema["values"]),
            )
        if kind == "enum":
            return t.StringType()
        return t.BinaryType() if kind == "fixed" else self.of(kind, name)

    def _record(self, schema: Any, name: str) -> Any:
        from pyspark.sql import types as t

        if not schema["fields"]:
            raise SettingRefused(
                f"Avro: {name} is a record without fields, which has no type of Spark."
            )
        self._inside.append(schema["name"])
        fields = [
            t.StructField(
                one["name"], self.of(one["type"], f"{name}.{one['name']}"), _nullable(one["type"])
            )
            for one in schema["fields"]
        ]
        self._inside.pop()
        return t.StructType(fields)

    def _plain(self, kind: str, name: str) -> Any:
        from pyspark.sql import types as t

        found = {
            "boolean": t.BooleanType,
            "int": t.IntegerType,
            "long": t.LongType,
            "float": t.FloatType,
            "double": t.DoubleType,
            "bytes": t.BinaryType,
            "string": t.StringType,
        }.get(kind)
        if found is not None:
            return found()
        why = "contains itself" if kind in self._inside else f"is of type {kind}"
        raise SettingRefused(
            f"Avro: {name} {why}, which has no type of Spark. Give a reader's schema without it."
        )

    def _logical(self, schema: Any) -> Any:
        from pyspark.sql import types as t

        logical = schema.get("logicalType", "")
        if logical == "decimal":
            return t.DecimalType(schema["precision"], schema.get("scale", 0))
        if logical == "date":
            return t.DateType()
        if logical.startswith("timestamp"):
            return t.TimestampType()
        return t.TimestampNTZType() if logical else None


def _only(union: list[Any], name: str) -> Any:
    rest = [one for one in union if one != "null"]
    if len(rest) != 1:
        raise SettingRefused(
            f"Avro: {name} is a union of {len(rest)} types beside null, which has no type of "
            "Spark. Give a reader's schema with one of them; records that hold another one are "
            "bad then."
        )
    return rest[0]


def _nullable(schema: Any) -> bool:
    return isinstance(schema, list) and "null" in schema
