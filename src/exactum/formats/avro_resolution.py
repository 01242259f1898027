"""Avro schemas: the types that Avro tells apart, with their columns, and a writer's schema that is
read as the reader's, resolved once for the two.

fastavro resolves as well, but by the types that values are stored as: a time of milliseconds
becomes one of microseconds. So it gets one schema, which is made here: the bytes of the writer's,
with the names, symbols and defaults of the reader's.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn

from exactum.formats.exact import SHOWN_CHARS_MAX, nearest_float
from exactum.formats.format import BadRecord
from exactum.formats.registry import SchemaText

COLUMNS: Mapping[str, str] = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "bytes": "BinaryType",
    "string": "StringType",
    "enum": "StringType",
    "fixed": "BinaryType",
    "bytes decimal": "DecimalType",
    "fixed decimal": "DecimalType",
    "int date": "DateType",
    "long timestamp-millis": "TimestampType",
    "long timestamp-micros": "TimestampType",
    "long local-timestamp-millis": "TimestampNTZType",
    "long local-timestamp-micros": "TimestampNTZType",
    "long timestamp-nanos": "LongType",
    "long local-timestamp-nanos": "LongType",
    "int time-millis": "IntegerType",
    "long time-micros": "LongType",
    "bytes big-decimal": "BinaryType",
    "fixed duration": "BinaryType",
}
"""What a value means, and the type of Spark that its column has: an Avro type, and the logical type
if it says more than the value shows. Logical types that are not here, or stand on another type, are
ignored, as Avro wants it; of a uuid the text and the bytes are all.
"""

CONVERTED = frozenset(
    {
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("bytes", "string"),
        ("string", "bytes"),
        ("long timestamp-millis", "long timestamp-micros"),
        ("long timestamp-micros", "long timestamp-millis"),
        ("long local-timestamp-millis", "long local-timestamp-micros"),
        ("long local-timestamp-micros", "long local-timestamp-millis"),
    }
)
"""Meanings (written, read) that differ and keep the value; others that differ are not read. The
column refuses an integer that a float may not have.
"""
DECIMAL_DIGITS = 10**6
"""Of a decimal while fastavro makes it, which rounds beyond: as many as it has exponents. What is
too long for the column is refused there."""
_READ_BY_FASTAVRO = ("DateType", "DecimalType", "TimestampType", "TimestampNTZType")
_GIVEN = "exactum.given"
DEFAULT, LOGICAL = "exactum.default", "exactum.logicalType"
_HIDDEN = {"default": DEFAULT, "logicalType": LOGICAL}

Schema = Any
"""Of Avro, as ``parsed`` makes it: a name, a list (a union) or a dictionary."""


def parsed(schema: SchemaText) -> Schema:
    """The schema, expanded, with those it refers to.

    Its defaults and logical types stand under names of our own: fastavro refuses a schema for one
    of them that is wrong, also where nobody needs it.
    """
    import fastavro

    named: dict[str, Schema] = {}

    def parse(text: str) -> Schema:
        given = _hidden(json.loads(text, parse_float=Decimal))  # as defaults are written
        return fastavro.parse_schema(given, named_schemas=named, expand=True)

    for _, text in schema.references:
        parse(text)
    return parse(schema.text)


def _hidden(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_hidden(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        _HIDDEN.get(name, name): one if name == "default" else _hidden(one)
        for name, one in schema.items()
    }


def kind_of(schema: Schema) -> str:
    """Avro's own type."""
    return str(schema if isinstance(schema, str) else schema["type"])


def meaning(schema: Schema) -> str:
    """A name of ``COLUMNS``, or of a type with others inside."""
    kind = kind_of(schema)
    logical = "" if isinstance(schema, str) else f"{kind} {schema.get(LOGICAL)}"
    return logical if logical in COLUMNS else kind


class _Numbered(dict[Any, Any]):
    """Symbols, or members of a union, by number, and why some are not read. In a list a negative
    number would be counted from the end.
    """

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place, self.reasons = place, dict[int, str]()

    def __missing__(self, number: int) -> NoReturn:
        raise BadRecord(self.reasons.get(number, f"{self.place} has no symbol or member {number}"))


