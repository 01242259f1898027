"""How a kind of server writes names in a statement, for commands with statements of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from exactum.sql.dialect import Dialect
from exactum.sql.table import TableName


@dataclass(frozen=True)
class Quoting:
    """``name`` is for a column, ``table`` for a table with its schema."""

    name: Callable[[str], str]
    table: Callable[[TableName], str]


def quoting_of(dialect: Dialect) -> Quoting:
    """That of the dialect's own statements."""
    if dialect.scheme == "postgres":
        from exactum.sql.postgres import statements as postgres

        return Quoting(postgres.quote, postgres.quote_table)
    from exactum.sql.mysql import statements as mysql

    return Quoting(mysql.quote, mysql.quote_table)
