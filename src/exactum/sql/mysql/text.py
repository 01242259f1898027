"""Arrow columns as MySQL's text: lines for LOAD DATA, or rows of literals for INSERT. Pure, no loop
over rows.

LOAD DATA reads lines that end with ``\\n``, with fields between tabs: a backslash escapes, ``\\N``
is NULL, and binary values are hexadecimal. INSERT reads ``(1,'text',x'ff',NULL)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.buffers import bytes_of
from exactum.sql.table import Column, Kind
from exactum.values.nested import is_text

_UNQUOTED = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN})


def lines(batch: Any, columns: Sequence[Column], first_row: int | None) -> bytes:
    """The batch as LOAD DATA reads it; with ``first_row``, a last field counts the rows from
    there.
    """
    fields = [_field(batch.column(i), column) for i, column in enumerate(columns)]
    if first_row is not None:
        fields.append(_numbers(first_row, batch.num_rows))
    fields[-1] = pc.binary_join_element_wise(fields[-1], "", "\n")
    joined = fields[0] if len(fields) == 1 else pc.binary_join_element_wise(*fields, "\t")
    return bytes_of(joined)[0]


def tuples(batch: Any, columns: Sequence[Column], first_row: int | None) -> tuple[bytes, Any]:
    """The batch as INSERT reads it, each row followed by a comma, and where each row ends (numpy,
    in bytes).
    """
    fields = [_literal(batch.column(i), column) for i, column in enumerate(columns)]
    if first_row is not None:
        fields.append(_numbers(first_row, batch.num_rows))
    body = fields[0] if len(fields) == 1 else pc.binary_join_element_wise(*fields, ",")
    text, offsets = bytes_of(pc.binary_join_element_wise("(", body, "),", ""))
    return text, offsets[1:]


def _field(values: Any, column: Column) -> Any:
    text = _text(values, column)
    if is_text(values.type):
        for character, escaped in (("\\", "\\\\"), ("\t", "\\\t"), ("\n", "\\\n")):
            text = _replaced(text, character, escaped)
    return pc.fill_null(text, "\\N") if text.null_count else text


def _literal(values: Any, column: Column) -> Any:
    text = _text(values, column)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        text = pc.binary_join_element_wise("x'", text, "'", "")
    elif column.kind not in _UNQUOTED:
        text = pc.binary_join_element_wise(
            "'", _replaced(_replaced(text, "\\", "\\\\"), "'", "\\'"), "'", ""
        )
    return pc.fill_null(text, "NULL") if text.null_count else text


def _text(values: Any, column: Column) -> Any:
    """Each value as a string, without quotes and escapes; null stays null."""
    kind = values.type
    if pa.types.is_string(kind):
        return values
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _hexadecimal(values)
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8()).cast(pa.string())
    if pa.types.is_float32(kind):
        # As a double: the shortest text of the largest float is above it, and servers read text as
        # a double.
        return values.cast(pa.float64()).cast(pa.string())
    if pa.types.is_timestamp(kind):
        # Without its zone an instant is its UTC time.
        return values.cast(pa.timestamp("us")).cast(pa.string())
    return values.cast(pa.string())


def _replaced(text: Any, character: str, by: str) -> Any:
    """Looks first whether the character is there at all, which is cheap."""
    if character.encode() not in bytes_of(text)[0]:
        return text
    return pc.replace_substring(text, character, by)


def _hexadecimal(values: Any) -> Any:
    """All values at once: twice as many bytes, so twice the offsets."""
    values = values.cast(pa.binary())
    data, offsets = bytes_of(values)
    doubled = (offsets * 2).astype(np.int32)
    validity = pc.is_valid(values) if values.null_count else None
    text = pa.StringArray.from_buffers(
        len(values), pa.py_buffer(doubled), pa.py_buffer(data.hex().encode())
    )
    return text if validity is None else pc.if_else(validity, text, pa.scalar(None, pa.string()))


def _numbers(first: int, count: int) -> Any:
    return pa.array(np.arange(first, first + count, dtype=np.int64)).cast(pa.string())
