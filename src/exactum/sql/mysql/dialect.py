"""MySQL 8 and MariaDB behind the seam: their catalog, the driver's half of a load (the tasks':
``rows``), and what a start does not look at in a server. A schema is a database here.

LOAD DATA LOCAL never fails for a bad row: it warns, and skips or changes the row. So the server's
count of rows must be the one that was sent, and a warning is an error. Its "file" is memory of this
process (memfd), or a temporary file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from exactum.errors import SettingRefused
from exactum.problem import Problem, clock, error, ok, warning
from exactum.sql.dialect import PROOF_LABEL, PROOF_LOCK_TIMEOUT_S, ROW, Dialect, Load, RowEncoder
from exactum.sql.mysql.rows import TUPLES, Lines, Tuples, insert_head
from exactum.sql.mysql.session import MySQLSession, connect, failure_of, quote, quote_table, sql
from exactum.sql.mysql.types import TAKES, column_from, type_for
from exactum.sql.session import ServerFailure, Session, SqlFailure, refusal
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    import pyarrow as pa

    from exactum.sinks.frames import Frame


_COLUMN_FACTS = (
    "COLUMN_NAME", "DATA_TYPE", "COLUMN_TYPE", "IS_NULLABLE", "COLUMN_DEFAULT", "EXTRA",
    "GENERATION_EXPRESSION", "CHARACTER_MAXIMUM_LENGTH", "NUMERIC_PRECISION", "NUMERIC_SCALE",
    "DATETIME_PRECISION", "CHARACTER_SET_NAME", "COLLATION_NAME",
)  # fmt: skip
"""What the statement ``list_columns`` asks for, in its order."""
TABLES = ("BASE TABLE", "SYSTEM VERSIONED")
"""Kinds of tables, the second one of MariaDB; it also has SEQUENCE, and both VIEW."""
CHUNK_BYTES = 8 * 2**20
"""How much text is sent in one LOAD DATA."""
COLUMNS_CHANGED = ("1054", "1364")
"""Of an INSERT that names a column that is gone, or leaves out one that has to be filled."""
MEMORY_FILES = hasattr(os, "memfd_create") and Path("/proc/self/fd").exists()
_RANK = "exactum_rank"
_LAST = "exactum_last"


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
    ledger_rights = ("SELECT", "INSERT", "UPDATE", "DELETE")
    kinds_taken = TAKES
    sql = sql
    table_options = "ENGINE=InnoDB"
    temporary_options = "ENGINE=InnoDB"
    temporary_schema = None

    def connect(self, address: Address, label: str, lock_timeout_s: float) -> Session:
        return connect(address, label, lock_timeout_s)

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
                f"{name} at {session.address.where} is {what}; only InnoDB tables hold "
                f"transactions. {mend} to another table.",
            )
        full = TableName(str(schema), str(table))
        rows = session.query(sql("list_columns"), self.arguments_of(full))
        json_columns = self._json_columns(session, full)
        described = (dict(zip(_COLUMN_FACTS, row, strict=True)) for row in rows)
        columns = tuple(column_from(row, json_columns) for row in described)
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
        """At most 64 characters of Unicode's first plane, and no blank at the end."""
        fits = 0 < len(name) <= 64 and not name.endswith(" ")
        return fits and all("\0" < c <= "\uffff" for c in name)

    def type_for(self, spark_type: str, in_key: bool) -> str | None:
        return type_for(spark_type, in_key)

    def prove_server(self, address: Address, where: str) -> Iterator[Problem]:
        connected = self.connect(address, PROOF_LABEL, PROOF_LOCK_TIMEOUT_S)
        with contextlib.closing(connected) as session:
            before_s = time.time()
            (row,) = session.query(sql("examine_server"))
            took_s = time.time() - before_s
            version, clock_us, local_infile, read_only = row
            yield ok(where, f"{'MariaDB' if 'Maria' in version else 'MySQL'} {version} answers.")
            if str(read_only).upper() not in ("0", "OFF", "FALSE"):
                yield error(
                    where,
                    "The server is read-only.",
                    "It is a replica, or in the middle of a failover.",
                    "Name the server that takes writes, or SET GLOBAL read_only = 0.",
                )
            if not int(local_infile):
                yield warning(
                    where,
                    "local_infile is off.",
                    "Rows are then sent by INSERT, which is slower than LOAD DATA LOCAL.",
                    "SET GLOBAL local_infile = 1, if the server's owner agrees.",
                )
            skew_s = int(clock_us) / 1e6 - before_s - took_s / 2
            yield clock(where, "the server", skew_s, took_s / 2)
            yield from self.prove_standbys(session, where)

    def denied(self, session: Session, table: Table) -> Collection[str]:
        """Each is done to no row, and rolled back: what a role brings counts as well."""
        columns = [column.name for column in table.columns if not column.generated]
        name, first = quote_table(table.name), quote(columns[0])
        listed, nulls = ", ".join(map(quote, columns)), ", ".join(["NULL"] * len(columns))
        statements = {
            "SELECT": f"SELECT {first} FROM {name} WHERE 1 = 0",
            "INSERT": f"INSERT INTO {name} ({listed}) SELECT {nulls} FROM DUAL WHERE 1 = 0",
            "UPDATE": f"UPDATE {name} SET {first} = NULL WHERE 1 = 0",
            "DELETE": f"DELETE FROM {name} WHERE 1 = 0",
        }
        return [
            right
            for right, statement in statements.items()
            if refusal(session, statement) is ServerFailure.DENIED
        ]

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
        """``files``: whether LOAD DATA LOCAL is allowed; ``packet_bytes``: how long a statement may
        be.
        """
        allowed, packet_bytes = session.query(sql("read_load_settings"))[0]
        return {
            "files": bool(int(allowed)) and _ours(session).takes_files,
            "packet_bytes": int(packet_bytes),
        }

    def encoder(
        self,
        columns: Sequence[Column],
        kinds: Sequence[pa.DataType] | None,
        facts: Mapping[str, Any],
    ) -> RowEncoder:
        if facts["files"]:
            return Lines(columns)
        return Tuples(columns, int(facts["packet_bytes"]))

    def lock_definition(self, session: Session, load: Load) -> None:
        try:
            _insert_nothing(session, load.target, load.names)
        except SqlFailure as failure:
            if failure.code not in COLUMNS_CHANGED:  # whoever reads them says more
                raise

    def load(
        self,
        session: Session,
        table: TableName,
        header: Mapping[str, Any],
        frames: Iterator[Frame],
    ) -> None:
        """Even nothing is sent once: that shows whether the user may write."""
        names = header["names"]
        if header["format"] == TUPLES:
            for frame, rows in frames:
                _send(session, insert_head(table, names) + bytes(frame), rows)
            _insert_nothing(session, table, names)
            return
        clauses = _load_clauses(table, names, header["converted"])
        for chunks, rows in _chunks(frames):
            with _file_of(chunks) as path:
                named = path.replace("\\", "\\\\").replace("'", "\\'")
                statement = f"LOAD DATA LOCAL INFILE '{named}' {clauses}"
                _send(session, statement.encode(), rows, path)

    def upsert(self, session: Session, staging: TableName, load: Load) -> None:
        """Delete the keys whose last row says so, then insert or replace the others by order of
        key:

            DELETE target FROM target JOIN ranked ON key = key AND ... WHERE exactum_rank = 1 AND
            delete_when IS TRUE
            INSERT INTO target (column, ...) SELECT column, ... FROM ranked WHERE exactum_rank = 1
            AND delete_when IS NOT TRUE ORDER BY key, ... ON DUPLICATE KEY UPDATE column = ...

        ``ranked`` is a subquery: see ``_ranked``.
        """
        ranked = _ranked(staging, load)
        kept = ""
        if load.flag is not None:
            flag = f"{_LAST}.{quote(load.flag)}"
            kept = f" AND {flag} IS NOT TRUE"
            same = " AND ".join(f"target.{quote(k)} = {_LAST}.{quote(k)}" for k in load.key)
            session.execute(
                f"DELETE target FROM {quote_table(load.target)} AS target JOIN {ranked} ON {same} "
                f"WHERE {_LAST}.{_RANK} = 1 AND {flag} IS TRUE"
            )
        names = ", ".join(map(quote, load.names))
        found = ", ".join(f"{_LAST}.{quote(c)}" for c in load.names)
        by_key = ", ".join(f"{_LAST}.{quote(k)}" for k in load.key)
        changed = [c for c in load.names if c not in load.key] or [load.key[0]]
        updates = ", ".join(f"{quote(c)} = {_LAST}.{quote(c)}" for c in changed)
        session.execute(
            f"INSERT INTO {quote_table(load.target)} ({names}) SELECT {found} FROM {ranked} WHERE "
            f"{_LAST}.{_RANK} = 1{kept} ORDER BY {by_key} ON DUPLICATE KEY UPDATE {updates}"
        )

    def check_constraints(self, session: Session) -> None:
        """No constraint is deferred here."""


