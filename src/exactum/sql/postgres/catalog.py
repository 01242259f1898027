"""PostgreSQL's catalog: what a table is like, and exactum's own tables in its schema."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import SettingRefused
from exactum.sql.dialect import (
    DECISIONS,
    DIRECTORY,
    FLOORS,
    LEDGER,
    PART,
    ROW,
    ServerFailure,
    Session,
    SqlFailure,
)
from exactum.sql.postgres import types as postgres_types
from exactum.sql.postgres.types import CatalogColumn
from exactum.sql.table import Column, Table, TableName

TABLE = """
SELECT c.oid::bigint, n.nspname, c.relkind::text, c.relpersistence::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""

COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod)
        || CASE WHEN a.attcollation <> t.typcollation AND co.collname IS NOT NULL
           THEN ' COLLATE ' || quote_ident(cn.nspname) || '.' || quote_ident(co.collname)
           ELSE '' END,
    b.typname, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
    (SELECT array_agg(l.enumlabel::text ORDER BY l.enumsortorder)
        FROM pg_enum l WHERE l.enumtypid = b.oid),
    e.typname,
    (SELECT array_agg(l.enumlabel::text ORDER BY l.enumsortorder)
        FROM pg_enum l WHERE l.enumtypid = e.oid),
    a.attnotnull OR t.typnotnull, a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL,
    a.attgenerated <> '' OR a.attidentity = 'a',
    t.typtype = 'd'
        OR current_setting('server_encoding') <> 'UTF8'
            AND (a.attcollation <> 0 OR b.typname IN ('json', 'jsonb'))
FROM pg_attribute a
    JOIN pg_type t ON t.oid = a.atttypid
    JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
    LEFT JOIN pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
    LEFT JOIN pg_collation co ON co.oid = a.attcollation
    LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace
WHERE a.attrelid = %s::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""

UNIQUE_KEYS = """
SELECT array_agg(a.attname::text)
FROM pg_index i CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indrelid = %s::bigint::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
    AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
GROUP BY i.indexrelid
"""

LEDGER_COLUMNS = """
    scope text COLLATE "C" NOT NULL, batch_id bigint NOT NULL, identity text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL, attempt integer NOT NULL, row_count bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY (scope, batch_id, identity)
"""
DIRECTORY_COLUMNS = """
    scope text COLLATE "C" NOT NULL, identity text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL, batch_id bigint NOT NULL, attempt integer NOT NULL,
    staging text COLLATE "C" NOT NULL, part bigint NOT NULL, row_count bigint NOT NULL,
    PRIMARY KEY (scope, identity)
"""
DECISION_COLUMNS = """
    query_id text COLLATE "C" NOT NULL, batch_id bigint NOT NULL, attempt integer NOT NULL,
    record text NOT NULL,
    PRIMARY KEY (query_id, batch_id, attempt)
"""
FLOOR_COLUMNS = 'query_id text COLLATE "C" NOT NULL PRIMARY KEY, floor bigint NOT NULL'


def quote(name: str) -> str:
    """An identifier for a statement's text, where a per cent sign is doubled."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


def quote_table(name: TableName) -> str:
    return quote(name.table) if name.schema is None else f"{quote(name.schema)}.{quote(name.table)}"


def regclass(name: TableName) -> str:
    """The name as an argument for ``to_regclass`` and ``::regclass``."""
    return quote_table(name).replace("%%", "%")


def read_table(session: Session, name: TableName) -> Table | None:
    """See ``Dialect.read_table``."""
    found = session.query(TABLE, (regclass(name),))
    if not found:
        return None
    oid, schema, kind, persistence = found[0]
    full = TableName(str(schema), name.table)
    if kind not in ("r", "p"):
        raise SettingRefused(
            f"{full} is not an ordinary table (pg_class.relkind {kind!r}): exactum writes to "
            "tables and partitioned tables."
        )
    if persistence != "p":
        raise SettingRefused(
            f"The table {full} is UNLOGGED or temporary: PostgreSQL empties it after a crash, so "
            f"nothing could be promised of it. ALTER TABLE {regclass(full)} SET LOGGED, or use "
            "another table."
        )
    columns = tuple(
        postgres_types.column_of(CatalogColumn(*row)) for row in session.query(COLUMNS, (oid,))
    )
    keys = tuple(
        sorted((frozenset(row[0]) for row in session.query(UNIQUE_KEYS, (oid,))), key=sorted)
    )
    return Table(full, columns, keys)


def create_target(
    session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
) -> None:
    lines = [f"{quote(c.name)} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in columns]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    create(session, name, ", ".join(lines))


def create_own(session: Session, sibling: TableName) -> None:
    create(session, sibling.sibling(LEDGER), LEDGER_COLUMNS)
    create(session, sibling.sibling(DIRECTORY), DIRECTORY_COLUMNS)


def create_decisions(session: Session, schema: str | None) -> None:
    create(session, TableName(schema, DECISIONS), DECISION_COLUMNS)
    create(session, TableName(schema, FLOORS), FLOOR_COLUMNS)


def create_staging(session: Session, name: TableName, columns: Sequence[Column]) -> None:
    """Without autovacuum: it is emptied by TRUNCATE, and a vacuum would only stand in the way of
    that.
    """
    lines = [
        f"{PART} bigint",
        f"{ROW} bigint",
        *(f"{quote(c.name)} {c.type.replace('%', '%%')}" for c in columns),
    ]
    create(
        session,
        name,
        ", ".join(lines),
        " WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false)",
    )


def create(session: Session, name: TableName, columns: str, options: str = "") -> None:
    """Unless it exists, which is looked up first: IF NOT EXISTS asks for the right to create all
    the same. Commits.
    """
    if not session.query("SELECT 1 WHERE to_regclass(%s) IS NOT NULL", (regclass(name),)):
        try:
            session.execute(f"CREATE TABLE IF NOT EXISTS {quote_table(name)} ({columns}){options}")
        except SqlFailure as failure:
            session.rollback()
            if failure.failure is ServerFailure.DENIED:
                text = " ".join(columns.replace("%%", "%").split())
                raise SettingRefused(
                    f"exactum needs a table {name} and may not create it: {failure}. GRANT CREATE "
                    f"ON SCHEMA {quote(name.schema or 'public')} to this user, or have it created: "
                    f"CREATE TABLE {regclass(name)} ({text}){options}; with SELECT, INSERT, "
                    "DELETE, TRUNCATE on it for this user."
                ) from None
            raise
    session.commit()


def list_tables(session: Session, schema: str, prefix: str) -> list[TableName]:
    rows = session.query(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relkind = 'r' AND left(c.relname, %s) = %s",
        (schema, len(prefix), prefix),
    )
    return [TableName(schema, str(row[0])) for row in rows]


def count_lagging_standbys(session: Session) -> int:
    """See ``Dialect.lagging_standbys``. Needs no rights: who may not monitor sees the senders, not
    how they go.

    A subscriber to logical changes is no standby.
    """
    (found,) = session.query(
        "SELECT count(*) FROM pg_stat_replication sender WHERE "
        "current_setting('synchronous_standby_names') = '' AND NOT EXISTS (SELECT 1 FROM "
        "pg_replication_slots slot WHERE slot.active_pid = sender.pid AND slot.slot_type = "
        "'logical')"
    )
    session.rollback()
    return int(found[0])
