"""Values as a person reads them in a message: one short text for each, whatever they are."""

from __future__ import annotations

import pyarrow as pa

from exactum.values import times
from exactum.values.excerpt import cut
from exactum.values.json_text import is_writable, json_texts
from exactum.values.nested import is_bytes, is_text, repaired

SHOWN_MAX = 60
"""Most characters of a value's text."""


def shown(values: pa.Array) -> list[str]:
    """For few values: those of rows that are refused."""
    return ["None" if text is None else cut(text, SHOWN_MAX) for text in _texts(values)]


def _texts(values: pa.Array) -> list[str | None]:
    kind = values.type
    if is_text(kind):
        return [None if text is None else repr(text) for text in repaired(values).to_pylist()]
    if is_bytes(kind):
        return [None if value is None else repr(value) for value in values.to_pylist()]
    if pa.types.is_date32(kind):
        return _list(times.texts(values))
    if pa.types.is_timestamp(kind):
        zone = "" if kind.tz is None else "+00:00"
        return [None if text is None else text + zone for text in _list(times.texts(values))]
    if pa.types.is_nested(kind):
        return _list(json_texts(values)) if is_writable(kind) else [str(kind)] * len(values)
    return _list(values.cast(pa.string()))


def _list(texts: pa.Array) -> list[str | None]:
    found: list[str | None] = texts.to_pylist()
    return found
