"""Rules that only MySQL and MariaDB have, see ``Dialect.broken``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.compute as pc

from exactum.sql.checks import Broken
from exactum.sql.mysql.json_texts import is_json
from exactum.sql.table import Column, Kind
from exactum.values.nested import is_text


def broken(column: Column, values: Any) -> Iterator[Broken]:
    """For a column and an Arrow array in which text is UTF-8."""
    if column.kind is Kind.JSON and is_text(values.type):
        yield Broken("holds JSON", ~is_json(values, column.type), values)
    if column.kind is Kind.FLOAT and column.limits.scale is not None:
        rounded = pc.round(values, ndigits=column.limits.scale)
        yield Broken(
            f"holds {column.limits.scale} digits after the point",
            pc.not_equal(rounded, values),
            values,
        )
