"""A table as CSV after RFC 4180, whole columns at a time.

Texts are quoted, null is an empty field, the empty text is ``""``. NaN and the infinities are
spelled as Spark spells them, decimals have no exponent, timestamps are those of ``json_lines``.
What has no such text (``refusal``) is not among the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from exactum.values.nested import is_text


def header(names: Sequence[str], delimiter: str) -> bytes:
    """The first line of a file."""
    doubled = (name.replace('"', '""') for name in names)
    return (delimiter.join(f'"{name}"' for name in doubled) + "\n").encode()


def encode(table: pa.Table, delimiter: str) -> pa.Buffer:
    """One line for each row, UTF-8, each ending with a newline."""
    if not table.num_rows:
        return pa.py_buffer(b"")
    fields = [_values(whole_column(column)) for column in table.columns]
    lines = pc.binary_join_element_wise(
        *fields, text(delimiter), null_handling="replace", null_replacement=""
    )
    return buffer_of(joined(lines, text("\n")))


def _values(values: pa.Array) -> pa.Array:
    """Each value as a field, null where it is null."""
    kind = values.type
    if is_text(kind):
        doubled = pc.replace_substring(values.cast(pa.large_string()), '"', '""')
        return joined(text('"'), doubled, text('"'))
    if pa.types.is_floating(kind):
        return floats(values, "")
    if pa.types.is_decimal(kind):
        return decimals(values)
    if pa.types.is_date(kind):
        return dates(values)
    if pa.types.is_timestamp(kind):
        return instants(values)
    return wholes(values)
