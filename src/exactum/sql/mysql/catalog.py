"""Tables of MySQL and MariaDB: reading the target's, making exactum's own."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import SettingRefused
from exactum.sql.dialect import DECISIONS, DIRECTORY, FLOORS, LEDGER, PART, ROW
from exactum.sql.mysql.charsets import charset
from exactum.sql.mysql.quote import quote, quote_table
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.types import column_from
from exactum.sql.table import Column, Table, TableName

_COLUMN_FACTS = (
    "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA",
    "GENERATION_EXPRESSION", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE",
    "DATETIME_PRECISION", "CHARACTER_SET_NAME", "COLLATION_NAME",
)  # fmt: skip
_NAME = "varchar(200) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_TRANSACTIONAL = "ENGINE=InnoDB"


def read_table(session: MySQLSession, name: TableName) -> Table | None:
    """See ``dialect``.

    Raises:
        SettingRefused: it is a view, or its engine has no transactions.
    """
    # lower_case_table_names decides how names compare; the server applies it to its own catalog.
    found = session.query(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES "
        "WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) AND TABLE_NAME = %s",
        (name.schema, name.table),
    )
    if not found:
        return None
    schema, table, table_type, engine = found[0]
    if "TABLE" not in str(table_type) or str(engine).lower() != "innodb":
        what = f"of the engine {engine}" if engine else f"a {str(table_type).lower()}"
        raise SettingRefused(
            f"The table {name} at {session.address.where} is {what}; only InnoDB tables hold "
            "transactions. Convert it (ALTER TABLE ... ENGINE=InnoDB), or write to another table."
        )
    true_name = TableName(str(schema), str(table))
    facts = session.query(
        f"SELECT {', '.join(_COLUMN_FACTS)} FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
        (true_name.schema, true_name.table),
    )
    described = [dict(zip(_COLUMN_FACTS, row, strict=True)) for row in facts]
    names = {str(d["CHARACTER_SET_NAME"]) for d in described if d["CHARACTER_SET_NAME"]}
    charsets = {name: charset(session, name) for name in sorted(names)}
    json = _json_columns(session, true_name)
    columns = tuple(column_from(d, charsets, json) for d in described)
    return Table(true_name, columns, _unique_keys(session, true_name))


def _json_columns(session: MySQLSession, name: TableName) -> frozenset[str]:
    """MariaDB's JSON is text with a CHECK, under the column's name."""
    if not session.is_mariadb:
        return frozenset()
    rows = session.query(
        "SELECT CONSTRAINT_NAME, CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS "
        "WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s",
        (name.schema, name.table),
    )
    clauses = {(str(column), str(clause).lower()) for column, clause in rows}
    return frozenset(
        c for c, clause in clauses if clause == f"json_valid({quote(c).replace('%%', '%')})".lower()
    )


def _unique_keys(session: MySQLSession, name: TableName) -> tuple[frozenset[str], ...]:
    """Every unique key, also those over the beginning of a column or over an expression: an upsert
    hits these, too.

    Such a one stands here as a set that no list of columns can equal.
    """
    rows = session.query(
        "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS WHERE "
        "TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, "
        "SEQ_IN_INDEX",
        (name.schema, name.table),
    )
    keys: dict[str, set[str]] = {}
    for index, column, prefix in rows:
        whole = column is not None and prefix is None
        keys.setdefault(str(index), set()).add(
            str(column) if whole else f"part of {column or 'an expression'}"
        )
    return tuple(frozenset(key) for key in keys.values())


def create_table(
    session: MySQLSession, name: TableName, columns: Sequence[Column], key: Sequence[str]
) -> None:
    """See ``dialect``."""
    lines = [
        f"{quote(c.name)} {c.type.replace('%', '%%')} {'NULL' if c.nullable else 'NOT NULL'}"
        for c in columns
    ]
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(map(quote, key))})")
    _create(session, name, lines)


def create_own_tables(session: MySQLSession, sibling: TableName) -> None:
    """See ``dialect``."""
    ledger = [
        f"scope {_NAME}",
        "batch_id bigint NOT NULL",
        f"identity {_NAME}",
        f"digest {_NAME}",
        "attempt int NOT NULL",
        "row_count bigint NOT NULL",
        "committed_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP",
        "PRIMARY KEY (scope, batch_id, identity)",
    ]
    directory = [
        f"scope {_NAME}",
        f"identity {_NAME}",
        f"incarnation {_NAME}",
        "batch_id bigint NOT NULL",
        "attempt int NOT NULL",
        f"staging {_NAME}",
        "part bigint NOT NULL",
        "row_count bigint NOT NULL",
        "PRIMARY KEY (scope, identity)",
    ]
    _create(session, sibling.sibling(LEDGER), ledger)
    _create(session, sibling.sibling(DIRECTORY), directory)


def create_decision_tables(session: MySQLSession, schema: str | None) -> None:
    """See ``dialect``."""
    decisions = [
        f"query_id {_NAME}",
        "batch_id bigint NOT NULL",
        "attempt int NOT NULL",
        "record longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
        "PRIMARY KEY (query_id, batch_id, attempt)",
    ]
    floors = [f"query_id {_NAME}", "floor bigint NOT NULL", "PRIMARY KEY (query_id)"]
    _create(session, TableName(schema, DECISIONS), decisions)
    _create(session, TableName(schema, FLOORS), floors)


def create_staging(session: MySQLSession, name: TableName, columns: Sequence[Column]) -> None:
    """See ``dialect``. The primary key keeps a part's rows together and in order."""
    lines = [f"{quote(PART)} bigint NOT NULL", f"{quote(ROW)} bigint NOT NULL"]
    lines += [f"{quote(c.name)} {c.type.replace('%', '%%')} NULL" for c in columns]
    lines.append(f"PRIMARY KEY ({quote(PART)}, {quote(ROW)})")
    _create(session, name, lines)


def list_staging(session: MySQLSession, sibling: TableName, prefix: str) -> list[TableName]:
    """See ``dialect``."""
    rows = session.query(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, "
        "DATABASE()) AND LEFT(TABLE_NAME, %s) = %s",
        (sibling.schema, len(prefix), prefix),
    )
    return [sibling.sibling(str(table)) for (table,) in rows if str(table).startswith(prefix)]


def _create(session: MySQLSession, name: TableName, lines: Sequence[str]) -> None:
    """Create an InnoDB table unless it is there; without looking, a missing right to create would
    be an error.
    """
    there = session.query(
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(%s, DATABASE()) "
        "AND TABLE_NAME = %s",
        (name.schema, name.table),
    )
    if not there:
        session.execute(
            f"CREATE TABLE IF NOT EXISTS {quote_table(name)} ({', '.join(lines)}) {_TRANSACTIONAL}"
        )
    session.commit()
