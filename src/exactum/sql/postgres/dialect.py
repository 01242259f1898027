"""PostgreSQL behind the seam: its catalog, the driver's half of a load (tasks: ``rows``), and what
a start does not look at in a server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from exactum.errors import SettingRefused
from exactum.problem import Problem, clock, error, ok
from exactum.sinks.frames import unpacked
from exactum.sql.dialect import BINARY, PROOF_LABEL, ROW, Dialect, Load, RefusedRow, RowEncoder
from exactum.sql.postgres.rows import HEAD, TAIL, copy_rows, csv_text
from exactum.sql.postgres.session import (
    connect,
    opened,
    quote,
    quote_table,
    regclass,
    sql,
)
from exactum.sql.postgres.types import (
    NAME_BYTES,
    TAKES,
    CatalogColumn,
    base_of,
    column_of,
    element_of,
    type_for,
)
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Kind, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame


KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence"}
OF_ONE_ROW = ("22", "23514", "54")
"""SQLSTATEs, or how they begin, of what a row's own values are refused for by a table that has
nothing but types: data, a domain's CHECK, a limit.
"""


@dataclass(frozen=True)
class PostgresDialect(Dialect):
    """See ``Dialect``. PostgreSQL 12 and later."""

    name = "PostgreSQL"
    scheme = "postgres"
    way_to_wait_for_standbys = "Set synchronous_standby_names on the server"
    upserts_by_any_key = False
    ledger_rights = ("SELECT", "INSERT", "DELETE")
    kinds_taken = TAKES
    sql = sql
    table_options = ""
    temporary_schema = "pg_temp"
    temporary_options = "ON COMMIT DROP"
    """It goes with its transaction, which may have made one for other columns before."""

    def connect(self, address: Address, label: str, lock_timeout_s: float) -> Session:
        return connect(address, label, lock_timeout_s)

    def end_older(self, session: Session, sink: str, label: str) -> None:
        session.query(sql("end_older"), (sink, label))

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
            tuple(column_of(CatalogColumn(*row)) for row in columns),
            tuple(sorted((frozenset(row[0]) for row in keys), key=sorted)),
            bool(hides_rows),
        )

    def arguments_of(self, name: TableName) -> tuple[object, ...]:
        return (regclass(name),)

    def can_name(self, name: str) -> bool:
        return 0 < len(name.encode()) <= NAME_BYTES and "\0" not in name

    def type_for(self, spark_type: str, in_key: bool) -> str | None:
        return type_for(spark_type)

    def takes(self, column: Column, spark_type: str) -> bool:
        """An array takes what its elements take."""
        element = element_of(spark_type)
        if element is None or column.element is None:
            return super().takes(column, spark_type)
        return column.element.kind is not Kind.JSON and self.takes(column.element, element)

    def base_of(self, spark_type: str) -> str:
        return base_of(spark_type)

    def prove_server(self, address: Address, where: str) -> Iterator[Problem]:
        """By a session in which nothing is set for longer than a transaction: behind a pooler it
        would be set for whoever is served next.
        """
        with closing(opened(address, PROOF_LABEL)) as session:
            session.query(sql("bound_look"), (f"{STATEMENT_TIMEOUT_MS}ms",))
            before_s = time.time()
            ((text, pid, clock_s),) = session.query(sql("examine_server"))
            took_s = time.time() - before_s
            session.rollback()
            facts = json.loads(text)
            yield from _server(where, facts)
            yield clock(where, "the server", float(clock_s) - before_s - took_s / 2, took_s / 2)
            if int(pid) != session.connection.info.backend_pid:
                yield _pooler(address, where)
            if not facts["is_standby"]:
                yield from self.prove_standbys(session, where)
                yield from _synchronous(where, facts)

    def denied(self, session: Session, table: Table) -> Collection[str]:
        rows = session.query(sql("examine_table"), (regclass(table.name),))
        session.rollback()
        return [right for right, granted in zip(RIGHTS, rows[0], strict=True) if not granted]

    def lagging_standbys(self, session: Session) -> int:
        (found,) = session.query(sql("count_lagging_standbys"))
        session.rollback()
        return int(found[0])

    # ---- rows --------------------------------------------------------------------------------

    def encoder(
        self,
        columns: Sequence[Column],
        kinds: Sequence[pa.DataType] | None,
        facts: Mapping[str, Any],
    ) -> RowEncoder:
        return copy_rows(columns, kinds)

    def lock_definition(self, session: Session, load: Load) -> None:
        session.execute(sql("lock_definition", target=load.target))

    def load(
        self,
        session: Session,
        table: TableName,
        header: Mapping[str, Any],
        frames: Iterator[Frame],
    ) -> None:
        """One ``COPY table (column, ...) FROM STDIN (FORMAT ...)``."""
        names = header["names"]
        sent = (frame for frame, _ in frames)
        if header["format"] == BINARY:
            _copy(session, table, names, "binary", chain([HEAD], sent, [TAIL]))
            return
        texts = (csv_text(unpacked(frame).columns[: len(names)]) for frame in sent)
        _copy(session, table, names, "csv", texts)

    def load_accepted(
        self,
        session: Session,
        table: TableName,
        header: Mapping[str, Any],
        frames: Iterator[Frame],
        refused_max: int,
    ) -> Sequence[RefusedRow]:
        """What is refused is tried again in halves, each within a savepoint, and what is taken is
        followed by twice as much.
        """
        names = header["names"]
        refused: list[RefusedRow] = []
        first = 0
        for frame, count in frames:
            batch = unpacked(frame)
            start, size = 0, count
            while start < count:
                part = batch.slice(start, size)
                why = _refusal(session, table, names, part)
                if why is None:
                    start, size = start + part.num_rows, 2 * size
                elif part.num_rows > 1:
                    size = part.num_rows // 2
                else:
                    row = part.take(pa.array([0]))  # a copy: the slice would keep the frame
                    refused.append(RefusedRow(first + start, row, why))
                    start, size = start + 1, 1
                if len(refused) > refused_max:
                    return refused
            first += count
        return refused

    def upsert(self, session: Session, staging: TableName, load: Load) -> None:
        """The last row of each key, sorted by key, which is the order in which rows are locked:

            INSERT INTO target (column, ...) SELECT DISTINCT ON (key, ...) column, ... FROM staging
            ORDER BY key, ..., order_by DESC NULLS LAST, ...,
            exactum_row DESC ON CONFLICT (key, ...) DO UPDATE SET column = EXCLUDED.column, ...

        With ``delete_when`` the SELECT comes first, ``WITH last AS (...)``; then ``gone AS (DELETE
        FROM target USING last WHERE ... RETURNING 1)``; and the INSERT takes what is left.
        """
        columns, key, target = _list(load.names), _list(load.key), quote_table(load.target)
        by = "".join(f"{quote(c)} DESC NULLS LAST, " for c in load.order_by)
        where = f"FROM {quote_table(staging)} ORDER BY {key}, {by}{ROW} DESC"
        changed = ", ".join(
            f"{quote(c)} = EXCLUDED.{quote(c)}" for c in load.names if c not in load.key
        )
        conflict = f"ON CONFLICT ({key}) DO {f'UPDATE SET {changed}' if changed else 'NOTHING'}"
        last = f"SELECT DISTINCT ON ({key}) {columns}"
        if load.flag is None:
            session.execute(f"INSERT INTO {target} ({columns}) {last} {where} {conflict}")
            return
        # Rows that delete and rows that stay have different keys, so neither part of the statement
        # sees the other. But a row that stays may take over what another unique key of the table
        # has from a row that goes. So the DELETE comes first: what the INSERT reads asks for its
        # count.
        last += f", coalesce({quote(load.flag)}, false) AS exactum_gone {where}"
        same = " AND ".join(f"t.{quote(c)} = l.{quote(c)}" for c in load.key)
        gone = f"DELETE FROM {target} t USING last l WHERE l.exactum_gone AND {same} RETURNING 1"
        first = "(SELECT count(*) FROM gone) IS NOT NULL"
        session.execute(
            f"WITH last AS MATERIALIZED ({last}), gone AS ({gone}) INSERT INTO {target} "
            f"({columns}) SELECT {columns} FROM last WHERE NOT exactum_gone AND {first} {conflict}"
        )

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


def _copy(
    session: Session, table: TableName, names: Sequence[str], form: str, data: Iterable[Any]
) -> None:
    """Run a COPY with these pieces of data."""
    statement = f"COPY {quote_table(table)} ({_list(names)}) FROM STDIN (FORMAT {form})"
    sent = unsubstituted(statement).encode()
    with session.failing(), session.connection.cursor().copy(sent) as copy:
        for piece in data:
            copy.write(piece)


def _refusal(
    session: Session, table: TableName, names: Sequence[str], batch: pa.RecordBatch
) -> str | None:
    """None once the rows are in the table; else why the server does not take one of them, and none
    is.
    """
    session.execute(sql("save"))
    why = None
    try:
        _copy(session, table, names, "csv", [csv_text(batch.columns[: len(names)])])
    except SqlFailure as failure:
        if failure.failure is not ServerFailure.ROWS or not failure.code.startswith(OF_ONE_ROW):
            raise
        session.execute(sql("undo"))
        why = failure.text
    session.execute(sql("keep"))
    return why


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(quote, names))


# ---- proving a server ------------------------------------------------------------------------


STATEMENT_TIMEOUT_MS = 10_000
VERSION_MIN = 120_000
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def _server(where: str, facts: dict[str, object]) -> Iterator[Problem]:
    version = f"PostgreSQL {facts['version']}"
    if int(str(facts["number"])) < VERSION_MIN:
        yield error(where, f"{version}.", "exactum needs 12 or later.", "Update it.")
    else:
        yield ok(where, f"{version} answers to {facts['user']}.")
    if facts["is_standby"]:
        yield error(
            where,
            "The server is a standby, which takes no writes.",
            "",
            "Name the primary; or all hosts, separated by commas, and exactum finds it.",
        )


def _synchronous(where: str, facts: dict[str, object]) -> Iterator[Problem]:
    names = facts["synchronous_standby_names"]
    if names and not facts["senders"]:
        yield error(
            where,
            f"synchronous_standby_names is {names!r}, and no standby is connected.",
            "Every COMMIT waits for one, without end.",
            "Bring the standby back, or empty synchronous_standby_names.",
        )


def _pooler(address: Address, where: str) -> Problem:
    if _keeps_sessions(address):
        return ok(where, "A pooler is in between, and keeps a session's connection to the end.")
    return error(
        where,
        "A pooler is in between that lends a connection for each transaction only (pgbouncer's "
        "pool_mode=transaction).",
        "What exactum sets for its session (timeouts, time zone, synchronous_commit) is lost to "
        "it, and is set for others.",
        "Name the server itself, or a pool with pool_mode=session.",
    )


def _keeps_sessions(address: Address) -> bool:
    """Whether what a session sets is still there in its next transaction, also when another client
    was served between the two. Not so behind a pooler that lends a connection for each
    transaction.
    """
    with (
        closing(opened(address, PROOF_LABEL)) as first,
        closing(opened(address, PROOF_LABEL)) as second,
    ):
        first.query(sql("mark_session"), ("first",))
        before = first.query(sql("read_mark"))
        first.commit()
        second.query(sql("mark_session"), ("second",))  # holds a connection of the pool
        after = first.query(sql("read_mark"))
        for session in (first, second):  # what was set goes with it
            session.rollback()
            session.query(sql("mark_session"), ("",))
            session.commit()
        return before == after
