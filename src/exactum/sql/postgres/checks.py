"""The rules that PostgreSQL alone has, on whole Arrow arrays (see ``Dialect.broken``). Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.compute as pc

from exactum.sql.checks import Broken
from exactum.sql.table import Column, Kind
from exactum.values.nested import is_text

_ESCAPED_NUL = r"(^|[^\\])(\\\\)*\\u0000"
"""The escape, and not an escaped backslash before ``u0000``."""


def broken(column: Column, values: Any) -> Iterator[Broken]:
    """jsonb keeps texts, not their escapes, so it has no place for U+0000; json keeps the
    escape.
    """
    if column.kind is Kind.JSON and column.type != "json" and is_text(values.type):
        seen = pc.match_substring(values, r"\u0000")
        if pc.any(seen).as_py():
            yield Broken(r"cannot hold \u0000", pc.match_substring_regex(values, _ESCAPED_NUL))


def no_json(batch: Any, columns: Sequence[Column]) -> dict[int, str]:
    """Rows with a text that is surely no JSON, by their places, with the reason. For a batch that
    was refused.

    What Python's parser takes, and PostgreSQL may not, is left to the server.
    """
    found: dict[int, str] = {}
    for column, values in zip(columns, batch.columns, strict=False):
        if column.kind is Kind.JSON and is_text(values.type):
            for place, text in enumerate(values.to_pylist()):  # UTF-8 by now, so this cannot raise
                why = None if text is None or place in found else _no_json(text)
                if why is not None:
                    found[place] = (
                        f"column {column.name!r} ({column.type}) holds no such JSON: {why}"
                    )
    return found


def _no_json(text: str) -> str | None:
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_constant)
    except RecursionError:
        return None
    except ValueError as error:
        return str(error)
    return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")
