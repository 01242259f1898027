"""The frame's columns against the table's: what is missing, what does not fit, what would stay
null. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from exactum.errors import FrameRefused
from exactum.sql.table import Column, Table

if TYPE_CHECKING:
    from exactum.sql.dialect import Dialect

SOURCE = ("topic", "partition", "offset")
NAMED_BY_MAX = 3
"""Most columns that name a row of a table without a key."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_TEXT = re.compile(r"(varchar|char)\(\d+\)|string collate .*")


def split_type(spark_type: str) -> tuple[str, tuple[int, int] | None]:
    """The type without what it has in brackets, and of a decimal its digits and those after the
    point; one that has none after it is a ``whole decimal``.
    """
    decimal = _DECIMAL.fullmatch(spark_type)
    if decimal is not None:
        scale = int(decimal[2])
        return "decimal" if scale else "whole decimal", (int(decimal[1]), scale)
    return "string" if _TEXT.fullmatch(spark_type) else spark_type, None


def matched(
    table: Table, frame: Sequence[tuple[str, str]], dialect: Dialect, where: str
) -> tuple[Column, ...]:
    """The table's column for each of the frame's, given as (name, Spark type).

    A name fits exactly, or else by all but its case if only one does: Spark keeps the case that a
    user wrote, and servers fold it.

    Raises:
        FrameRefused: a column is missing in the table, is computed by the server, has a type that
            the frame's cannot be loaded into, or is NOT NULL without a default and missing in the
            frame.
    """
    columns: list[Column] = []
    for name, spark_type in frame:
        column = _find(table, name)
        why = None
        if column is None:
            why = (
                f"the table {table.name} has no column {name!r}; it has {_listed(table.columns)}. "
                "Rename or drop the column in the query (rows= gives a sink its own view), or add "
                "it to the table."
            )
        elif column in columns:
            why = f"two columns of the frame go into the table's column {column.name!r}."
        elif column.generated:
            why = (
                f"the table's column {column.name!r} is computed by {dialect.name} itself; drop it "
                "in the query."
            )
        if column is None or why is not None:
            raise FrameRefused("SQL_COLUMNS", f"{where}: {why}")
        if not dialect.takes(column, spark_type):
            raise FrameRefused(
                "SQL_TYPE",
                f"{where}: the column {name!r} is {spark_type} in the frame and {column.type} in "
                f"the table {table.name}, which cannot take it. Cast it in the query, or convert "
                "the column (docs/reference/types.md says what goes where).",
            )
        columns.append(column)
    for column in table.columns:
        if column not in columns and not (
            column.nullable or column.has_default or column.generated
        ):
            raise FrameRefused(
                "SQL_COLUMNS",
                f"{where}: the table's column {column.name!r} ({column.type}) is NOT NULL and has "
                "no default, and the frame does not have it; the frame has "
                f"{', '.join(name for name, _ in frame)}.",
            )
    return tuple(columns)


def named_by(
    unique_keys: Sequence[frozenset[str]], by_frame: Mapping[str, Column]
) -> tuple[str, ...]:
    """The frame's columns whose values best name a row: the shortest unique key that is written
    whole; where there is none, the record's place in Kafka, or else the first columns.

    ``by_frame``: the table's column for each of the frame's.
    """
    names = {column.name: name for name, column in by_frame.items()}
    whole = sorted((k for k in unique_keys if k <= names.keys()), key=lambda k: (len(k), sorted(k)))
    if whole:
        return tuple(names[column] for column in sorted(whole[0]))
    return SOURCE if by_frame.keys() >= set(SOURCE) else tuple(by_frame)[:NAMED_BY_MAX]


def _find(table: Table, name: str) -> Column | None:
    exact = table.column(name)
    if exact is not None:
        return exact
    close = [c for c in table.columns if c.name.casefold() == name.casefold()]
    return close[0] if len(close) == 1 else None


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(f"{c.name} {c.type}" for c in columns)
