"""The seam between exactum's SQL layer and a kind of server: one ``Dialect`` for each.

Everything above the seam is shared by all dialects and knows no client library. A task's half of a
load is a ``RowEncoder``, the driver's half ``Dialect.load``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from exactum.errors import SettingRefused
from exactum.problem import Problem, warning
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.statements import Statements, unsubstituted
from exactum.sql.table import Column, ColumnLimits, Kind, Table, TableName, split_type
from exactum.sql.url import Address

if TYPE_CHECKING:
    import pyarrow as pa

    from exactum.sinks.frames import Frame, FrameWriter
    from exactum.sql.rows import Broken


ROW = "exactum_row"
"""Column of what an upsert loads: the row's place in the epoch, Spark's partition number << 40 |
row number in the task.
"""
ROW_COLUMN = Column(ROW, "bigint", Kind.INTEGER, limits=ColumnLimits(-(2**63), 2**63 - 1))
LEDGER = "exactum_ledger"
"""(scope text, batch_id bigint, digest text, attempt int, row_count bigint, committed_at timestamp
of the server's clock by default), primary key (scope, batch_id). ``digest`` names the staged files.
Texts are ASCII of at most 200 characters and compare exactly (binary collation); all not null."""
DECISIONS = "exactum_decisions"
"""(query_id text, name text, content text without limit), primary key of the first two."""
DECISION_LOGS = "exactum_decision_logs"
"""(query_id text, changes bigint), primary key (query_id). Texts compare exactly."""
BINARY = "binary"
"""The format of rows that are the bytes of values, with nothing that says of which type."""
LOADED = "exactum_loaded"
"""The temporary table from which an upsert goes into its target, and in which rows are tried of
which the server alone knows whether it takes them.
"""
CREATE_TRIES_MAX = 5
PROOF_LABEL = "exactum doctor"
PROOF_LOCK_TIMEOUT_S = 5.0
DOUBLE_BITS = 53


class RowEncoder(Protocol):
    """Makes one task's rows into frames that ``Dialect.load`` takes. Used by a task, which has no
    connection to the server.
    """

    @property
    def header(self) -> Mapping[str, Any]:
        """What ``load`` has to know of the frames: plain JSON values, the same for all of them."""

    def write(self, batch: pa.RecordBatch, frames: FrameWriter) -> Broken | None:
        """Write an Arrow record batch whose columns are those that this was made with, in their
        order.

        Returns which rows are too large to be sent, if any is; all others are written.
        """


class Mode(Enum):
    """How rows come into the target."""

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True)
class RefusedRow:
    """A row that the server does not take. ``number``: which of those that were given, from 0.
    ``row``: a record batch that has it, in columns of the frame and maybe others.
    """

    number: int
    row: pa.RecordBatch
    why: str


@dataclass(frozen=True)
class Load:
    """How a staged file goes into its target, as its header says; those of one load are equal.

    columns: the target's that are written, by which the rows were judged; without the flag. load:
    ``RowEncoder.header``.

    The rows of an upsert go from the temporary table into the target in one statement or a few. For
    each ``key`` only the last row, which is the one with the greatest ``order_by`` values (compared
    in the order given, NULL lowest), ties and no ``order_by`` by the greatest ``exactum_row``; it
    replaces the target's row of that key or is inserted. With ``delete_when`` (name and type of a
    boolean column that only the temporary table has) a last row in which it is true deletes the
    target's row of its key instead. The target's rows are locked in order of key.
    """

    target: TableName
    columns: tuple[Column, ...]
    mode: Mode
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    delete_when: tuple[str, str] | None
    load: Mapping[str, Any]

    @staticmethod
    def of(header: Mapping[str, Any]) -> Load:
        """
        Raises:
            ValueError: it is none.
        """
        return msgspec.convert(header, Load)

    @property
    def header(self) -> dict[str, Any]:
        """Plain JSON values."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def flag(self) -> str | None:
        return None if self.delete_when is None else self.delete_when[0]

    @property
    def is_read_by_type(self) -> bool:
        """Whether a column of another type than the one that it is written for would take the bytes
        for another value; in the temporary table they are of the types that they were written for.
        """
        return self.mode is Mode.APPEND and bool(self.load["format"] == BINARY)

    @property
    def staged_columns(self) -> tuple[Column, ...]:
        """Those of the temporary table."""
        listed = [(column.name, column.type) for column in self.columns]
        flag = () if self.delete_when is None else (self.delete_when,)
        return tuple(Column(name, type_, Kind.OTHER) for name, type_ in (*listed, *flag))


