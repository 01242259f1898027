"""Whether the key of an upsert still is the one that it was at the query's start.

MySQL upserts by whichever unique key a row hits, and without one it adds the row: a key that goes
would double rows, and another one that comes would lose some, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.sql.dialect import Dialect, ServerFailure, Session, SqlFailure
from exactum.sql.table import TableName, other_keys


def check_key(dialect: Dialect, session: Session, target: TableName, key: Sequence[str]) -> None:
    """For a session whose transaction has written to ``target``: an upsert by ``key``, or an append
    where that is empty.

    Raises:
        SqlFailure: CHANGED, the key is none any more, or the table has another one; or the
            server's.
    """
    if not key or not dialect.upserts_by_any_key:
        return
    keys = dialect.list_unique_keys(session, target)
    if frozenset(key) not in keys:
        found = f"has no unique key on exactly ({', '.join(key)}) any more"
    elif others := other_keys(keys, key):
        found = f"has another unique key now, ({', '.join(sorted(others[0]))})"
    else:
        return
    raise SqlFailure(
        ServerFailure.CHANGED,
        "",
        f"the table {target} {found}. A row could be there twice, or replace a different one.",
    )
