"""Whether a table still is what rows were judged by at the query's start: what can be promised of
it, its columns, its key.
"""

from __future__ import annotations

from exactum.errors import SettingRefused
from exactum.sql.column_change import check_columns
from exactum.sql.dialect import ServerFailure, Session, SqlFailure
from exactum.sql.key_change import check_key
from exactum.sql.plan import WritePlan


def check_target(plan: WritePlan, session: Session) -> None:
    """For a session whose transaction has written to the plan's target, before it ends.

    Raises:
        SqlFailure: UNFIT, it can hold no guarantee any more (UNLOGGED, MyISAM, ...); CHANGED, see
            ``check_columns`` and ``check_key``; or the server's.
    """
    try:
        plan.dialect.check_table(session, plan.target)
    except SettingRefused as refused:
        raise SqlFailure(ServerFailure.UNFIT, "", str(refused)) from refused
    check_columns(plan.dialect, session, plan.target, plan.columns)
    check_key(plan, session)
