"""A table as JSON lines, as Spark's own JSON writer makes them, whole columns at a time.

Fields that are null are left out. Timestamps are ISO 8601 in UTC with ``Z`` (without a zone where
the column has none), decimals are numbers, binary is base64, NaN and the infinities are texts, keys
of maps are texts. What has no such text (``refusal``) is not among the rows.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactum.files.texts import (
    buffer_of,
    dates,
    decimals,
    floats,
    instants,
    joined,
    text,
    whole_column,
    wholes,
)
from exactum.values.nested import as_list, is_text

_ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))
_CONTROLS = [c for c in map(chr, range(0x20)) if c not in "\n\r\t"]


def encode(table: pa.Table) -> pa.Buffer:
    """One line for each row, UTF-8, each ending with a newline."""
    if not table.num_rows:
        return pa.py_buffer(b"")
    return buffer_of(
        _objects(
            [(f.name, whole_column(table.column(i))) for i, f in enumerate(table.schema)], "}\n"
        )
    )


def _objects(columns: list[tuple[str, pa.Array]], ending: str) -> pa.Array:
    """``{"name":value,...}`` for each row, without what is null."""
    # A column without nulls holds the commas of the others apart; without such a one the first
    # comma goes.
    solid = next((n for n, (_, values) in enumerate(columns) if not values.null_count), None)
    fields = [
        joined(
            text(
                ("" if solid is not None and n <= solid else ",")
                + json.dumps(name, ensure_ascii=False)
                + ":"
            ),
            _values(values),
            text("," if solid is not None and n < solid else ""),
        )
        for n, (name, values) in enumerate(columns)
    ]
    if solid is None:
        fields = [pc.ascii_ltrim(_row_wise(*fields), ",")]
    return _row_wise(text("{"), *fields, text(ending))


def _row_wise(*parts: Any) -> pa.Array:
    """What is not null of each row. (Arrow's null_handling="skip" drops a row of nulls.)"""
    return pc.binary_join_element_wise(
        *parts, text(""), null_handling="replace", null_replacement=""
    )


def _values(values: pa.Array) -> pa.Array:
    """Each value as JSON text, null where it is null."""
    kind = values.type
    if is_text(kind):
        return _quoted(_escaped(values.cast(pa.large_string())))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return wholes(values)
    if pa.types.is_floating(kind):
        return floats(values, '"')
    if pa.types.is_decimal(kind):
        return decimals(values)
    if pa.types.is_date(kind):
        return _quoted(dates(values))
    if pa.types.is_timestamp(kind):
        return _quoted(instants(values))
    if pa.types.is_struct(kind):
        fields = [(f.name, child) for f, child in zip(kind, values.flatten(), strict=True)]
        return _present(values, _objects(fields, "}"))
    if pa.types.is_map(kind):
        keys, items = as_list(values).flatten().flatten()
        return _bracketed(values, joined(_keys(keys), text(":"), _elements(items)), "{}")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _bracketed(values, _elements(values.flatten()), "[]")
    texts = [None if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
    return _quoted(pa.array(texts, pa.large_string()))


def _elements(values: pa.Array) -> pa.Array:
    return pc.fill_null(_values(values), text("null"))


def _bracketed(lists: pa.Array, inner: pa.Array, brackets: str) -> pa.Array:
    """The texts of all elements, put together again as they are in ``lists``."""
    lengths = pc.fill_null(pc.list_value_length(as_list(lists)), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    texts = pc.binary_join(pa.ListArray.from_arrays(offsets, inner.cast(pa.string())), ",").cast(
        pa.large_string()
    )
    return _present(lists, joined(text(brackets[0]), texts, text(brackets[1])))


def _present(values: pa.Array, texts: pa.Array) -> pa.Array:
    return (
        pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.large_string()))
        if values.null_count
        else texts
    )


def _keys(values: pa.Array) -> pa.Array:
    """As texts, whatever they are: JSON has no other keys."""
    texts = _values(values)
    return pc.if_else(pc.starts_with(texts, '"'), texts, _quoted(_escaped(texts)))


def _escaped(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, r'[\\"\n\r\t]')).as_py():
        for character, escaped in _ESCAPES:
            texts = pc.replace_substring(texts, character, escaped)
    if pc.any(pc.match_substring_regex(texts, r"[\x00-\x08\x0b\x0c\x0e-\x1f]")).as_py():
        for character in _CONTROLS:
            texts = pc.replace_substring(texts, character, json.dumps(character)[1:-1])
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    return joined(text('"'), texts, text('"'))