class Dialect(ABC):
    """A kind of server. A dialect is frozen, stateless and picklable; it imports its client library
    when it connects. Methods with a ``session`` raise ``SqlFailure``; none commits unless it says
    so.

    Of the statements in its ``.sql`` files, ``enter_ledger``, ``enter_file`` and ``enter_log``
    insert one row unless its key is taken, wait for another transaction that has inserted the same
    key and is not settled, and affect 1 row or 0. SQL texts use ``%s`` for arguments and ``%%`` for
    a per cent sign, and are always run through the client's substitution, with or without
    arguments.

    name: for messages (``MySQL``). scheme: first part of a sink's default name (``mysql``).
    way_to_wait_for_standbys: what to tell an operator whose COMMITs wait for none.
    upserts_by_any_key: an upsert cannot be tied to one unique key, so that a table with another one
    is refused.
    kinds_taken: which kinds of columns a Spark type can be loaded into; whether each value fits is
    for ``rows``.
    sql: the statements of the ``.sql`` files, by name.
    """

    name: ClassVar[str]
    scheme: ClassVar[str]
    way_to_wait_for_standbys: ClassVar[str]
    upserts_by_any_key: ClassVar[bool]
    ledger_rights: ClassVar[tuple[str, ...]]
    """What a commit does to the ledger."""
    kinds_taken: ClassVar[Mapping[str, Collection[Kind]]]
    sql: ClassVar[Statements]
    table_options: ClassVar[str]
    temporary_options: ClassVar[str]
    temporary_schema: ClassVar[str | None]

    @abstractmethod
    def connect(self, address: Address, label: str, lock_timeout_s: float) -> Session:
        """A new session. Administrators see ``label`` where the server shows such. No wait for a
        lock takes longer than ``lock_timeout_s``, and a session that idles in a transaction is
        ended by the server where it can (a stopped driver must not hold locks for ever).

        Raises:
            SettingRefused: the client library is not installed.
            SqlFailure: LOST, DENIED, MISSING, BUSY.
        """

    def end_older(self, session: Session, sink: str, label: str) -> None:  # noqa: B027
        """End the sessions whose label begins with ``sink`` and is below ``label`` and whose client
        stands still in the middle of a load, where the server does not do so itself.
        """

    # ---- the catalog -------------------------------------------------------------------------

    @abstractmethod
    def read_table(self, session: Session, name: TableName) -> Table | None:
        """The table as it is now, with its true schema filled in; None when there is none that the
        user can see.

        Raises:
            SettingRefused: it is something that cannot hold the guarantee (UNLOGGED, a foreign
                table, MyISAM, ...).
        """

    @abstractmethod
    def arguments_of(self, name: TableName) -> tuple[object, ...]:
        """A table's name as ``is_there`` and the statements that read the catalog take it."""

    @abstractmethod
    def can_name(self, name: str) -> bool:
        """Whether a column can have exactly this name: servers cut what is too long."""

    @abstractmethod
    def type_for(self, spark_type: str, in_key: bool) -> str | None:
        """What ``create_table`` makes of a Spark type; None when this server has nothing for it."""

    def takes(self, column: Column, spark_type: str) -> bool:
        """Whether values of the Spark type can be loaded into the column."""
        base = self.base_of(spark_type)
        has_digits = column.limits.precision == DOUBLE_BITS or base not in ("int", "double")
        fits = column.kind is not Kind.FLOAT or has_digits
        return fits and column.kind in self.kinds_taken.get(base, ())

    def base_of(self, spark_type: str) -> str:
        """The name of a Spark type in ``kinds_taken``."""
        return split_type(spark_type)[0]

    def create_table(
        self, session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
    ) -> None:
        """Create the target table unless it exists; ``key`` is its primary key, if any. Commits.

        ``CREATE TABLE target (column type {NULL | NOT NULL}, ..., PRIMARY KEY (key, ...))``
        """
        lines = [self._declared(column) for column in columns]
        if key:
            lines.append(f"PRIMARY KEY ({', '.join(map(self.sql.quote, key))})")
        start = f"CREATE TABLE IF NOT EXISTS {self.sql.quote_table(name)}"
        self._create(session, name, f"{start} ({', '.join(lines)}) {self.table_options}")

    def create_own_tables(self, session: Session, sibling: TableName) -> None:
        """Create the ledger beside ``sibling`` unless it exists. Two may race. Commits."""
        ledger = sibling.sibling(LEDGER)
        self._create(session, ledger, self.sql("create_ledger", table=ledger))

    def create_decision_tables(self, session: Session, schema: str | None) -> None:
        """Create the tables of ``files`` unless they exist. Commits."""
        for name, statement in ((DECISIONS, "create_files"), (DECISION_LOGS, "create_logs")):
            table = TableName(schema, name)
            self._create(session, table, self.sql(statement, table=table))

    def create_temporary_table(self, session: Session, columns: Sequence[Column]) -> TableName:
        """A table that nobody else sees: ``exactum_row`` (bigint), and the columns by their types,
        all nullable. It takes the place of one that an earlier load of the session has left.
        """
        session.execute(self.sql("drop_temporary_table"))
        lines = [f"{ROW} bigint NULL", *map(self._declared, columns)]
        session.execute(
            f"CREATE TEMPORARY TABLE {LOADED} ({', '.join(lines)}) {self.temporary_options}"
        )
        return TableName(self.temporary_schema, LOADED)

    def _declared(self, column: Column) -> str:
        null = "NULL" if column.nullable else "NOT NULL"
        return f"{self.sql.quote(column.name)} {column.type.replace('%', '%%')} {null}"

    def _create(self, session: Session, name: TableName, statement: str) -> None:
        """Unless the table exists, which is looked up first: a user without the right to create
        tables may have had it created by somebody else. Two starts that create the same one at once
        may trip over each other; then the second one finds it. Commits.
        """
        for tries in range(1, CREATE_TRIES_MAX + 1):
            try:
                if not session.query(self.sql("is_there"), self.arguments_of(name)):
                    session.execute(statement)
                session.commit()
                return
            except SqlFailure as failure:
                session.rollback()
                if failure.failure is ServerFailure.DENIED:
                    raise SettingRefused(
                        "SQL_ACCESS",
                        f"exactum needs a table {name} and may not create it: {failure}. Grant "
                        f"CREATE to this user, or have it created: {unsubstituted(statement)}; "
                        "with SELECT, INSERT, UPDATE, DELETE on it for this user.",
                    ) from None
                if failure.failure is not ServerFailure.BUSY or tries == CREATE_TRIES_MAX:
                    raise

    @abstractmethod
    def prove_server(self, address: Address, where: str) -> Iterator[Problem]:
        """What of a server a start does not look at. ``where``: in messages. Raises SqlFailure."""

    @abstractmethod
    def denied(self, session: Session, table: Table) -> Collection[str]:
        """Which of SELECT, INSERT, UPDATE and DELETE the user may not do to the table."""

    @abstractmethod
    def lagging_standbys(self, session: Session) -> int:
        """How many standbys follow the server, none of which a COMMIT waits for; 0 where that
        cannot be told.
        """

    def prove_standbys(self, session: Session, where: str) -> Iterator[Problem]:
        """Standbys that no COMMIT waits for."""
        if count := self.lagging_standbys(session):
            yield warning(
                where,
                f"{count} standbys get their data asynchronously, and none synchronously.",
                "A failover to one of them loses what was committed last: rows or decisions.",
                "Have a COMMIT wait for one of them, or never fail over to them "
                "(docs/guarantees.md).",
            )

    # ---- rows --------------------------------------------------------------------------------

    def load_facts(self, session: Session) -> Mapping[str, Any]:
        """What an encoder has to know of the server: plain JSON values."""
        return {}

    @abstractmethod
    def encoder(
        self,
        columns: Sequence[Column],
        kinds: Sequence[pa.DataType] | None,
        facts: Mapping[str, Any],
    ) -> RowEncoder:
        """For columns that come as these Arrow types; None: not known, for no rows. ``facts`` are
        what ``load_facts`` said.
        """

    @abstractmethod
    def lock_definition(self, session: Session, load: Load) -> None:
        """Nobody changes the target's columns, keys or rules until the transaction ends; rows may
        be written as ever.
        """

    @abstractmethod
    def load(
        self,
        session: Session,
        table: TableName,
        header: Mapping[str, Any],
        frames: Iterator[Frame],
    ) -> None:
        """Bring frames, each with the number of its rows, into the table, inside the session's
        transaction. ``header`` is the encoder's. None are well: it shows whether the user may
        write.

        Raises:
            SqlFailure: ROWS, or the server's.
            FileNotFoundError: as ``frames``.
        """

    def load_accepted(
        self,
        session: Session,
        table: TableName,
        header: Mapping[str, Any],
        frames: Iterator[Frame],
        refused_max: int,
    ) -> Sequence[RefusedRow]:
        """As ``load``, into a temporary table that has nothing but types, for rows of which the
        server alone knows whether it takes them (``Column.judged``); returns those that it does
        not. Ends early where they are more than ``refused_max``. A dialect with such columns has
        the statements ``save`` and ``undo``.
        """
        return ()

    @abstractmethod
    def upsert(self, session: Session, staging: TableName, load: Load) -> None:
        """See ``Load``: from the temporary table ``staging``."""

    @abstractmethod
    def check_constraints(self, session: Session) -> None:
        """Checks deferred constraints at once, where the server has such."""
