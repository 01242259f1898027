"""Tables of MySQL and MariaDB: reading the target's, making exactum's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exactum.errors import SettingRefused
from exactum.sql.dialect import DECISIONS, FLOORS, LEDGER, ROW, UPSERT
from exactum.sql.mysql.charsets import charset
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import quote, quote_table, sql
from exactum.sql.mysql.types import column_from, declaration, filling
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Table, TableName

_COLUMN_FACTS = (
    "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA",
    "GENERATION_EXPRESSION", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE",
    "DATETIME_PRECISION", "CHARACTER_SET_NAME", "COLLATION_NAME",
)  # fmt: skip
"""What the statement ``list_columns`` asks for, in its order."""
TABLES = ("BASE TABLE", "SYSTEM VERSIONED")
"""Kinds of tables, the second one of MariaDB; it also has SEQUENCE, and both VIEW."""


def read_table(session: MySQLSession, name: TableName) -> Table | None:
    """See ``dialect``.

    Raises:
        SettingRefused: it is a view, or its engine has no transactions.
    """
    true_name = _find_table(session, name)
    if true_name is None:
        return None
    described = _described(session, true_name)
    names = {str(d["CHARACTER_SET_NAME"]) for d in described if d["CHARACTER_SET_NAME"]}
    charsets = {name: charset(session, name) for name in sorted(names)}
    json = _json_columns(session, true_name)
    columns = tuple(column_from(d, charsets, json) for d in described)
    return Table(true_name, columns, list_unique_keys(session, true_name))


def check_table(session: MySQLSession, name: TableName) -> None:
    """See ``Dialect.check_table``."""
    try:
        _find_table(session, name)
    except SettingRefused as refused:
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"{refused} It was of InnoDB when the query started. Rows that were written since "
            "could not be undone: before the next start, look for rows of this query that are "
            "there twice.",
        ) from None


def _find_table(session: MySQLSession, name: TableName) -> TableName | None:
    """Its name as the server has it.

    Raises:
        SettingRefused: it is a view, or its engine has no transactions.
    """
    found = session.query(sql("find_table"), (name.schema, name.table))
    if not found:
        return None
    schema, table, table_type, engine = found[0]
    is_table = table_type in TABLES
    if not is_table or str(engine).lower() != "innodb":
        what = f"of the engine {engine}" if is_table else f"a {str(table_type).lower()}"
        convert = "Convert it (ALTER TABLE ... ENGINE=InnoDB), or write" if is_table else "Write"
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"{name} at {session.address.where} is {what}; only InnoDB tables hold transactions. "
            f"{convert} to another table.",
        )
    return TableName(str(schema), str(table))


def list_types(session: MySQLSession, name: TableName) -> dict[str, str]:
    """See ``Dialect.list_types``."""
    described = _described(session, name)
    return {str(one["COLUMN_NAME"]): declaration(one) + filling(one) for one in described}


def _described(session: MySQLSession, name: TableName) -> list[dict[str, Any]]:
    rows = session.query(sql("list_columns"), (name.schema, name.table))
    return [dict(zip(_COLUMN_FACTS, row, strict=True)) for row in rows]


def _json_columns(session: MySQLSession, name: TableName) -> frozenset[str]:
    """MariaDB's JSON is text with a CHECK, under the column's name."""
    if not session.is_mariadb:
        return frozenset()
    rows = session.query(sql("list_checks"), (name.schema, name.table))
    clauses = {(str(column), str(clause).lower()) for column, clause in rows}
    return frozenset(
        c for c, clause in clauses if clause == f"json_valid({unsubstituted(quote(c))})".lower()
    )


def list_unique_keys(session: MySQLSession, name: TableName) -> tuple[frozenset[str], ...]:
    """See ``Dialect.list_unique_keys``: an upsert hits those over the beginning of a column or over
    an expression, too. Such a one stands here as a set that no list of columns can equal.
    """
    rows = session.query(sql("list_unique_keys"), (name.schema, name.table))
    keys: dict[str, set[str]] = {}
    for index, column, prefix in rows:
        whole = column is not None and prefix is None
        keys.setdefault(str(index), set()).add(
            str(column) if whole else f"part of {column or 'an expression'}"
        )
    return tuple(frozenset(key) for key in keys.values())


def create_table(
    session: MySQLSession, name: TableName, columns: Sequence[Column], key: Sequence[str]
) -> None:
    """See ``dialect``. ``CREATE TABLE target (column type {NULL | NOT NULL}, ..., PRIMARY KEY (key,
    ...)) ENGINE=InnoDB``.
    """
    lines = [
        f"{quote(c.name)} {c.type.replace('%', '%%')} {'NULL' if c.nullable else 'NOT NULL'}"
        for c in columns
    ]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    _create(session, name, _table_of(name, lines))


def create_own_tables(session: MySQLSession, sibling: TableName) -> None:
    """See ``dialect``."""
    _create_named(session, "create_ledger", sibling.sibling(LEDGER))


def create_decision_tables(session: MySQLSession, schema: str | None) -> None:
    """See ``dialect``."""
    _create_named(session, "create_decisions", TableName(schema, DECISIONS))
    _create_named(session, "create_floors", TableName(schema, FLOORS))


def create_upsert_table(session: MySQLSession, columns: Sequence[Column]) -> TableName:
    """``CREATE TEMPORARY TABLE exactum_upsert (exactum_row bigint, column type NULL, ...)
    ENGINE=InnoDB``. It commits nothing, and stays until it is dropped or the session ends.
    """
    name = TableName(None, UPSERT)
    session.execute(sql("drop_upsert_table"))
    lines = [f"{quote(ROW)} bigint NOT NULL"]
    lines += [f"{quote(c.name)} {c.type.replace('%', '%%')} NULL" for c in columns]
    session.execute(
        f"CREATE TEMPORARY TABLE {quote_table(name)} ({', '.join(lines)}) ENGINE=InnoDB"
    )
    return name


def _create_named(session: MySQLSession, statement: str, name: TableName) -> None:
    _create(session, name, sql(statement, table=name))


def _table_of(name: TableName, lines: Sequence[str]) -> str:
    return f"CREATE TABLE IF NOT EXISTS {quote_table(name)} ({', '.join(lines)}) ENGINE=InnoDB"


def _create(session: MySQLSession, name: TableName, statement: str) -> None:
    """Unless the table exists, which is looked up first."""
    if not session.query(sql("is_there"), (name.schema, name.table)):
        session.execute(statement)
    session.commit()


def count_lagging_standbys(session: MySQLSession) -> int:
    """See ``Dialect.lagging_standbys``. Whoever reads the binary log counts as a standby."""
    status = {
        str(name).lower(): str(value) for name, value in session.query(sql("read_replication"))
    }
    points = {str(value) for _, value in session.query(sql("read_wait_point"))}
    waits = any(status.get(f"rpl_semi_sync_{role}_status") == "ON" for role in ("master", "source"))
    if waits and points == {"AFTER_SYNC"}:
        return 0
    (found,) = session.query(sql("count_binlog_readers"))
    return max(int(found[0]), int(status.get("slaves_connected", 0)))
