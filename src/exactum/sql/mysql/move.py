"""From the staging table into the target: plain inserts, or the last row of each key."""

from __future__ import annotations

from exactum.sql.dialect import PART, ROW, Mode, RowMove
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import quote, quote_table, sql

_RANK = "exactum_rank"
_LAST = "exactum_last"
NO_PART = -1
"""Parts are never negative."""


def move(session: MySQLSession, order: RowMove) -> int:
    """See ``dialect``."""
    return append(session, order) if order.mode is Mode.APPEND else upsert(session, order)


def append(session: MySQLSession, order: RowMove) -> int:
    """``INSERT INTO target (column, ...) SELECT column, ... FROM staging WHERE exactum_part = part
    ORDER BY exactum_row`` for each part, which reads the staging's primary key from end to end:
    nothing is sorted.
    """
    names = ", ".join(map(quote, order.columns))
    insert = (
        f"INSERT INTO {quote_table(order.target)} ({names}) SELECT {names} FROM "
        f"{quote_table(order.staging)} WHERE {quote(PART)} = %s ORDER BY {quote(ROW)}"
    )
    return sum(session.execute(insert, (part,)) for part in _in_order(session, order))


def _in_order(session: MySQLSession, order: RowMove) -> list[int]:
    """The parts by the number of their first row; those without rows come last."""
    if len(order.parts) <= 1:
        return list(order.parts) or [NO_PART]
    rows = session.query(sql("find_first_rows", staging=order.staging), (order.parts,))
    first = {int(part): int(row) for part, row in rows}
    return sorted(order.parts, key=lambda part: first.get(part, 2**63))


def upsert(session: MySQLSession, order: RowMove) -> int:
    """Delete the keys whose last row says so, then insert or replace the others by order of key:

        DELETE target FROM target JOIN ranked ON key = key AND ... WHERE exactum_rank = 1 AND
        delete_when IS TRUE
        INSERT INTO target (column, ...) SELECT column, ... FROM ranked WHERE exactum_rank = 1 AND
        delete_when IS NOT TRUE ORDER BY key, ... ON DUPLICATE KEY UPDATE column = column, ...

    ``ranked`` is a subquery: see ``_ranked``.
    """
    parts = (order.parts or (NO_PART,),)
    ranked = _ranked(order)
    removed = 0
    if order.delete_when is not None:
        same = " AND ".join(f"target.{quote(k)} = {_LAST}.{quote(k)}" for k in order.key)
        removed = session.execute(
            f"DELETE target FROM {quote_table(order.target)} AS target JOIN {ranked} ON {same} "
            f"WHERE {_LAST}.{_RANK} = 1 AND {_LAST}.{quote(order.delete_when)} IS TRUE",
            parts,
        )
    names = ", ".join(map(quote, order.columns))
    kept = (
        "" if order.delete_when is None else f" AND {_LAST}.{quote(order.delete_when)} IS NOT TRUE"
    )
    changed = [c for c in order.columns if c not in order.key] or [order.key[0]]
    updates = ", ".join(f"{quote(c)} = {_LAST}.{quote(c)}" for c in changed)
    written = session.execute(
        f"INSERT INTO {quote_table(order.target)} ({names}) SELECT "
        f"{', '.join(f'{_LAST}.{quote(c)}' for c in order.columns)} FROM {ranked} WHERE "
        f"{_LAST}.{_RANK} = 1{kept} ORDER BY {', '.join(f'{_LAST}.{quote(k)}' for k in order.key)} "
        f"ON DUPLICATE KEY UPDATE {updates}",
        parts,
    )
    return removed + written


def _ranked(order: RowMove) -> str:
    """The parts' rows, each with its place among those of its key: 1 is the last. NULL sorts lowest
    in MySQL.

        (SELECT column, ..., ROW_NUMBER() OVER (PARTITION BY key, ... ORDER BY order_by DESC, ...,
        exactum_row DESC) AS exactum_rank FROM staging WHERE exactum_part IN parts) AS exactum_last
    """
    columns = [*order.columns, *([order.delete_when] if order.delete_when else [])]
    latest = ", ".join(f"{quote(c)} DESC" for c in (*order.order_by, ROW))
    return (
        f"(SELECT {', '.join(map(quote, columns))}, ROW_NUMBER() OVER (PARTITION BY "
        f"{', '.join(map(quote, order.key))} ORDER BY {latest}) AS {_RANK} FROM "
        f"{quote_table(order.staging)} WHERE {quote(PART)} IN %s) AS {_LAST}"
    )