def value_reader(writer: Schema, reader: Schema) -> Callable[[Any], Any]:
    """A function that reads the reader's value from a stream of what was written; it raises
    BadRecord, and whatever fastavro raises.

    Raises:
        BadRecord: nothing that was written is a value of the reader's.
    """
    import fastavro

    def given(_: Any, schema: Schema, __: Any) -> Any:
        return schema["value"]

    fastavro.read.LOGICAL_READERS[f"null-{_GIVEN}"] = given
    schema = _in_record(resolved(writer, reader, "value"))

    def read(stream: Any) -> Any:
        made: Any = fastavro.schemaless_reader(stream, schema, None)
        return made["value"]

    return read


def resolved(writer: Schema, reader: Schema, place: str) -> Schema:
    """The schema for fastavro to read with. Where ``reader`` is None the value is needed by nobody,
    and has no meaning that it could miss.

    Raises:
        BadRecord: nothing that was written is a value of the reader's.
    """
    if isinstance(writer, list):
        return _union(writer, reader, place)
    if isinstance(writer, str) and writer != "null" and writer not in COLUMNS:
        # a name: whatever does not contain itself was expanded, so that none are left
        raise BadRecord(f"{place} contains itself: such values may be nested without end")
    if isinstance(reader, list):
        reader = "null" if writer == "null" and "null" in reader else _beside_null(reader)
    kind = kind_of(writer)
    if reader is not None:
        _check(writer, reader, place)
    if kind == "record":
        return {"type": kind, "fields": _fields(writer, reader, place)}
    if kind == "enum":
        return {"type": kind, "symbols": _symbols(writer, reader or writer, place)}
    for inside in ("items", "values"):
        if inside in writer:
            read = reader and reader[inside]
            return {"type": kind, inside: resolved(writer[inside], read, f"{place}[]")}
    if kind in ("string", "bytes"):
        kind = "bytes" if reader is None else kind_of(reader)
    made: dict[str, Any] = {"type": kind}
    if kind == "fixed":
        made["size"] = writer["size"]
    if reader is not None and COLUMNS.get(meaning(writer)) in _READ_BY_FASTAVRO:
        made["logicalType"] = writer[LOGICAL]
        if writer[LOGICAL] == "decimal":
            made.update(precision=DECIMAL_DIGITS, scale=writer.get("scale", 0))
    return made


def default_value(field: Any, place: str) -> Any:
    """The value that the default of a reader's field stands for, which is JSON.

    Raises:
        BadRecord: it is none of the field's type.
    """
    import fastavro

    stream, schema = io.BytesIO(), field["type"]
    try:
        value = {"value": _from_json(schema, field[DEFAULT])}
        fastavro.validate(value, _in_record(schema))
        fastavro.schemaless_writer(stream, _in_record(schema), value)
        stream.seek(0)
        return value_reader(schema, schema)(stream)
    except Exception:  # noqa: BLE001  (fastavro has many of its own)
        given = field[DEFAULT]
        shown = str(given) if isinstance(given, Decimal) else json.dumps(given, default=str)
        raise BadRecord(
            f"the default {shown[:SHOWN_CHARS_MAX]} of {place} is none of its type"
        ) from None


def _check(writer: Schema, reader: Schema, place: str) -> None:
    written, read = meaning(writer), meaning(reader)
    if written != read and (written, read) not in CONVERTED:
        raise BadRecord(f"{written} for {place} is not read as {read}")
    if kind_of(writer) in ("record", "enum", "fixed") and not _same_name(writer, reader):
        raise BadRecord(f"{writer['name']} for {place} is not read as {reader['name']}")
    if written.startswith("fixed") and writer["size"] != reader["size"]:
        raise BadRecord(f"{writer['size']} bytes for {place} are not read as {reader['size']}")
    scale = writer.get("scale", 0) if written.endswith(" decimal") else 0
    if type(scale) is not int or not 0 <= scale <= DECIMAL_DIGITS:
        raise BadRecord(f"a decimal for {place} has the scale {scale!r}")


