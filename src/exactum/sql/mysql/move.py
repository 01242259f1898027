"""From the temporary table of an upsert into the target: the last row of each key."""

from __future__ import annotations

from exactum.sql.dialect import ROW, RowMove, Session
from exactum.sql.mysql.statements import quote, quote_table

_RANK = "exactum_rank"
_LAST = "exactum_last"


def upsert(session: Session, order: RowMove) -> None:
    """Delete the keys whose last row says so, then insert or replace the others by order of key:

        DELETE target FROM target JOIN ranked ON key = key AND ... WHERE exactum_rank = 1 AND
        delete_when IS TRUE
        INSERT INTO target (column, ...) SELECT column, ... FROM ranked WHERE exactum_rank = 1 AND
        delete_when IS NOT TRUE ORDER BY key, ... ON DUPLICATE KEY UPDATE column = column, ...

    ``ranked`` is a subquery: see ``_ranked``.
    """
    ranked = _ranked(order)
    if order.delete_when is not None:
        same = " AND ".join(f"target.{quote(k)} = {_LAST}.{quote(k)}" for k in order.key)
        session.execute(
            f"DELETE target FROM {quote_table(order.target)} AS target JOIN {ranked} ON {same} "
            f"WHERE {_LAST}.{_RANK} = 1 AND {_LAST}.{quote(order.delete_when)} IS TRUE"
        )
    names = ", ".join(map(quote, order.columns))
    kept = (
        "" if order.delete_when is None else f" AND {_LAST}.{quote(order.delete_when)} IS NOT TRUE"
    )
    changed = [c for c in order.columns if c not in order.key] or [order.key[0]]
    updates = ", ".join(f"{quote(c)} = {_LAST}.{quote(c)}" for c in changed)
    session.execute(
        f"INSERT INTO {quote_table(order.target)} ({names}) SELECT "
        f"{', '.join(f'{_LAST}.{quote(c)}' for c in order.columns)} FROM {ranked} WHERE "
        f"{_LAST}.{_RANK} = 1{kept} ORDER BY {', '.join(f'{_LAST}.{quote(k)}' for k in order.key)} "
        f"ON DUPLICATE KEY UPDATE {updates}"
    )


def _ranked(order: RowMove) -> str:
    """The rows, each with its place among those of its key: 1 is the last. NULL sorts lowest
    in MySQL.

        (SELECT column, ..., ROW_NUMBER() OVER (PARTITION BY key, ... ORDER BY order_by DESC, ...,
        exactum_row DESC) AS exactum_rank FROM staging) AS exactum_last
    """
    columns = [*order.columns, *([order.delete_when] if order.delete_when else [])]
    latest = ", ".join(f"{quote(c)} DESC" for c in (*order.order_by, ROW))
    return (
        f"(SELECT {', '.join(map(quote, columns))}, ROW_NUMBER() OVER (PARTITION BY "
        f"{', '.join(map(quote, order.key))} ORDER BY {latest}) AS {_RANK} FROM "
        f"{quote_table(order.staging)}) AS {_LAST}"
    )
