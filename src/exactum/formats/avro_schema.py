"""Avro schemas as fastavro expands them: the types that Avro tells apart, with their columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

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

DEFAULT, LOGICAL = "exactum.default", "exactum.logicalType"
_HIDDEN = {"default": DEFAULT, "logicalType": LOGICAL}


def parsed(schema: SchemaText) -> Any:
    """The schema, expanded, with those it refers to.

    Its defaults and logical types stand under names of our own: fastavro refuses a schema for one
    of them that is wrong, also where nobody needs it.
    """
    import fastavro

    named: dict[str, Any] = {}

    def parse(text: str) -> Any:
        given = _hidden(json.loads(text, parse_float=Decimal))  # as defaults are written
        return fastavro.parse_schema(given, named_schemas=named, expand=True)

    for _, text in schema.references:
        parse(text)
    return parse(schema.text)


def _hidden(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_hidden(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        _HIDDEN.get(name, name): one if name == "default" else _hidden(one)
        for name, one in schema.items()
    }


def kind_of(schema: Any) -> str:
    """Avro's own type."""
    return str(schema if isinstance(schema, str) else schema["type"])


def meaning(schema: Any) -> str:
    """A name of ``COLUMNS``, or of a type with others inside."""
    kind = kind_of(schema)
    logical = "" if isinstance(schema, str) else f"{kind} {schema.get(LOGICAL)}"
    return logical if logical in COLUMNS else kind
