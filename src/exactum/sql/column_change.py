"""Whether the target's columns still are what they were at the query's start.

Rows are judged by the columns of the start. A server that is then told to keep fewer digits rounds
what it is given, and says nothing of it (PostgreSQL's assignment casts; MySQL's notes, in strict
mode as well); and MySQL puts a number of its own in the place of null where a column has become
AUTO_INCREMENT. So the types are looked at once more where the rows are in the table and its
definition cannot change any more: in the transaction that has written to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.sql.dialect import Dialect, ServerFailure, Session, SqlFailure
from exactum.sql.table import Column, ColumnLimits, Kind, TableName

_COMPARABLE = frozenset(
    (
        Kind.BOOLEAN,
        Kind.INTEGER,
        Kind.DECIMAL,
        Kind.FLOAT,
        Kind.TEXT,
        Kind.BYTES,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMP_TZ,
    )
)
"""Kinds of which ``ColumnLimits`` says all that a type holds."""


def check_columns(
    dialect: Dialect, session: Session, table: TableName, columns: Sequence[Column]
) -> None:
    """For a session whose transaction has written to ``table``. A column that has become wider is
    taken.

    Raises:
        SqlFailure: CHANGED, a column is gone or may not hold what it held; or the server's.
    """
    types = dialect.list_types(session, table)
    if all(types.get(column.name) == column.identity for column in columns):
        return
    found = dialect.read_table(session, table)
    for column in columns:
        now = None if found is None else found.column(column.name)
        if now is None or not holds_all_of(now, column):
            raise SqlFailure(
                ServerFailure.CHANGED,
                "",
                f"column {column.name!r} of {table} {_became(now, column)} now. At the query's "
                f"start it was {column.type}, and the server could change values without a word.",
            )


def _became(now: Column | None, before: Column) -> str:
    if now is None:
        return "is not there"
    if now.type != before.type:
        return f"has the type {now.type}"
    if before.nullable and not now.nullable:
        return "is NOT NULL"
    return f"has another type called {now.type}"


def holds_all_of(now: Column, before: Column) -> bool:
    """Whether each value of a column, and null, is the same in what the column has become."""
    if now.identity == before.identity:
        return True
    if before.nullable and not now.nullable:
        return False
    if now.kind is not before.kind or now.kind not in _COMPARABLE:
        return False
    wide, narrow = now.limits, before.limits
    same = (
        wide.length_in_bytes == narrow.length_in_bytes
        and wide.trailing_spaces_free == narrow.trailing_spaces_free
        and wide.length_min == narrow.length_min
        and wide.charset == narrow.charset
        and wide.collation == narrow.collation
        and (wide.choices is None) == (narrow.choices is None)
        and set(wide.choices or ()) >= set(narrow.choices or ())
        and wide.form == narrow.form
    )
    return (
        same
        and wide.nul_allowed >= narrow.nul_allowed
        and wide.nan_allowed >= narrow.nan_allowed
        and (wide.lowest is None or (narrow.lowest is not None and wide.lowest <= narrow.lowest))
        and _reaches(wide.highest, narrow.highest)
        and _reaches(wide.magnitude_max, narrow.magnitude_max)
        and _reaches(wide.length_max, narrow.length_max)
        and _reaches(wide.scale, narrow.scale)
        and _reaches(_whole_digits(wide), _whole_digits(narrow))
    )


def _whole_digits(limits: ColumnLimits) -> int | None:
    """How many digits stand before the point; of a FLOAT, its bits."""
    return None if limits.precision is None else limits.precision - (limits.scale or 0)


def _reaches(wide: float | None, narrow: float | None) -> bool:
    """Whether an upper limit is no lower than another one; None is no limit."""
    return wide is None or (narrow is not None and wide >= narrow)