def _ours(session: Session) -> MySQLSession:
    """Every session that comes back here was made by ``connect``."""
    return cast("MySQLSession", session)


def _ranked(staging: TableName, load: Load) -> str:
    """The rows, each with its place among those of its key: 1 is the last. NULL sorts lowest
    in MySQL.

        (SELECT column, ..., ROW_NUMBER() OVER (PARTITION BY key, ... ORDER BY order_by DESC, ...,
        exactum_row DESC) AS exactum_rank FROM staging) AS exactum_last
    """
    columns = [*load.names, *([load.flag] if load.flag else [])]
    latest = ", ".join(f"{quote(c)} DESC" for c in (*load.order_by, ROW))
    return (
        f"(SELECT {', '.join(map(quote, columns))}, ROW_NUMBER() OVER (PARTITION BY "
        f"{', '.join(map(quote, load.key))} ORDER BY {latest}) AS {_RANK} FROM "
        f"{quote_table(staging)}) AS {_LAST}"
    )


def _insert_nothing(session: Session, table: TableName, names: Sequence[str]) -> None:
    """As whoever writes: the table cannot be altered until the transaction ends."""
    nulls = ", ".join(["NULL"] * len(names))
    session.execute(
        f"INSERT INTO {quote_table(table)} ({', '.join(map(quote, names))}) SELECT {nulls} "
        "FROM DUAL WHERE FALSE"
    )


