"""Arrow arrays as JSON, a text for each value, by whole arrays: what Spark's ``to_json`` writes,
but for three things.

An instant is in UTC (``texts.instants``) and keeps its microseconds; the key of a map is the text
that its value would be; bytes that are no UTF-8 are shown as ``\\xff``. So a field that is null is
left out, an element that is null is not; decimals are numbers; NaN and the infinities are text;
bytes are base64.
"""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.values import times
from exactum.values.nested import as_list, data_of, is_bytes, is_text, not_utf8, repaired
from exactum.values.texts import TEXT, concatenated, decimals, floats, instants, without_nulls

_ESCAPES = {chr(c): json.dumps(chr(c))[1:-1] for c in (0x5C, 0x22, *range(0x20))}
"""The backslash first."""


def json_texts(values: pa.Array, *, keep_bytes: bool = False) -> pa.Array:
    """A large_string array, null where the value is null.

    ``keep_bytes``: text that is no UTF-8 is an object with its bytes, ``{"base64":"/w=="}``; not
    the key of a map.

    Raises:
        TypeError: a type that has no JSON (``is_writable``).
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return _structs(values, keep_bytes)
    if pa.types.is_map(kind):
        entries = as_list(values)
        pairs = entries.flatten()
        items = pc.fill_null(json_texts(pairs.field(1), keep_bytes=keep_bytes), "null")
        return joined(entries, concatenated(_keys(pairs.field(0)), ":", items), "{", "}")
    if pa.types.is_nested(kind):
        return joined(
            values,
            pc.fill_null(json_texts(values.flatten(), keep_bytes=keep_bytes), "null"),
            "[",
            "]",
        )
    if keep_bytes and is_text(kind):
        return _with_bytes(values)
    return _leaves(values)


def is_writable(kind: pa.DataType) -> bool:
    """Whether ``json_texts`` takes the Arrow type."""
    if pa.types.is_nested(kind):
        return all(is_writable(kind.field(i).type) for i in range(kind.num_fields))
    tests = (
        is_text, is_bytes, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
        pa.types.is_decimal, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_time,
        pa.types.is_null,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _leaves(values: pa.Array) -> pa.Array:
    kind = values.type
    if is_text(kind):
        return _quoted(repaired(values).cast(TEXT))
    if is_bytes(kind):
        texts = (
            None if b is None else f'"{base64.b64encode(b).decode()}"' for b in values.to_pylist()
        )
        return pa.array(texts, TEXT)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return values.cast(TEXT)
    if pa.types.is_decimal(kind):
        return decimals(values)
    if pa.types.is_floating(kind):
        return floats(values, '"')
    if pa.types.is_date32(kind):
        return concatenated('"', times.texts(values).cast(TEXT), '"')
    if pa.types.is_timestamp(kind):
        return concatenated('"', instants(values), '"')
    if pa.types.is_time(kind):
        return concatenated('"', values.cast(TEXT), '"')
    raise TypeError(f"values of the Arrow type {kind} have no JSON")


def _with_bytes(values: pa.Array) -> pa.Array:
    broken = not_utf8(values)
    texts = _leaves(values)
    if broken is None:
        return texts
    found = values.filter(pa.array(broken)).cast(pa.large_binary()).to_pylist()
    objects = [f'{{"base64":"{base64.b64encode(b).decode()}"}}' for b in found]
    return pc.replace_with_mask(texts, pa.array(broken), pa.array(objects, TEXT))


def _structs(values: pa.Array, keep_bytes: bool) -> pa.Array:
    """Each field with a comma before it, or nothing; then the first comma goes."""
    kind = values.type
    fields = [
        concatenated(
            f",{json.dumps(kind.field(i).name, ensure_ascii=False)}:",
            json_texts(values.field(i), keep_bytes=keep_bytes),
        )
        for i in range(kind.num_fields)
    ]
    texts = without_nulls(pa.repeat(pa.scalar("{", TEXT), len(values)), *fields, "}")
    return _where_valid(values, pc.replace_substring(texts, "{,", "{", max_replacements=1))


def joined(lists: pa.Array, items: pa.Array, opening: str, closing: str) -> pa.Array:
    """The texts of lists, with commas. ``items``: a text, none of them null, for each element."""
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    body = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), items), pa.scalar(",", TEXT))
    return _where_valid(lists, concatenated(opening, body, closing))


def _keys(values: pa.Array) -> pa.Array:
    """Keys are text: what has no quotes gets them."""
    texts = json_texts(values)
    quoted = pc.starts_with(texts, '"')
    if pc.all(quoted).as_py():
        return texts
    if pa.types.is_nested(values.type):
        return _quoted(texts)
    return pc.if_else(quoted, texts, concatenated('"', texts, '"'))


def _quoted(values: pa.Array) -> pa.Array:
    data = data_of(values)
    if len(data):
        controls = data.min() < 0x20
        for character, escape in _ESCAPES.items():
            if (controls or ord(character) >= 0x20) and np.count_nonzero(data == ord(character)):
                values = pc.replace_substring(values, character, escape)
    return concatenated('"', values, '"')


def _where_valid(values: pa.Array, texts: pa.Array) -> pa.Array:
    return (
        pc.if_else(values.is_valid(), texts, pa.scalar(None, TEXT)) if values.null_count else texts
    )
