"""Whether a table still is what rows were judged by at the query's start: what can be promised of
it, its columns, its key.
"""

from __future__ import annotations

from typing import Protocol

from exactum.errors import SettingRefused
from exactum.sql.column_change import check_columns
from exactum.sql.dialect import Dialect, Mode, ServerFailure, Session, SqlFailure
from exactum.sql.key_change import check_key
from exactum.sql.plan import WritePlan
from exactum.sql.table import TableName


def check_target(plan: WritePlan, session: Session) -> None:
    """For a session whose transaction has written to the plan's target, before it ends.

    Raises:
        SqlFailure: as ``check_moved``; CHANGED, see ``check_columns``.
    """
    _check_fit(plan.dialect, session, plan.target, deletes=plan.flag_column is not None)
    check_columns(plan.dialect, session, plan.target, plan.columns)
    check_key(plan.dialect, session, plan.target, plan.key if plan.mode is Mode.UPSERT else ())


class LoadedRows(Protocol):
    """How rows were loaded; see ``target.Load``."""

    @property
    def mode(self) -> Mode: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def delete_when(self) -> tuple[str, str] | None: ...


def check_moved(dialect: Dialect, session: Session, target: TableName, move: LoadedRows) -> None:
    """For a session whose transaction has loaded staged rows into ``target`` after their decision,
    before it ends. A column that was changed since is no reason to stop: the rows are as if they
    had been there when it was changed.

    Raises:
        SqlFailure: REFUSED, the table can hold no guarantee any more (UNLOGGED, MyISAM, a rule,
            rows that a DELETE would pass over, ...); CHANGED, see ``check_key``; or the server's.
    """
    _check_fit(dialect, session, target, deletes=move.delete_when is not None)
    check_key(dialect, session, target, move.key if move.mode is Mode.UPSERT else ())


def hidden_rows(table: TableName) -> str:
    """Why ``delete_when=`` cannot be kept, and what to do."""
    return (
        f"row-level security is in force for this user on the table {table}. A DELETE passes over "
        "rows that a policy hides and does not say so: delete_when= could not be kept. Let the "
        "user bypass it (ALTER ROLE ... BYPASSRLS), or leave delete_when= out."
    )


def _check_fit(dialect: Dialect, session: Session, target: TableName, *, deletes: bool) -> None:
    try:
        hides_rows = dialect.check_table(session, target)
    except SettingRefused as refused:
        raise SqlFailure(ServerFailure.REFUSED, "", str(refused)) from refused
    if hides_rows and deletes:
        raise SqlFailure(ServerFailure.REFUSED, "", hidden_rows(target))
