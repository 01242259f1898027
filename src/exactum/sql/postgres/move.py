"""From the temporary table of an upsert into the target: the last row of each key."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.sql.dialect import ROW, RowMove
from exactum.sql.postgres.statements import quote, quote_table


def upsert(order: RowMove) -> str:
    """The last row of each key, sorted by key, which is the order in which rows are locked:

        INSERT INTO target (column, ...) SELECT DISTINCT ON (key, ...) column, ... FROM staging
        ORDER BY key, ..., order_by DESC NULLS LAST, ...,
        exactum_row DESC ON CONFLICT (key, ...) DO UPDATE SET column = EXCLUDED.column, ...

    With ``delete_when`` the SELECT comes first, ``WITH last AS (...)``; then ``gone AS (DELETE FROM
    target USING last WHERE ... RETURNING 1)``; and the INSERT takes what is left.
    """
    columns, key, target = _list(order.columns), _list(order.key), quote_table(order.target)
    by = "".join(f"{quote(c)} DESC NULLS LAST, " for c in order.order_by)
    where = f"FROM {quote_table(order.staging)} ORDER BY {key}, {by}{ROW} DESC"
    changed = ", ".join(
        f"{quote(c)} = EXCLUDED.{quote(c)}" for c in order.columns if c not in order.key
    )
    conflict = f"ON CONFLICT ({key}) DO {f'UPDATE SET {changed}' if changed else 'NOTHING'}"
    if order.delete_when is None:
        return (
            f"INSERT INTO {target} ({columns}) SELECT DISTINCT ON ({key}) {columns} {where} "
            f"{conflict}"
        )
    # Rows that delete and rows that stay have different keys, so neither part of the statement sees
    # the other. But a row that stays may take over what another unique key of the table has from a
    # row that goes. So the DELETE comes first: what the INSERT reads asks for its count.
    last = (
        f"SELECT DISTINCT ON ({key}) {columns}, coalesce({quote(order.delete_when)}, false) AS "
        f"exactum_gone {where}"
    )
    same = " AND ".join(f"t.{quote(c)} = l.{quote(c)}" for c in order.key)
    gone = f"DELETE FROM {target} t USING last l WHERE l.exactum_gone AND {same} RETURNING 1"
    first = "(SELECT count(*) FROM gone) IS NOT NULL"
    stay = f"SELECT {columns} FROM last WHERE NOT exactum_gone AND {first}"
    return (
        f"WITH last AS MATERIALIZED ({last}), gone AS ({gone}) INSERT INTO {target} ({columns}) "
        f"{stay} {conflict}"
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quote, names))
