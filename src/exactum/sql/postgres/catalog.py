"""PostgreSQL's catalog: what a table is like, and exactum's own tables in its schema."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import SettingRefused
from exactum.sql.dialect import (
    DECISIONS,
    FLOORS,
    LEDGER,
    ROW,
    UPSERT,
    ServerFailure,
    Session,
    SqlFailure,
)
from exactum.sql.postgres import types as postgres_types
from exactum.sql.postgres.statements import quote, quote_table, regclass, sql
from exactum.sql.postgres.types import CatalogColumn
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Table, TableName

KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}


def read_table(session: Session, name: TableName) -> Table | None:
    """See ``Dialect.read_table``."""
    found = _find_table(session, name)
    if found is None:
        return None
    oid, full, hides_rows = found
    columns = tuple(
        postgres_types.column_of(CatalogColumn(*row))
        for row in session.query(sql("list_columns"), (oid,))
    )
    return Table(full, columns, list_unique_keys(session, full), hides_rows)


def check_table(session: Session, name: TableName) -> bool:
    """See ``Dialect.check_table``."""
    found = _find_table(session, name)
    return found is not None and found[2]


def _find_table(session: Session, name: TableName) -> tuple[int, TableName, bool] | None:
    """Its number, its name with the true schema, and whether policies hide rows of it.

    Raises:
        SettingRefused: it cannot hold the guarantee.
    """
    found = session.query(sql("find_table"), (regclass(name),))
    if not found:
        return None
    oid, schema, kind, persistence, partition, rule, hides_rows = found[0]
    full = TableName(str(schema), name.table)
    if kind not in ("r", "p"):
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"{full} is not an ordinary table but {KINDS.get(str(kind), 'something else')} "
            f"(pg_class.relkind {kind!r}): exactum writes to tables and partitioned tables.",
        )
    if persistence != "p":
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"The table {full} is UNLOGGED or temporary: PostgreSQL empties it after a crash, so "
            f"nothing could be promised of it. ALTER TABLE {regclass(full)} SET LOGGED, or use "
            "another table.",
        )
    if partition is not None:
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"The partition {partition} of the table {full} is UNLOGGED, which PostgreSQL empties "
            "after a crash, or lies on another server, which commits by itself: nothing could be "
            f"promised of its rows. ALTER TABLE {partition} SET LOGGED, or detach it.",
        )
    if rule is not None:
        raise SettingRefused(
            "SQL_TABLE_KIND",
            f"The table {full} has the rule {rule!r}, ON INSERT DO INSTEAD: rows would go "
            "elsewhere or nowhere, and PostgreSQL does not say so. Write to the table where they "
            f"are to be; or drop the rule: DROP RULE {quote(str(rule))} ON {regclass(full)}.",
        )
    return int(oid), full, bool(hides_rows)


def list_types(session: Session, name: TableName) -> dict[str, str]:
    """See ``Dialect.list_types``."""
    rows = session.query(sql("list_types"), (regclass(name),))
    return {str(column): str(type_) for column, type_ in rows}


def list_unique_keys(session: Session, name: TableName) -> tuple[frozenset[str], ...]:
    """See ``Dialect.list_unique_keys``."""
    rows = session.query(sql("list_unique_keys"), (regclass(name),))
    return tuple(sorted((frozenset(row[0]) for row in rows), key=sorted))


def create_target(
    session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
) -> None:
    """``CREATE TABLE target (column type [NOT NULL], ..., PRIMARY KEY (key, ...))``."""
    lines = [f"{quote(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    _create(session, name, _table_of(name, lines))


def create_own(session: Session, sibling: TableName) -> None:
    _create_named(session, "create_ledger", sibling.sibling(LEDGER))


def create_decisions(session: Session, schema: str | None) -> None:
    _create_named(session, "create_decisions", TableName(schema, DECISIONS))
    _create_named(session, "create_floors", TableName(schema, FLOORS))


def create_upsert_table(session: Session, columns: Sequence[Column]) -> TableName:
    """``CREATE TEMPORARY TABLE exactum_upsert (exactum_row bigint, column type, ...) ON COMMIT
    DROP``: it goes with its transaction, which may have made one for other columns before.
    """
    name = TableName("pg_temp", UPSERT)
    session.execute(sql("drop_upsert_table"))
    lines = [
        f"{ROW} bigint",
        *(f"{quote(c.name)} {c.type.replace('%', '%%')}" for c in columns),
    ]
    session.execute(f"CREATE TEMPORARY TABLE {quote(UPSERT)} ({', '.join(lines)}) ON COMMIT DROP")
    return name


def _table_of(name: TableName, lines: Sequence[str]) -> str:
    return f"CREATE TABLE IF NOT EXISTS {quote_table(name)} ({', '.join(lines)})"


def _create_named(session: Session, statement: str, name: TableName) -> None:
    _create(session, name, sql(statement, table=name))


def _create(session: Session, name: TableName, statement: str) -> None:
    """Unless the table exists, which is looked up first. Commits."""
    if not session.query(sql("is_there"), (regclass(name),)):
        try:
            session.execute(statement)
        except SqlFailure as failure:
            session.rollback()
            if failure.failure is ServerFailure.DENIED:
                raise SettingRefused(
                    "SQL_ACCESS",
                    f"exactum needs a table {name} and may not create it: {failure}. GRANT CREATE "
                    f"ON SCHEMA {quote(name.schema or 'public')} to this user, or have it created: "
                    f"{unsubstituted(statement)}; with SELECT, INSERT, UPDATE, DELETE, TRUNCATE on "
                    "it for this user.",
                ) from None
            raise
    session.commit()


def count_lagging_standbys(session: Session) -> int:
    """See ``Dialect.lagging_standbys``."""
    (found,) = session.query(sql("count_lagging_standbys"))
    session.rollback()
    return int(found[0])
