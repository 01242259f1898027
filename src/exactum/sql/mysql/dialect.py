"""MySQL 8 and MariaDB behind the seam ``dialect``. A schema is a database here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from exactum.errors import SettingRefused
from exactum.sql.dialect import Dialect, Role, RowEncoder, RowMove, Session
from exactum.sql.mysql import loader as mysql_loader
from exactum.sql.mysql import types as mysql_types
from exactum.sql.mysql.move import upsert
from exactum.sql.mysql.session import MySQLSession, connect
from exactum.sql.mysql.statements import quote, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame

_COLUMN_FACTS = (
    "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA",
    "GENERATION_EXPRESSION", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE",
    "DATETIME_PRECISION", "CHARACTER_SET_NAME", "COLLATION_NAME",
)  # fmt: skip
"""What the statement ``list_columns`` asks for, in its order."""
TABLES = ("BASE TABLE", "SYSTEM VERSIONED")
"""Kinds of tables, the second one of MariaDB; it also has SEQUENCE, and both VIEW."""


@dataclass(frozen=True)
class MySQLDialect(Dialect):
    """See ``Dialect``."""

    name = "MySQL"
    scheme = "mysql"
    way_to_wait_for_standbys = (
        "Switch semi-synchronous replication on, with AFTER_SYNC as "
        "rpl_semi_sync_master_wait_point (rpl_semi_sync_source_wait_point in MySQL)"
    )
    upserts_by_any_key = True
    kinds_taken = mysql_types.TAKES
    sql = sql
    table_options = "ENGINE=InnoDB"
    temporary_options = "ENGINE=InnoDB"
    temporary_schema = None

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        return connect(address, role, label, lock_timeout_s)

    # ---- the catalog -------------------------------------------------------------------------

    def read_table(self, session: Session, name: TableName) -> Table | None:
        found = session.query(sql("find_table"), self.arguments_of(name))
        if not found:
            return None
        schema, table, table_type, engine = found[0]
        is_table = table_type in TABLES
        if not is_table or str(engine).lower() != "innodb":
            what = f"of the engine {engine}" if is_table else f"a {str(table_type).lower()}"
            mend = "Convert it (ALTER TABLE ... ENGINE=InnoDB), or write" if is_table else "Write"
            raise SettingRefused(
                "SQL_TABLE_KIND",
                f"{name} at {_ours(session).address.where} is {what}; only InnoDB tables hold "
                f"transactions. {mend} to another table.",
            )
        full = TableName(str(schema), str(table))
        rows = session.query(sql("list_columns"), self.arguments_of(full))
        json = self._json_columns(session, full)
        described = (dict(zip(_COLUMN_FACTS, row, strict=True)) for row in rows)
        columns = tuple(mysql_types.column_from(row, json) for row in described)
        return Table(full, columns, self._unique_keys(session, full))

    def _json_columns(self, session: Session, name: TableName) -> frozenset[str]:
        """MariaDB's JSON is text with a CHECK, under the column's name."""
        if not _ours(session).is_mariadb:
            return frozenset()
        rows = session.query(sql("list_checks"), self.arguments_of(name))
        clauses = {(str(column), str(clause).lower()) for column, clause in rows}
        return frozenset(
            c for c, clause in clauses if clause == f"json_valid({unsubstituted(quote(c))})".lower()
        )

    def _unique_keys(self, session: Session, name: TableName) -> tuple[frozenset[str], ...]:
        """An upsert hits those over the beginning of a column or over an expression, too. Such a
        one stands here as a set that no list of columns can equal.
        """
        rows = session.query(sql("list_unique_keys"), self.arguments_of(name))
        keys: dict[str, set[str]] = {}
        for index, column, prefix in rows:
            whole = column is not None and prefix is None
            keys.setdefault(str(index), set()).add(
                str(column) if whole else f"part of {column or 'an expression'}"
            )
        return tuple(frozenset(key) for key in keys.values())

    def arguments_of(self, name: TableName) -> tuple[object, ...]:
        return (name.schema, name.table)

    def can_name(self, name: str) -> bool:
        return mysql_types.can_name(name)

    def type_for(self, spark_type: str, in_key: bool) -> str | None:
        return mysql_types.type_for(spark_type, in_key)

    def lagging_standbys(self, session: Session) -> int:
        """Whoever reads the binary log counts as a standby."""
        status = {
            str(name).lower(): str(value) for name, value in session.query(sql("read_replication"))
        }
        points = {str(value) for _, value in session.query(sql("read_wait_point"))}
        roles = ("master", "source")
        waits = any(status.get(f"rpl_semi_sync_{role}_status") == "ON" for role in roles)
        if waits and points == {"AFTER_SYNC"}:
            return 0
        (found,) = session.query(sql("count_binlog_readers"))
        return max(int(found[0]), int(status.get("slaves_connected", 0)))

    # ---- rows --------------------------------------------------------------------------------

    def load_facts(self, session: Session) -> Mapping[str, Any]:
        return mysql_loader.load_facts(_ours(session))

    def encoder(
        self,
        columns: Sequence[Column],
        kinds: Sequence[Any] | None,
        first_row: int | None,
        facts: Mapping[str, Any],
    ) -> RowEncoder:
        return mysql_loader.encoder(columns, first_row, facts)

    def load(
        self, session: Session, table: TableName, header: str, frames: Iterator[Frame]
    ) -> None:
        mysql_loader.load(_ours(session), table, header, frames)

    def upsert(self, session: Session, move: RowMove) -> None:
        upsert(session, move)

    def check_constraints(self, session: Session) -> None:
        """No constraint is deferred here."""


def _ours(session: Session) -> MySQLSession:
    """Every session that comes back here was made by ``connect``."""
    return cast("MySQLSession", session)
