"""A table as JSON lines, as Spark's own JSON writer makes them, whole columns at a time.

Fields that are null are left out. Timestamps are ISO 8601 in UTC with ``Z`` (without a zone where the column has
none), decimals are numbers, binary is base64, NaN and the infinities are texts, keys of maps are texts. Structs, lists
and maps are encoded value by value.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def encode(table: pa.Table) -> pa.Buffer:
    """One line for each row, UTF-8, each ending with a newline."""
    if not table.num_rows:
        return pa.py_buffer(b"")
    fields = [_field(f, _whole(table.column(i))) for i, f in enumerate(table.schema)]
    rows = pc.binary_join_element_wise(*fields, _text(","), null_handling="skip")
    lines = pc.binary_join_element_wise(_text("{"), rows, _text("}\n"), _text(""))
    offsets = lines.buffers()[1]
    width = 8
    first, last = (
        int.from_bytes(offsets.slice(width * (lines.offset + i), width).to_pybytes(), "little") for i in (0, len(lines))
    )
    return lines.buffers()[2].slice(first, last - first)


def _field(field: pa.Field, values: pa.Array) -> pa.Array:
    """``"name":value`` for each row, null where the value is."""
    name = json.dumps(field.name, ensure_ascii=False)
    return pc.binary_join_element_wise(_text(f"{name}:"), _values(values), _text(""))


def _values(values: pa.Array) -> pa.Array:
    """Each value as JSON text, null where it is null."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _quoted(_escaped(values.cast(pa.large_string())))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return values.cast(pa.string()).cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _floats(values)
    if pa.types.is_date(kind):
        return _quoted(values.cast(pa.string()).cast(pa.large_string()))
    if pa.types.is_timestamp(kind):
        return _quoted(_instants(values))
    texts = [None if v is None else _value(v, kind) for v in values.to_pylist()]
    return pa.array(texts, pa.large_string())


def _escaped(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x08\x0b\x0c\x0e-\x1f]")).as_py():
        return pa.array(
            [None if t is None else json.dumps(t, ensure_ascii=False)[1:-1] for t in texts.to_pylist()],
            pa.large_string(),
        )
    if pc.any(pc.match_substring_regex(texts, r'[\\"\n\r\t]')).as_py():
        for character, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, character, escaped)
    return texts


def _floats(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string()).cast(pa.large_string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    texts = pc.if_else(whole, pc.binary_join_element_wise(texts, _text(".0"), _text("")), texts)
    if pc.all(pc.is_finite(values)).as_py() is False:
        texts = pc.if_else(pc.is_nan(values), _text('"NaN"'), texts)
        texts = pc.if_else(pc.equal(values, math.inf), _text('"Infinity"'), texts)
        texts = pc.if_else(pc.equal(values, -math.inf), _text('"-Infinity"'), texts)
    return texts


def _instants(values: pa.Array) -> pa.Array:
    """ISO 8601. Arrow's own text of a time without a zone needs no time zone database on the executor."""
    zoned = values.type.tz is not None
    plain = pa.timestamp(values.type.unit)
    texts = values.cast(pa.timestamp(values.type.unit, "UTC") if zoned else plain).view(pa.int64()).view(plain)
    texts = pc.replace_substring(texts.cast(pa.string()).cast(pa.large_string()), " ", "T")
    return pc.binary_join_element_wise(texts, _text("Z"), _text("")) if zoned else texts


def _quoted(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_text('"'), texts, _text('"'), _text(""))


def _value(value: Any, kind: pa.DataType) -> str:
    """One value as JSON text; ``kind`` tells a map from a list of pairs."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        pairs = ((f.name, value.get(f.name), f.type) for f in kind)
        return "{" + ",".join(f"{_name(n)}:{_value(v, t)}" for n, v, t in pairs if v is not None) + "}"
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{_key(k, kind.key_type)}:{_value(v, kind.item_type)}" for k, v in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_value(v, kind.value_type) for v in value) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f'"{value.isoformat()}"'
        return f'"{value.astimezone(timezone.utc).replace(tzinfo=None).isoformat()}Z"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    return json.dumps(value, ensure_ascii=False)


def _key(value: Any, kind: pa.DataType) -> str:
    text = _value(value, kind)
    return text if text.startswith('"') else json.dumps(text, ensure_ascii=False)


def _name(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
