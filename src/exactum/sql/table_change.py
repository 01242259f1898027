"""Whether a table still is what rows were judged by at the query's start.

Rows are judged by the columns of the start. A server that is then told to keep fewer digits rounds
what it is given, and says nothing of it (PostgreSQL's assignment casts; MySQL's notes, in strict
mode as well); MySQL puts a number of its own in the place of null where a column has become
AUTO_INCREMENT, and upserts by whichever unique key a row hits, so that another key would double
rows or lose some. So the table is read once more where the rows are in it and its definition cannot
change any more: in the transaction that has written to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import SettingRefused
from exactum.sql.dialect import Dialect, ServerFailure, Session, SqlFailure
from exactum.sql.table import Column, Table, TableName, other_keys


def check_table(
    dialect: Dialect,
    session: Session,
    target: TableName,
    *,
    upsert_key: Sequence[str],
    deletes: bool,
    columns: Sequence[Column] = (),
) -> None:
    """For a session whose transaction has written to ``target``, before it ends. ``upsert_key``:
    empty for an append. ``columns``: as they were at the start; none after a decision, for then the
    rows are as if they had been there when a column was changed.

    Raises:
        SqlFailure: OTHER, the table can hold no guarantee any more (UNLOGGED, MyISAM, a rule,
            rows that a DELETE would pass over, ...); CHANGED; or the server's.
    """
    try:
        table = dialect.read_table(session, target)
    except SettingRefused as refused:
        raise SqlFailure(
            ServerFailure.OTHER,
            "",
            f"{refused} It was another one when the query started. What the server could not undo "
            "since is there: before the next start, look for rows of this query that are there "
            "twice.",
        ) from refused
    if table is None:
        raise SqlFailure(ServerFailure.MISSING, "", f"there is no table {target} any more")
    if table.hides_rows and deletes:
        raise SqlFailure(ServerFailure.OTHER, "", hidden_rows(target))
    for column in columns:
        if (now := table.column(column.name)) != column:
            raise SqlFailure(ServerFailure.CHANGED, "", _column_change(target, column, now))
    if upsert_key and dialect.upserts_by_any_key:
        _check_key(table, upsert_key)


def _column_change(table: TableName, before: Column, now: Column | None) -> str:
    if now is None:
        became = "is not there"
    elif now.type != before.type:
        became = f"has the type {now.type}"
    elif before.nullable and not now.nullable:
        became = "is NOT NULL"
    elif now.known_by != before.known_by:
        became = f"has another type called {now.type}"
    else:
        became = "is defined in another way"
    return (
        f"column {before.name!r} of {table} {became} now. At the query's start it was "
        f"{before.type}, and the server could change values without a word."
    )


def _check_key(table: Table, key: Sequence[str]) -> None:
    if frozenset(key) not in table.unique_keys:
        found = f"has no unique key on exactly ({', '.join(key)}) any more"
    elif others := other_keys(table.unique_keys, key):
        found = f"has another unique key now, ({', '.join(sorted(others[0]))})"
    else:
        return
    raise SqlFailure(
        ServerFailure.CHANGED,
        "",
        f"the table {table.name} {found}. A row could be there twice, or replace a different one.",
    )


def hidden_rows(table: TableName) -> str:
    """Why ``delete_when=`` cannot be kept, and what to do."""
    return (
        f"row-level security is in force for this user on the table {table}. A DELETE passes over "
        "rows that a policy hides and does not say so: delete_when= could not be kept. Let the "
        "user bypass it (ALTER ROLE ... BYPASSRLS), or leave delete_when= out."
    )
