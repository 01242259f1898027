"""The text of PostgreSQL's statements: identifiers in it, and the ``.sql`` files beside this."""

from __future__ import annotations

from exactum.sql.statements import Statements, unsubstituted
from exactum.sql.table import TableName

sql = Statements("exactum.sql.postgres", '"')
quote, quote_table = sql.quote, sql.quote_table


def regclass(name: TableName) -> str:
    """The name as an argument for ``to_regclass`` and ``::regclass``."""
    return unsubstituted(quote_table(name))
