"""The text of MySQL's statements: identifiers in it, and the ``.sql`` files beside this."""

from __future__ import annotations

from exactum.sql.statements import Statements

sql = Statements("exactum.sql.mysql", "`")
quote, quote_table = sql.quote, sql.quote_table
