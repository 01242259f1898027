"""The rules that PostgreSQL alone has, on whole Arrow arrays (see ``Dialect.broken``). Pure."""

from __future__ import annotations

from collections.abc import Iterator
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
