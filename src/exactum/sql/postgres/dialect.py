"""PostgreSQL behind the seam."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.sql.dialect import (
    DIRECTORY,
    Loader,
    PreparedOnServer,
    Role,
    RowMove,
    ServerFailure,
    Session,
    SqlFailure,
)
from exactum.sql.postgres import catalog as postgres_catalog
from exactum.sql.postgres import move as postgres_move
from exactum.sql.postgres import session as postgres_session
from exactum.sql.postgres import types as postgres_types
from exactum.sql.postgres.copy import CopyLoader
from exactum.sql.postgres.session import own
from exactum.sql.postgres.statements import regclass, sql
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sql.checks import Broken

TRUNCATE_BYTES = 1_048_576
"""A staging table above this is truncated rather than deleted from: a TRUNCATE costs some
milliseconds, whatever the size, and a deleted row stays in the file."""


SAVEPOINT = "exactum_truncate"
NO_SLOT = (
    "Every task of an epoch holds one prepared transaction until the decision, so the server "
    "needs room for as many as the write job has tasks, and for those of other queries: raise "
    "max_prepared_transactions and restart the server, write with fewer partitions, or use "
    "mechanism='staged'"
)


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
        return postgres_session.connect(address, role, label, lock_timeout_s)

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

    def create_staging(self, session: Session, name: TableName, columns: Sequence[Column]) -> None:
        postgres_catalog.create_staging(session, name, columns)

    def list_staging(self, session: Session, sibling: TableName, prefix: str) -> list[TableName]:
        return postgres_catalog.list_tables(session, sibling.schema or "public", prefix)

    def drop_staging(self, session: Session, name: TableName) -> None:
        session.execute(sql("lock_staging", staging=name))
        if not session.query(sql("find_staged_row", staging=name)):
            session.execute(sql("drop_staging", staging=name))
        session.commit()

    # ---- rows --------------------------------------------------------------------------------

    def loader(
        self,
        session: Session,
        name: TableName,
        columns: Sequence[Column],
        part: int | None,
        first_row: int | None,
    ) -> Loader:
        return CopyLoader(own(session), name, columns, part, first_row)

    def move(self, session: Session, move: RowMove) -> int:
        return postgres_move.move(session, move)

    def count(self, session: Session, staging: TableName, parts: Sequence[int]) -> dict[int, int]:
        rows = session.query(sql("count_parts", staging=staging), (list(parts),))
        return {int(part): int(count) for part, count in rows}

    def clear(
        self,
        session: Session,
        staging: TableName,
        parts: Sequence[int],
        is_alone: Callable[[], bool],
    ) -> None:
        size = session.query(sql("size_of_staging"), (regclass(staging),))
        if int(size[0][0]) > TRUNCATE_BYTES and _truncated(session, staging, is_alone):
            return
        session.execute(sql("delete_parts", staging=staging), (list(parts),))

    # ---- prepared transactions ---------------------------------------------------------------

    def check_prepared(self, session: Session, where: str) -> None:
        allowed = int(session.query(sql("prepared_max"))[0][0])
        session.rollback()
        if allowed == 0:
            raise SettingRefused(
                "SQL_PREPARED",
                f"{where}: mechanism='prepared' needs prepared transactions, and the server allows "
                "none. Set max_prepared_transactions in postgresql.conf to at least the number of "
                "tasks that write at the same time in all queries (a stopped query's count, too) "
                "and restart PostgreSQL; or use mechanism='staged'.",
            )

    def begin_prepared(self, session: Session, gid: str) -> None:
        session.rollback()  # the first statement begins it; the name is given at its end

    def prepare(self, session: Session, gid: str) -> None:
        try:
            session.execute(sql("prepare", gid=gid))
        except SqlFailure as failure:
            # Out of slots is told as out of memory; no slot at all as a state.
            if failure.code in ("53200", "55000"):
                raise SqlFailure(
                    ServerFailure.BUSY, failure.code, f"{failure.text}. {NO_SLOT}"
                ) from None
            raise

    def commit_prepared(self, session: Session, gid: str) -> None:
        _settle(session, sql("commit_prepared", gid=gid))

    def roll_back_prepared(self, session: Session, gid: str) -> None:
        _settle(session, sql("roll_back_prepared", gid=gid))

    def inspect_prepared(self, session: Session) -> list[PreparedOnServer]:
        rows = session.query(sql("inspect_prepared"))
        return [PreparedOnServer(str(gid), int(ms), str(owner)) for gid, ms, owner in rows]

    def list_directories(self, session: Session) -> list[TableName]:
        rows = session.query(sql("list_directories"), (DIRECTORY,))
        return [TableName(str(row[0]), DIRECTORY) for row in rows]

    def list_prepared(self, session: Session, prefix: str) -> list[str]:
        rows = session.query(sql("list_prepared"), (len(prefix), prefix))
        return [str(row[0]) for row in rows]


def _settle(session: Session, statement: str) -> None:
    try:
        own(session).execute_alone(statement)
    except SqlFailure as failure:
        known = {"42704": ServerFailure.NO_SUCH_PREPARED, "55000": ServerFailure.BUSY}
        raise SqlFailure(
            known.get(failure.code, failure.failure), failure.code, failure.text
        ) from None


def _truncated(session: Session, staging: TableName, is_alone: Callable[[], bool]) -> bool:
    """Whether the table could be had at once and was truncated, in the session's transaction."""
    session.execute(sql("save", savepoint=SAVEPOINT))
    try:
        session.execute(sql("lock_staging", staging=staging))
        if is_alone():
            session.execute(sql("truncate_staging", staging=staging))
            session.execute(sql("keep", savepoint=SAVEPOINT))
            return True
    except SqlFailure as failure:
        if failure.failure not in (ServerFailure.BUSY, ServerFailure.DENIED):
            raise
    session.execute(sql("undo", savepoint=SAVEPOINT))
    return False