def _name(schema: Schema) -> str | None:
    """The whole name of a record, an enum or a fixed; None of other types."""
    return schema.get("name") if isinstance(schema, dict) else None


def _same_name(writer: Schema, reader: Schema) -> bool:
    """As fastavro compares them, without namespaces."""
    last, aliases = writer["name"].rpartition(".")[2], reader.get("aliases", ())
    return last == reader["name"].rpartition(".")[2] or last in aliases or writer["name"] in aliases


def _union(writer: list[Schema], reader: Schema, place: str) -> Schema:
    """Where a member has the reader's whole name, another namespace or an alias is another one."""
    made = _Numbered(place)
    name = _name(_beside_null(reader) if isinstance(reader, list) else reader)
    is_there = name is not None and name in map(_name, writer)
    for number, one in enumerate(writer):
        try:
            if is_there and _name(one) not in (None, name):
                raise BadRecord(f"{_name(one)} for {place} is not read as {name}")
            made[number] = resolved(one, reader, place)
        except BadRecord as error:
            made.reasons[number] = str(error)
    if not made:
        raise BadRecord("; ".join(made.reasons.values()))
    made["type"] = "union"
    return made


def _symbols(writer: Schema, reader: Schema, place: str) -> Any:
    made, default = _Numbered(place), reader.get(DEFAULT)
    for number, one in enumerate(writer["symbols"]):
        if one in reader["symbols"] or default in reader["symbols"]:
            made[number] = one if one in reader["symbols"] else default
        else:
            made.reasons[number] = f"{one} is no symbol of {place}"
    return made


def _fields(writer: Schema, reader: Schema, place: str) -> list[Any]:
    missing = {one["name"]: one for one in reader["fields"]} if reader else {}
    names = {alias: name for name, one in missing.items() for alias in one.get("aliases", ())}
    names.update({name: name for name in missing})
    made: list[Any] = []
    for one in writer["fields"]:
        name = names.get(one["name"])
        if name is not None and name not in missing:
            raise BadRecord(f"two fields for {place}.{name}, by its name and an alias")
        read = None if name is None else missing.pop(name)["type"]
        where = f"{place}.{name or one['name']}"
        made.append({"name": name, "type": resolved(one["type"], read, where)})
    for name, one in missing.items():
        if DEFAULT not in one:
            raise BadRecord(f"it lacks {place}.{name}, which has no default")
        value = default_value(one, f"{place}.{name}")
        made.append({"name": name, "type": {"type": "null", "logicalType": _GIVEN, "value": value}})
    return made


def _from_json(schema: Schema, given: Any) -> Any:
    """A default as fastavro writes it: bytes are a text in JSON, and fields may be left out."""
    if isinstance(schema, list):
        schema = "null" if given is None and "null" in schema else _beside_null(schema)
    kind = kind_of(schema)
    if kind in ("bytes", "fixed"):
        return given.encode("latin-1")
    if kind in ("float", "double"):
        return _number(kind, given)
    if kind == "record":
        fields = [(one, one["name"]) for one in schema["fields"]]
        return {
            name: _from_json(one["type"], given[name] if name in given else one[DEFAULT])
            for one, name in fields
        }
    if kind == "array" and isinstance(given, list):
        return [_from_json(schema["items"], one) for one in given]
    if kind == "map":
        return {name: _from_json(schema["values"], one) for name, one in given.items()}
    return given


def _number(kind: str, given: Any) -> float:
    """The nearest one of a number with a point, and the same one of an integer."""
    if isinstance(given, bool) or not isinstance(given, (int, Decimal)):
        raise TypeError
    made = nearest_float(Decimal(given)) if kind == "float" else float(given)
    if math.isinf(made) or (isinstance(given, int) and made != given):
        raise ValueError
    return made


def _in_record(schema: Schema) -> Schema:
    """A record of one field, of the same bytes, that fastavro takes for one that it has parsed."""
    fields = [{"name": "value", "type": schema}]
    marks = {"__fastavro_parsed": True, "__named_schemas": {}}
    return {"type": "record", "name": "Value", "fields": fields, **marks}


def _beside_null(union: list[Schema]) -> Schema:
    return next(one for one in union if one != "null")
