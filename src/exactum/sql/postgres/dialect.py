"""PostgreSQL behind the seam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.sql.dialect import Dialect, RefusedRow, Role, RowEncoder, RowMove, Session
from exactum.sql.postgres import copy as postgres_copy
from exactum.sql.postgres import types as postgres_types
from exactum.sql.postgres.move import upsert
from exactum.sql.postgres.session import connect, own
from exactum.sql.postgres.statements import quote, regclass, sql
from exactum.sql.table import Column, Kind, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame

KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    """See ``Dialect``. PostgreSQL 12 and later."""

    name = "PostgreSQL"
    scheme = "postgres"
    way_to_wait_for_standbys = "Set synchronous_standby_names on the server"
    upserts_by_any_key = False
    kinds_taken = postgres_types.TAKES
    sql = sql
    table_options = ""
    temporary_schema = "pg_temp"
    temporary_options = "ON COMMIT DROP"
    """It goes with its transaction, which may have made one for other columns before."""

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        return connect(address, label, lock_timeout_s)

    # ---- the catalog -------------------------------------------------------------------------

    def read_table(self, session: Session, name: TableName) -> Table | None:
        found = session.query(sql("find_table"), self.arguments_of(name))
        if not found:
            return None
        oid, schema, kind, persistence, partition, rule, hides_rows = found[0]
        full = TableName(str(schema), name.table)
        refusal = _unfit(full, str(kind), str(persistence), partition, rule)
        if refusal is not None:
            raise SettingRefused("SQL_TABLE_KIND", refusal)
        columns = session.query(sql("list_columns"), (oid,))
        keys = session.query(sql("list_unique_keys"), self.arguments_of(full))
        return Table(
            full,
            tuple(postgres_types.column_of(postgres_types.CatalogColumn(*row)) for row in columns),
            tuple(sorted((frozenset(row[0]) for row in keys), key=sorted)),
            bool(hides_rows),
        )

    def arguments_of(self, name: TableName) -> tuple[object, ...]:
        return (regclass(name),)

    def can_name(self, name: str) -> bool:
        return 0 < len(name.encode()) <= postgres_types.NAME_BYTES and "\0" not in name

    def type_for(self, spark_type: str, in_key: bool) -> str | None:
        return postgres_types.type_for(spark_type)

    def takes(self, column: Column, spark_type: str) -> bool:
        """An array takes what its elements take."""
        element = postgres_types.element_of(spark_type)
        if element is None or column.element is None:
            return super().takes(column, spark_type)
        return column.element.kind is not Kind.JSON and self.takes(column.element, element)

    def base_of(self, spark_type: str) -> str:
        return postgres_types.base_of(spark_type)

    def lagging_standbys(self, session: Session) -> int:
        (found,) = session.query(sql("count_lagging_standbys"))
        session.rollback()
        return int(found[0])

    # ---- rows --------------------------------------------------------------------------------

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
        return postgres_copy.load_accepted(own(session), table, header, frames, refused_max)

    def upsert(self, session: Session, move: RowMove) -> None:
        session.execute(upsert(move))

    def check_constraints(self, session: Session) -> None:
        session.execute(sql("check_constraints"))


def _unfit(
    table: TableName, kind: str, persistence: str, partition: str | None, rule: str | None
) -> str | None:
    """Why the table cannot hold the guarantee; None if it can."""
    if kind not in ("r", "p"):
        return (
            f"{table} is not an ordinary table but {KINDS.get(kind, 'something else')} "
            f"(pg_class.relkind {kind!r}): exactum writes to tables and partitioned tables."
        )
    if persistence != "p":
        return (
            f"The table {table} is UNLOGGED or temporary: PostgreSQL empties it after a crash, so "
            f"nothing could be promised of it. ALTER TABLE {regclass(table)} SET LOGGED, or use "
            "another table."
        )
    if partition is not None:
        return (
            f"The partition {partition} of the table {table} is UNLOGGED, which PostgreSQL empties "
            "after a crash, or lies on another server, which commits by itself: nothing could be "
            f"promised of its rows. ALTER TABLE {partition} SET LOGGED, or detach it."
        )
    if rule is not None:
        return (
            f"The table {table} has the rule {rule!r}, ON INSERT DO INSTEAD: rows would go "
            "elsewhere or nowhere, and PostgreSQL does not say so. Write to the table where they "
            f"are to be; or drop the rule: DROP RULE {quote(rule)} ON {regclass(table)}."
        )
    return None
