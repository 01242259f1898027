"""The defaults of an Avro reader's fields, as values.

A schema has them as JSON, where bytes are text and a time is a number; fastavro puts them into a
record as they stand there.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

from exactum.errors import SettingRefused

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_TYPES = {"boolean": bool, "int": int, "long": int, "string": str, "enum": str}


def with_values(schema: Any, place: str = "value") -> Any:
    """The schema, expanded, with each default as the value that its bytes would be read as.

    Raises:
        SettingRefused: a default is none of its field's type.
    """
    if isinstance(schema, list):
        return [with_values(one, place) for one in schema]
    if isinstance(schema, str):
        return schema
    made = dict(schema)
    if "fields" in made:
        made["fields"] = [_field(one, f"{place}.{one['name']}") for one in made["fields"]]
    for name in ("items", "values"):
        if name in made:
            made[name] = with_values(made[name], place)
    return made


def _field(field: Any, place: str) -> Any:
    made = {**field, "type": with_values(field["type"], place)}
    if "default" in field:
        try:
            made["default"] = _value(field["type"], field["default"])
        except (TypeError, ValueError, LookupError, OverflowError, ArithmeticError) as error:
            raise SettingRefused(
                f"Avro: the default {field['default']!r} of {place} is none of its type "
                f"({type(error).__name__}: {error})."
            ) from None
    return made


def _value(schema: Any, given: Any) -> Any:
    """
    Raises:
        TypeError, ValueError, LookupError, OverflowError, ArithmeticError: it is not of this type.
    """
    if isinstance(schema, list):
        if given is None and "null" in schema:
            return None
        (schema,) = (one for one in schema if one != "null")
    kind = schema if isinstance(schema, str) else schema["type"]
    if not isinstance(kind, str):
        return _value(kind, given)
    if kind == "null" and given is None:
        return None
    if kind == "record":
        return {
            one["name"]: _value(
                one["type"], given[one["name"]] if one["name"] in given else one["default"]
            )
            for one in schema["fields"]
        }
    if kind == "array" and isinstance(given, list):
        return [_value(schema["items"], one) for one in given]
    if kind == "map":
        return {key: _value(schema["values"], one) for key, one in given.items()}
    if kind in ("bytes", "fixed"):
        return _logical(schema, _bytes(schema, given))
    if kind in ("float", "double") and isinstance(given, (int, float)):
        return float(given)
    if type(given) is not _TYPES.get(kind):
        raise TypeError(f"it is not of type {kind}")
    if kind == "enum" and given not in schema["symbols"]:
        raise LookupError("it is none of the symbols")
    return _logical(schema, given)


def _bytes(schema: Any, given: Any) -> bytes:
    """Each character of the text is the byte of its number."""
    if not isinstance(given, str):
        raise TypeError("bytes are a text in a schema")
    data = given.encode("latin-1")
    if not isinstance(schema, str) and len(data) != schema.get("size", len(data)):
        raise ValueError(f"it has {len(data)} bytes, not {schema['size']}")
    return data


def _logical(schema: Any, value: Any) -> Any:
    name = "" if isinstance(schema, str) else schema.get("logicalType", "")
    if name == "decimal":
        digits = str(abs(int.from_bytes(value, "big", signed=True)))
        sign = int.from_bytes(value, "big", signed=True) < 0
        return Decimal((int(sign), tuple(map(int, digits)), -schema.get("scale", 0)))
    if name == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if not name:
        return value
    unit = {"millis": "milliseconds", "micros": "microseconds"}[name.rpartition("-")[2]]
    at = EPOCH + timedelta(**{unit: value})
    return at.replace(tzinfo=None) if name.startswith("local") else at
