"""The text of PostgreSQL's statements: identifiers in it, and the ``.sql`` files beside this."""

from __future__ import annotations

from exactum.sql.statements import Statements, unsubstituted
from exactum.sql.table import TableName


def quote(name: str) -> str:
    """An identifier for a statement's text, where a per cent sign is doubled."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def quote_table(name: TableName) -> str:
    return quote(name.table) if name.schema is None else f"{quote(name.schema)}.{quote(name.table)}"


def regclass(name: TableName) -> str:
    """The name as an argument for ``to_regclass`` and ``::regclass``."""
    return unsubstituted(quote_table(name))


sql = Statements("exactum.sql.postgres", quote_table)
