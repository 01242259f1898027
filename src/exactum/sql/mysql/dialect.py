"""MySQL 8 and MariaDB behind the seam ``dialect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from exactum.errors import InvariantBroken
from exactum.sql.dialect import RefusedRow, Role, RowEncoder, RowMove, Session
from exactum.sql.mysql import catalog as mysql_catalog
from exactum.sql.mysql import loader as mysql_loader
from exactum.sql.mysql import move as mysql_move
from exactum.sql.mysql import session as mysql_session
from exactum.sql.mysql import types as mysql_types
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import sql
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame
    from exactum.sql.checks import Broken


@dataclass(frozen=True)
class MySQLDialect:
    """See ``dialect.Dialect``, which documents every method. A schema is a database here."""

    @property
    def name(self) -> str:
        return "MySQL"

    @property
    def scheme(self) -> str:
        return "mysql"

    @property
    def way_to_wait_for_standbys(self) -> str:
        return (
            "Switch semi-synchronous replication on, with AFTER_SYNC as "
            "rpl_semi_sync_master_wait_point (rpl_semi_sync_source_wait_point in MySQL)"
        )

    @property
    def upserts_by_any_key(self) -> bool:
        return True

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        return mysql_session.connect(address, role, label, lock_timeout_s)

    def sql(self, name: str, /, **places: TableName | str) -> str:
        return sql(name, **places)

    # ---- the catalog -------------------------------------------------------------------------

    def read_table(self, session: Session, name: TableName) -> Table | None:
        return mysql_catalog.read_table(_ours(session), name)

    def check_table(self, session: Session, name: TableName) -> bool:
        mysql_catalog.check_table(_ours(session), name)
        return False

    def list_types(self, session: Session, name: TableName) -> dict[str, str]:
        return mysql_catalog.list_types(_ours(session), name)

    def list_unique_keys(self, session: Session, name: TableName) -> tuple[frozenset[str], ...]:
        return mysql_catalog.list_unique_keys(_ours(session), name)

    def can_name(self, name: str) -> bool:
        return mysql_types.can_name(name)

    def column_of(self, name: str, spark_type: str, in_key: bool) -> Column | None:
        return mysql_types.column_of(name, spark_type, in_key)

    def takes(self, column: Column, spark_type: str) -> bool:
        return mysql_types.takes(column, spark_type)

    def broken(self, column: Column, values: Any) -> Iterator[Broken]:
        from exactum.sql.mysql.checks import broken

        return broken(column, values)

    def create_table(
        self, session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
    ) -> None:
        mysql_catalog.create_table(_ours(session), name, columns, key)

    def create_own_tables(self, session: Session, sibling: TableName) -> None:
        mysql_catalog.create_own_tables(_ours(session), sibling)

    def create_decision_tables(self, session: Session, schema: str | None) -> None:
        mysql_catalog.create_decision_tables(_ours(session), schema)

    def lagging_standbys(self, session: Session) -> int:
        return mysql_catalog.count_lagging_standbys(_ours(session))

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

    def load_accepted(
        self,
        session: Session,
        table: TableName,
        header: str,
        frames: Iterator[Frame],
        refused_max: int,
    ) -> Sequence[RefusedRow]:
        raise InvariantBroken("MySQL has no column of which it alone knows what it takes.")

    def create_upsert_table(self, session: Session, columns: Sequence[Column]) -> TableName:
        return mysql_catalog.create_upsert_table(_ours(session), columns)

    def upsert(self, session: Session, move: RowMove) -> None:
        mysql_move.upsert(_ours(session), move)

    def check_constraints(self, session: Session) -> None:
        """No constraint is deferred here."""


def _ours(session: Session) -> MySQLSession:
    """Every session that comes back here was made by ``connect``."""
    return cast("MySQLSession", session)
