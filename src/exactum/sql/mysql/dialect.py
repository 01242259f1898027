"""MySQL 8 and MariaDB behind the seam ``dialect``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from exactum.sql.dialect import DIRECTORY, Loader, PreparedOnServer, Role, RowMove, Session
from exactum.sql.mysql import catalog as mysql_catalog
from exactum.sql.mysql import clear as mysql_clear
from exactum.sql.mysql import loader as mysql_loader
from exactum.sql.mysql import move as mysql_move
from exactum.sql.mysql import session as mysql_session
from exactum.sql.mysql import types as mysql_types
from exactum.sql.mysql import xa as mysql_xa
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import sql
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
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

    def create_staging(self, session: Session, name: TableName, columns: Sequence[Column]) -> None:
        mysql_catalog.create_staging(_ours(session), name, columns)
        mysql_clear.tidy(_ours(session), name)

    def list_staging(self, session: Session, sibling: TableName, prefix: str) -> list[TableName]:
        return mysql_catalog.list_staging(_ours(session), sibling, prefix)

    def drop_staging(self, session: Session, name: TableName) -> None:
        mysql_clear.drop(_ours(session), name)

    # ---- rows --------------------------------------------------------------------------------

    def loader(
        self,
        session: Session,
        name: TableName,
        columns: Sequence[Column],
        part: int | None,
        first_row: int | None,
    ) -> Loader:
        return mysql_loader.loader(_ours(session), name, columns, part, first_row)

    def move(self, session: Session, move: RowMove) -> int:
        return mysql_move.move(_ours(session), move)

    def count(self, session: Session, staging: TableName, parts: Sequence[int]) -> dict[int, int]:
        if not parts:
            return {}
        rows = session.query(sql("count_parts", staging=staging), (parts,))
        return {int(p): int(n) for p, n in rows}

    def clear(
        self,
        session: Session,
        staging: TableName,
        parts: Sequence[int],
        is_alone: Callable[[], bool],
    ) -> None:
        """TRUNCATE is no part of a transaction here, so ``is_alone`` is not asked: see
        ``mysql_clear``.
        """
        mysql_clear.clear(_ours(session), staging, parts)

    # ---- prepared transactions ---------------------------------------------------------------

    def check_prepared(self, session: Session, where: str) -> None:
        mysql_xa.check(_ours(session), where)

    def begin_prepared(self, session: Session, gid: str) -> None:
        mysql_xa.begin(_ours(session), gid)

    def prepare(self, session: Session, gid: str) -> None:
        mysql_xa.prepare(_ours(session), gid)

    def commit_prepared(self, session: Session, gid: str) -> None:
        mysql_xa.commit(_ours(session), gid)

    def roll_back_prepared(self, session: Session, gid: str) -> None:
        mysql_xa.roll_back(_ours(session), gid)

    def inspect_prepared(self, session: Session) -> list[PreparedOnServer]:
        return [PreparedOnServer(gid) for gid in mysql_xa.everybodys(_ours(session))]

    def list_directories(self, session: Session) -> list[TableName]:
        rows = session.query(sql("list_directories"), (DIRECTORY,))
        return [TableName(str(row[0]), DIRECTORY) for row in rows]

    def list_prepared(self, session: Session, prefix: str) -> list[str]:
        return mysql_xa.listed(_ours(session), prefix)


def _ours(session: Session) -> MySQLSession:
    """Every session that comes back here was made by ``connect``."""
    return cast("MySQLSession", session)
