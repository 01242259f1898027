"""The text of MySQL's statements: identifiers in it, and the ``.sql`` files beside this."""

from __future__ import annotations

from exactum.sql.statements import Statements
from exactum.sql.table import TableName


def quote(name: str) -> str:
    """In backquotes, for a statement that goes through PyMySQL's substitution."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def quote_table(name: TableName) -> str:
    return quote(name.table) if name.schema is None else f"{quote(name.schema)}.{quote(name.table)}"


sql = Statements("exactum.sql.mysql", quote_table)
