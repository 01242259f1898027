"""Whether the key of an upsert still is the one that it was at the query's start.

MySQL upserts by whichever unique key a row hits, and without one it adds the row: a key that goes
would double rows, and another one that comes would lose some, without a word.
"""

from __future__ import annotations

from exactum.sql.dialect import Mode, ServerFailure, Session, SqlFailure
from exactum.sql.plan import WritePlan
from exactum.sql.table import other_keys


def check_key(plan: WritePlan, session: Session) -> None:
    """For a session whose transaction has written to the plan's target.

    Raises:
        SqlFailure: CHANGED, the key is none any more, or the table has another one; or the
            server's.
    """
    if plan.mode is not Mode.UPSERT or not plan.dialect.upserts_by_any_key:
        return
    keys = plan.dialect.list_unique_keys(session, plan.target)
    if frozenset(plan.key) not in keys:
        found = f"has no unique key on exactly ({', '.join(plan.key)}) any more"
    elif others := other_keys(keys, plan.key):
        found = f"has another unique key now, ({', '.join(sorted(others[0]))})"
    else:
        return
    raise SqlFailure(
        ServerFailure.CHANGED,
        "",
        f"the table {plan.target} {found}. A row could be there twice, or replace a different one.",
    )
