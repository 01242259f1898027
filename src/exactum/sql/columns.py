"""A frame's columns against the table's: at the start, what is missing, what does not fit, what
would stay null; and again in the transaction that writes to the table.

Rows are judged by the columns of the start. A server that is then told to keep fewer digits rounds
what it is given, and says nothing of it (PostgreSQL's assignment casts; MySQL's notes, in strict
mode as well); MySQL puts a number of its own in the place of null where a column has become
AUTO_INCREMENT, and upserts by whichever unique key a row hits, so that another key would double
rows or lose some. And a bigint in COPY's binary format would be read as a double without a word. So
the table is read once more where its definition cannot change any more: in the transaction that
writes to it, before the first row. So it is after a decision, too: what waits in files has not met
the table yet, and whoever changed a column saw it without these rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from exactum.errors import FrameRefused, SettingRefused
from exactum.sql.dialect import Dialect, Load, Mode
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.table import Column, Table, TableName, keeps, without_limits

SOURCE = ("topic", "partition", "offset")
NAMED_BY_MAX = 3
"""Most columns that name a row of a table without a key."""


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
    if why := _demanded(table, columns):
        listed = ", ".join(name for name, _ in frame)
        raise FrameRefused("SQL_COLUMNS", f"{where}: {why}; the frame has {listed}.")
    return tuple(columns)


def _demanded(table: Table, written: Sequence[Column]) -> str:
    """Why rows of these columns alone cannot go into it; empty: they can."""
    names = {column.name for column in written}
    for c in table.columns:
        if not (c.name in names or c.nullable or c.has_default or c.generated):
            return (
                f"the table's column {c.name!r} ({c.type}) is NOT NULL and has no default, and the "
                "frame does not have it"
            )
    return ""


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


# ---- in the transaction ----------------------------------------------------------------------


def check_table(dialect: Dialect, session: Session, load: Load, *, is_decided: bool) -> None:
    """Before ``load`` goes into its target, whose definition nobody can change from here on until
    the session's transaction ends. Its columns are those that its rows were judged by. Rows of
    which nothing is decided can be judged anew, by the next start: they go into these columns only.
    Decided ones go into columns that keep each of their values, too.

    Raises:
        SqlFailure: OTHER, the table can hold no guarantee any more (UNLOGGED, MyISAM, a rule,
            rows that a DELETE would pass over, ...); CHANGED; or the server's.
    """
    target = load.target
    dialect.lock_definition(session, load)
    try:
        table = dialect.read_table(session, target)
    except SettingRefused as refused:
        why = f"{refused} It was another one when the query started."
        raise SqlFailure(ServerFailure.OTHER, "", why) from refused
    if table is None:
        raise SqlFailure(ServerFailure.MISSING, "", f"there is no table {target} any more")
    if table.hides_rows and load.flag is not None:
        raise SqlFailure(ServerFailure.OTHER, "", hidden_rows(target))
    for column in load.columns:
        now = table.column(column.name)
        if now != column and not (is_decided and now and _takes_decided(load, now, column)):
            why = _column_change(target, column, now)
            back = " Put the column back as it was." if is_decided else ""
            raise SqlFailure(ServerFailure.CHANGED, "", why + back)
    if not is_decided and (why := _demanded(table, load.columns)):
        raise SqlFailure(ServerFailure.CHANGED, "", f"{target} was changed: {why}.")
    if load.mode is Mode.UPSERT and (why := wrong_key(table, load.key, dialect)):
        raise SqlFailure(ServerFailure.CHANGED, "", f"The table was changed: an upsert {why}")


def _takes_decided(load: Load, now: Column, before: Column) -> bool:
    """A key that compares in another way would let another row win."""
    is_bound = load.is_read_by_type or before.name in load.key
    if is_bound and without_limits(now.type) != without_limits(before.type):
        return False
    return keeps(now, before)


def _column_change(table: TableName, before: Column, now: Column | None) -> str:
    became = "is not there"
    if now is not None:
        null = "" if now.nullable else " NOT NULL"
        other = "another type called " if now.known_by != before.known_by else ""
        became = f"is {other}{now.type}{null}"
    return (
        f"column {before.name!r} of {table} {became} now, or defined in another way. When the rows "
        f"were written it was {before.type}: the server could change values without a word."
    )


def wrong_key(table: Table, key: Sequence[str], dialect: Dialect) -> str:
    """Why rows cannot be upserted by exactly this key; empty: they can."""
    if frozenset(key) not in table.unique_keys:
        known = "; ".join(sorted(", ".join(sorted(k)) for k in table.unique_keys)) or "none"
        return (
            f"needs a primary key or a unique constraint on exactly ({', '.join(key)}); the table "
            f"{table.name} has: {known}. Create one, or correct key=."
        )
    # A key that contains ours is hit by no other row.
    others = [other for other in table.unique_keys if not frozenset(key) <= other]
    if not others or not dialect.upserts_by_any_key:
        return ""
    return (
        f"goes by whichever unique key a row hits in {dialect.name}, and the table {table.name} "
        f"has another one than key=: ({', '.join(sorted(others[0]))}). A row could replace a "
        "different one. Drop that key, or use a table with one key."
    )


def hidden_rows(table: TableName) -> str:
    """Why ``delete_when=`` cannot be kept, and what to do."""
    return (
        f"row-level security is in force for this user on the table {table}. A DELETE passes over "
        "rows that a policy hides and does not say so: delete_when= could not be kept. Let the "
        "user bypass it (ALTER ROLE ... BYPASSRLS), or leave delete_when= out."
    )
