"""PostgreSQL behind the seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import RefusedRow, Role, RowEncoder, RowMove, Session
from exactum.sql.postgres import catalog as postgres_catalog
from exactum.sql.postgres import copy as postgres_copy
from exactum.sql.postgres import move as postgres_move
from exactum.sql.postgres import session as postgres_session
from exactum.sql.postgres import types as postgres_types
from exactum.sql.postgres.session import own
from exactum.sql.postgres.statements import sql
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame
    from exactum.sql.checks import Broken


@dataclass(frozen=True)
class PostgresDialect:
    """See ``Dialect``. PostgreSQL 12 and later."""

    @property
    def name(self) -> str:
        return "PostgreSQL"

    @property
    def scheme(self) -> str:
        return "postgres"

    @property
    def way_to_wait_for_standbys(self) -> str:
        return "Set synchronous_standby_names on the server"

    @property
    def upserts_by_any_key(self) -> bool:
        return False

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        return postgres_session.connect(address, label, lock_timeout_s)

    def sql(self, name: str, /, **places: TableName | str) -> str:
        return sql(name, **places)

    # ---- the catalog -------------------------------------------------------------------------

    def read_table(self, session: Session, name: TableName) -> Table | None:
        return postgres_catalog.read_table(session, name)

    def check_table(self, session: Session, name: TableName) -> bool:
        return postgres_catalog.check_table(session, name)

    def list_types(self, session: Session, name: TableName) -> dict[str, str]:
        return postgres_catalog.list_types(session, name)

    def list_unique_keys(self, session: Session, name: TableName) -> tuple[frozenset[str], ...]:
        return postgres_catalog.list_unique_keys(session, name)

    def can_name(self, name: str) -> bool:
        return 0 < len(name.encode()) <= postgres_types.NAME_BYTES and "\0" not in name

    def column_of(self, name: str, spark_type: str, in_key: bool) -> Column | None:
        sql_type = postgres_types.type_for(spark_type)
        return (
            None if sql_type is None else Column(name, sql_type, postgres_types.kind_of(sql_type))
        )

    def takes(self, column: Column, spark_type: str) -> bool:
        return postgres_types.takes(column, spark_type)

    def broken(self, column: Column, values: Any) -> Iterator[Broken]:
        from exactum.sql.postgres.checks import broken

        return broken(column, values)

    def create_table(
        self, session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
    ) -> None:
        postgres_catalog.create_target(session, name, columns, key)

    def create_own_tables(self, session: Session, sibling: TableName) -> None:
        postgres_catalog.create_own(session, sibling)

    def create_decision_tables(self, session: Session, schema: str | None) -> None:
        postgres_catalog.create_decisions(session, schema)

    def lagging_standbys(self, session: Session) -> int:
        return postgres_catalog.count_lagging_standbys(session)

    # ---- rows --------------------------------------------------------------------------------

    def load_facts(self, session: Session) -> Mapping[str, Any]:
        return {}

    def encoder(
        self,
        columns: Sequence[Column],
        kinds: Sequence[Any] | None,
        first_row: int | None,
        facts: Mapping[str, Any],
    ) -> RowEncoder:
        return postgres_copy.CopyEncoder(columns, kinds, first_row)

    def load(
        self, session: Session, table: TableName, header: str, frames: Iterator[Frame]
    ) -> None:
        postgres_copy.load(own(session), table, header, frames)

    def load_accepted(
        self,
        session: Session,
        table: TableName,
        header: str,
        frames: Iterator[Frame],
        refused_max: int,
    ) -> Sequence[RefusedRow]:
        from exactum.sql.postgres.judged import load_accepted

        return load_accepted(own(session), table, header, frames, refused_max)

    def create_upsert_table(self, session: Session, columns: Sequence[Column]) -> TableName:
        return postgres_catalog.create_upsert_table(session, columns)

    def upsert(self, session: Session, move: RowMove) -> None:
        session.execute(postgres_move.upsert(move))

    def check_constraints(self, session: Session) -> None:
        session.execute(sql("check_constraints"))
