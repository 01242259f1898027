"""Rows as CSV after RFC 4180, whole columns at a time.

Texts are quoted, null is an empty field, the empty text is ``""``. NaN and the infinities are
spelled as Spark spells them, decimals have no exponent, timestamps are those of JSON. What has no
such text (``refusal``) is not among the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from exactum.values import times
from exactum.values.nested import is_text
from exactum.values.texts import TEXT, concatenated, decimals, floats, instants, without_nulls


def header(names: Sequence[str], delimiter: str) -> bytes:
    """The first line of a file."""
    doubled = (name.replace('"', '""') for name in names)
    return (delimiter.join(f'"{name}"' for name in doubled) + "\n").encode()


def lines(rows: pa.RecordBatch, delimiter: str) -> pa.Array:
    """Each row, without the end of its line."""
    return without_nulls(*map(_values, rows.columns), between=delimiter)


def _values(values: pa.Array) -> pa.Array:
    """Each value as a field, null where it is null."""
    kind = values.type
    if is_text(kind):
        return concatenated('"', pc.replace_substring(values.cast(TEXT), '"', '""'), '"')
    if pa.types.is_floating(kind):
        return floats(values, "")
    if pa.types.is_decimal(kind):
        return decimals(values)
    if pa.types.is_date(kind):
        return times.texts(values).cast(TEXT)
    if pa.types.is_timestamp(kind):
        return instants(values)
    return values.cast(TEXT)
