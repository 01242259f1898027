"""Identifiers in MySQL's statements."""

from __future__ import annotations

from exactum.sql.table import TableName


def quote(name: str) -> str:
    """In backquotes, for a statement that goes through PyMySQL's substitution."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def quote_table(name: TableName) -> str:
    return quote(name.table) if name.schema is None else f"{quote(name.schema)}.{quote(name.table)}"


def unsubstituted(quoted: str) -> str:
    """``quoted`` for a statement that is sent as it is."""
    return quoted.replace("%%", "%")
