"""Arrow columns as PostgreSQL reads them in COPY's text, by whole arrays. Pure; no value becomes a
Python value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.dialect import DOUBLE_BITS
from exactum.sql.table import Column, Kind
from exactum.values import times
from exactum.values.json_text import joined, json_texts
from exactum.values.nested import data_of, hex_texts, is_bytes, is_text

TEXT = pa.large_string()


def sendable(column: Column, values: Any) -> Any:
    """As Arrow's CSV writer can write it and the column reads it."""
    kind = values.type
    if pa.types.is_nested(kind):
        return (
            array_texts(column.element, values)
            if column.element is not None
            else json_texts(values)
        )
    if is_bytes(kind):
        return pc.binary_join_element_wise(
            pa.scalar("\\x", TEXT), hex_texts(values), pa.scalar("", TEXT)
        )
    if (
        pa.types.is_float32(kind)
        and column.kind is Kind.FLOAT
        and column.limits.precision == DOUBLE_BITS
    ):
        return values.cast(pa.float64())  # as Spark casts it: not the shortest text of 32 bits
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        if not times.are_ordinary(values):
            return times.texts(values, spelled)
        return (
            values
            if pa.types.is_date32(kind)
            else values.cast(pa.timestamp("us", "UTC" if kind.tz else None))
        )
    return values


def spelled(year: int, month: int, day: int) -> str:
    """A day of any year: year 0 is 1 BC. The session's time zone is UTC and its DateStyle ISO."""
    return (
        f"{year:04d}-{month:02d}-{day:02d}"
        if year > 0
        else f"{1 - year:04d}-{month:02d}-{day:02d} BC"
    )


def array_texts(element: Column, values: Any) -> Any:
    """PostgreSQL's array literals: every element in double quotes but null."""
    texts = _element_texts(element, values.flatten()).cast(TEXT)
    for character in ("\\", '"'):
        if np.count_nonzero(data_of(texts) == ord(character)):
            texts = pc.replace_substring(texts, character, "\\" + character)
    quote = pa.scalar('"', TEXT)
    quoted = pc.binary_join_element_wise(quote, texts, quote, pa.scalar("", TEXT))
    return joined(values, pc.fill_null(quoted, "NULL"), "{", "}")


def _element_texts(element: Column, values: Any) -> Any:
    sent = sendable(element, values)
    if is_text(sent.type):
        return sent
    if pa.types.is_date32(sent.type) or pa.types.is_timestamp(sent.type):
        return times.texts(sent)
    return sent.cast(TEXT)