def _load_clauses(table: TableName, names: Sequence[str], converted: Mapping[str, str]) -> str:
    """``INTO TABLE table CHARACTER SET utf8mb4 FIELDS ... LINES ... (column, ..., @exactum_0) SET
    column = UNHEX(@exactum_0), ...``.
    """
    fields: list[str] = []
    settings: list[str] = []
    for place, name in enumerate(names):
        if name in converted:
            fields.append(f"@exactum_{place}")
            settings.append(f"{quote(name)} = {converted[name].format(f'@exactum_{place}')}")
        else:
            fields.append(quote(name))
    return unsubstituted(
        f"INTO TABLE {quote_table(table)} CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
        f"({', '.join(fields)})" + (f" SET {', '.join(settings)}" if settings else "")
    )


def _send(session: Session, statement: bytes, rows: int, path: str | None = None) -> None:
    """
    Raises:
        SqlFailure: the server warned of something, or rows are missing; or the server's.
    """
    affected, warnings = _ours(session).send(statement, path)
    if not warnings and affected == rows:
        return
    found = session.query(sql("read_warnings"))
    text = "; ".join(str(message) for _, _, message in found)
    code = int(found[0][1]) if found else 0
    if affected != rows:
        text = f"{rows - affected} of {rows} rows were not taken{': ' if text else ''}{text}"
    failure = failure_of(code)
    if failure is ServerFailure.OTHER or not found:
        failure = ServerFailure.ROWS
    raise SqlFailure(failure, str(code or ""), session.address.scrub(text))


def _chunks(frames: Iterator[Frame]) -> Iterator[tuple[list[memoryview], int]]:
    """Some ``CHUNK_BYTES`` of frames and the number of their rows, once at least."""
    chunks: list[memoryview] = []
    size = rows = 0
    for frame, count in frames:
        if size >= CHUNK_BYTES:
            yield chunks, rows
            chunks, size, rows = [], 0, 0
        chunks.append(frame)
        size += len(frame)
        rows += count
    yield chunks, rows


@contextlib.contextmanager
def _file_of(chunks: Sequence[memoryview]) -> Iterator[str]:
    """A path by which this process reads the chunks one after another."""
    if MEMORY_FILES:
        descriptor = os.memfd_create("exactum-load")
        with open(descriptor, "wb") as file:
            file.writelines(chunks)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile(prefix="exactum-load-") as named:
        named.writelines(chunks)
        named.flush()
        yield named.name
