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

from exactum.sql.table import Column, Kind
from exactum.values.nested import bytes_of, data_of, hex_texts, is_bytes, is_text

TEXT = pa.large_string()
"""Lines of a whole batch may be more than 2 GiB."""
_UNQUOTED = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN})


def lines(batch: Any, columns: Sequence[Column], first_row: int | None) -> Any:
    """The batch as LOAD DATA reads it; with ``first_row``, a last field counts the rows from
    there.
    """
    fields = [_field(batch.column(i), column) for i, column in enumerate(columns)]
    if first_row is not None:
        fields.append(_numbers(first_row, batch.num_rows))
    fields[-1] = _joined(fields[-1], "\n", by="")
    return data_of(fields[0] if len(fields) == 1 else _joined(*fields, by="\t"))


def tuples(batch: Any, columns: Sequence[Column], first_row: int | None) -> tuple[Any, Any]:
    """The batch as INSERT reads it, each row followed by a comma, and where each row ends (both
    NumPy's).
    """
    fields = [_literal(batch.column(i), column) for i, column in enumerate(columns)]
    if first_row is not None:
        fields.append(_numbers(first_row, batch.num_rows))
    body = fields[0] if len(fields) == 1 else _joined(*fields, by=",")
    text, ends = bytes_of(_joined("(", body, "),", by=""))
    return text, ends[1:]


def _joined(*texts: Any, by: str) -> Any:
    scalars = (pa.scalar(text, TEXT) if isinstance(text, str) else text for text in (*texts, by))
    return pc.binary_join_element_wise(*scalars)


def _field(values: Any, column: Column) -> Any:
    text = _text(values)
    if is_text(values.type):
        for character, escaped in (("\\", "\\\\"), ("\t", "\\\t"), ("\n", "\\\n")):
            text = _replaced(text, character, escaped)
    return pc.fill_null(text, "\\N") if text.null_count else text


def _literal(values: Any, column: Column) -> Any:
    text = _text(values)
    if is_bytes(values.type):
        text = _joined("x'", text, "'", by="")
    elif column.kind not in _UNQUOTED:
        text = _joined("'", _replaced(_replaced(text, "\\", "\\\\"), "'", "\\'"), "'", by="")
    return pc.fill_null(text, "NULL") if text.null_count else text


def _text(values: Any) -> Any:
    """Each value as a large_string, without quotes and escapes; null stays null."""
    kind = values.type
    if is_bytes(kind):
        return hex_texts(values)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_float32(kind):
        # As a double: the shortest text of the largest float is above it, and servers read text as
        # a double.
        values = values.cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        # Without its zone an instant is its UTC time.
        values = values.cast(pa.timestamp("us"))
    return values.cast(TEXT)


def _replaced(text: Any, character: str, by: str) -> Any:
    """Looks first whether the character is there at all, which is cheap."""
    if not np.count_nonzero(data_of(text) == ord(character)):
        return text
    return pc.replace_substring(text, character, by)


def _numbers(first: int, count: int) -> Any:
    return pa.array(np.arange(first, first + count, dtype=np.int64)).cast(TEXT)
