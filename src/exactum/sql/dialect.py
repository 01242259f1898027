"""The seam between exactum's SQL layer and a kind of server: one ``Dialect`` for each.

Everything above the seam is shared by all dialects and knows no client library:

| module | holds |
|---|---|
| ``sink`` | ``SqlSink``: settings, checks, ``open``; ``PostgresSink`` and ``MySQLSink`` derive |
| ``plan`` | ``WritePlan``: what goes to the executors |
| ``sessions`` | the sessions that a process keeps between tasks |
| ``writer`` | the tasks' writers: staged, prepared, direct |
| ``participant`` | the driver's half: verify, commit, abort, list, for both mechanisms |
| ``ledger`` | the ledger's and the directory's rows |
| ``rules`` | which rows of an Arrow batch the table can hold |
| ``checks`` | what each kind of column can hold, on whole Arrow arrays |
| ``decision_log`` | ``SqlDecisionLog`` |
| ``statements`` | the statements that stand in ``.sql`` files, for administrators to read |
| ``url`` | ``Address``: where the server is; the only place that sees a password |

A dialect is a frozen, stateless, picklable object; it imports its client library inside its
methods. Of the statements in its ``.sql`` files, ``enter_ledger``, ``enter_record`` and
``enter_floor`` insert one row unless its key is taken, wait for another transaction that has
inserted the same key and is not settled, and affect 1 row or 0. SQL texts use ``%s`` for arguments
and ``%%`` for a per cent sign, and are always run through the client's substitution, with or
without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from exactum.sql.table import Column, Table, TableName
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sql.checks import Broken

PART = "exactum_part"
"""Staging column, bigint: which transaction (task) wrote the row; 63 random bits."""
ROW = "exactum_row"
"""Staging column, bigint: the row's place in the epoch, Spark's partition number << 40 | row
number in the task.
"""
LEDGER = "exactum_ledger"
"""(scope text, batch_id bigint, identity text, digest text, attempt int, row_count bigint,
committed_at timestamp of the server's clock by default), primary key (scope, batch_id, identity).
Texts are ASCII of at most 200 characters and compare exactly (binary collation); all not null."""
DIRECTORY = "exactum_prepared"
"""Staged transactions: (scope text, identity text, incarnation text, batch_id bigint, attempt int,
staging text, part bigint, row_count bigint), primary key (scope, identity). Texts as in the ledger;
all not null."""
DECISIONS = "exactum_decisions"
"""(query_id text, batch_id bigint, attempt int, record text without limit), primary key of the
first three.
"""
FLOORS = "exactum_decision_floors"
"""(query_id text, floor bigint), primary key (query_id). Texts compare exactly."""
STAGING_PREFIX = "exactum_stage_"


class ServerFailure(Enum):
    """What is done about a server's error; the dialect maps its codes to these.

    A code that is not listed is OTHER. On the driver that stops the query with the server's words,
    as REFUSED does. In a task it is an ``UnknownFailure``: nothing of the task becomes visible, and
    ``exactum run`` gives up when that has ended three lives at the same batch. So it is never taken
    for a success, and never tried again without end.
    """

    LOST = "the connection was lost or not made; a COMMIT under way may have taken effect"
    BUSY = (
        "a lock, no free connection, no room on the disk, a race with another session: the "
        "transaction is rolled back, the same again may succeed"
    )
    DENIED = "authentication or rights"
    MISSING = "a database, a schema or a table that does not exist"
    REFUSED = (
        "the table's definition, a setting of the server or the statement: the same again fails "
        "again"
    )
    CHANGED = (
        "the table's definition is another one than at the query's start: a new start knows it"
    )
    ROWS = "the rows break a constraint or do not fit a type: the same again fails again"
    NO_SUCH_PREPARED = "no prepared transaction of this name"
    OTHER = "anything else"


class SqlFailure(Exception):
    """A server's or client's error, classified. Internal to ``sql/``: ports turn it into
    ``exactum.errors``.

    ``text`` is one line of the server's message and detail, scrubbed of secrets by
    ``Address.scrub``; ``code`` the SQLSTATE or error number. The transaction of its session is
    void: roll it back (or the session is closed, if LOST).
    """

    def __init__(self, failure: ServerFailure, code: str, text: str) -> None:
        super().__init__(f"{text} ({code})" if code else text)
        self.failure = failure
        self.code = code
        self.text = text


class Session(Protocol):
    """One connection: READ COMMITTED, no autocommit (the first statement begins a transaction), one
    thread.

    Every method raises ``SqlFailure`` and nothing else of the client library.
    """

    def execute(self, sql: str, arguments: Sequence[object] = ()) -> int:
        """Run one statement; returns the number of rows it affected (matched or inserted)."""

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows."""

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Idempotent. Does nothing when the connection is gone."""

    @property
    def usable(self) -> bool:
        """False once the connection is known to be broken or closed."""

    def close(self) -> None:
        """Idempotent; never raises."""


class Loader(Protocol):
    """Bulk load of one task into one table, inside its session's transaction."""

    def write(self, batch: Any) -> Broken | None:
        """Send an Arrow record batch whose columns are those the loader was made with, in their
        order.

        Returns which rows are too large to be sent, or are refused by the server alone, if any is;
        all others are sent.

        Raises:
            SqlFailure: the server refused the rows (maybe those of an earlier call) or is gone.
        """

    def finish(self) -> None:
        """Everything sent is in the table, in the session's transaction, which stays open.

        Raises:
            SqlFailure: as ``write``.
        """

    def abandon(self) -> None:
        """Stop without finishing; the caller rolls back or closes the session. Never raises."""


class Role(Enum):
    """What a session is for; it chooses the timeouts."""

    TASK = "task"
    DRIVER = "driver"


class Mode(Enum):
    """How rows come into the target."""

    APPEND = "append"
    UPSERT = "upsert"


@dataclass(frozen=True)
class RowMove:
    """Rows of the given parts go from the staging table into the target, in one statement or a few.

    APPEND: all of them, in any order; ``exactum_row`` is null. UPSERT: for each ``key`` only the
    last row, which is the one with the greatest ``order_by`` values (compared in the order given,
    NULL lowest), ties and no ``order_by`` by the greatest ``exactum_row``; it replaces the target's
    row of that key or is inserted. With ``delete_when`` (a boolean column that only the staging
    table has) a last row in which it is true deletes the target's row of its key instead.
    ``columns`` are the target's, without the flag. In UPSERT mode, lock the target's rows in order
    of key. ``parts`` may be empty: the statements run all the same, with no rows (a rehearsal at
    start).
    """

    staging: TableName
    target: TableName
    columns: tuple[str, ...]
    mode: Mode
    key: tuple[str, ...]
    order_by: tuple[str, ...]
    delete_when: str | None
    parts: tuple[int, ...]


@dataclass(frozen=True)
class PreparedOnServer:
    """A prepared transaction, whoever's it is. ``began_ms`` is since 1970, None where the server
    does not tell; ``owner`` is a user, empty where it does not.
    """

    gid: str
    began_ms: int | None = None
    owner: str = ""


class Dialect(Protocol):
    """A kind of server. Methods with a ``session`` raise ``SqlFailure``; none commits unless it
    says so.
    """

    @property
    def name(self) -> str:
        """For messages: ``PostgreSQL``, ``MySQL``."""

    @property
    def scheme(self) -> str:
        """First part of a sink's default name: ``postgres``, ``mysql``."""

    @property
    def way_to_wait_for_standbys(self) -> str:
        """What to tell an operator whose COMMITs wait for no standby."""

    @property
    def upserts_by_any_key(self) -> bool:
        """True where an upsert cannot be tied to one unique key, so that a table with another one
        is refused.
        """

    def connect(self, address: Address, role: Role, label: str, lock_timeout_s: float) -> Session:
        """A new session. ``label`` is shown to administrators where the server can
        (application_name). No wait for a lock takes longer than ``lock_timeout_s``, and a DRIVER's
        session that idles in a transaction is ended by the server where it can (a stopped driver
        must not hold locks for ever).

        Raises:
            SettingRefused: the client library is not installed.
            SqlFailure: LOST, DENIED, MISSING, BUSY.
        """

    def sql(self, name: str, /, **places: TableName | str) -> str:
        """The statement of that name, its places filled: see ``statements``."""

    # ---- the catalog -------------------------------------------------------------------------

    def read_table(self, session: Session, name: TableName) -> Table | None:
        """The table as it is now, with its true schema filled in; None when there is none that the
        user can see.

        Raises:
            SettingRefused: it is something that cannot hold the guarantee (UNLOGGED, a foreign
                table, MyISAM, ...).
        """

    def check_table(self, session: Session, name: TableName) -> bool:
        """That the table still is something that ``read_table`` takes, by one statement; returns
        its ``Table.hides_rows``. ``name`` as for ``list_types``.

        Raises:
            SettingRefused: as ``read_table``.
        """

    def list_types(self, session: Session, name: TableName) -> dict[str, str]:
        """The ``Column.identity`` of each column, as ``read_table`` has it, by one statement; empty
        when there is no table. ``name`` is one that ``read_table`` has given.
        """

    def list_unique_keys(self, session: Session, name: TableName) -> tuple[frozenset[str], ...]:
        """The table's ``Table.unique_keys``, by one statement. ``name`` as for ``list_types``."""

    def can_name(self, name: str) -> bool:
        """Whether a column can have exactly this name: servers cut what is too long."""

    def column_of(self, name: str, spark_type: str, in_key: bool) -> Column | None:
        """The column that ``create_table`` makes of a frame's column; None when this server has no
        type for it.
        """

    def takes(self, column: Column, spark_type: str) -> bool:
        """Whether values of the Spark type can be loaded into the column; whether each value fits
        is for ``rules``.
        """

    def broken(self, column: Column, values: Any) -> Iterator[Broken]:
        """The rules that this server alone has for a column, checked on an Arrow array of its
        values; mostly none.

        Text in ``values`` is UTF-8. Without ``to_pylist()``: a day or an instant may be beyond
        Python's."""

    def create_table(
        self, session: Session, name: TableName, columns: Sequence[Column], key: Sequence[str]
    ) -> None:
        """Create the target table unless it exists; ``key`` is its primary key, if any. Commits."""

    def create_own_tables(self, session: Session, sibling: TableName) -> None:
        """Create ledger and directory in the schema of ``sibling`` unless they exist. Two may race.
        Commits.

        A user without the right to create tables may have had them created by somebody else: look
        first.
        """

    def create_decision_tables(self, session: Session, schema: str | None) -> None:
        """Create ``exactum_decisions`` and ``exactum_decision_floors`` unless they exist (see
        ``decision_log``). Commits."""

    def lagging_standbys(self, session: Session) -> int:
        """How many standbys follow the server, none of which a COMMIT waits for; 0 where that
        cannot be told.
        """

    def create_staging(self, session: Session, name: TableName, columns: Sequence[Column]) -> None:
        """Create a staging table unless it exists: ``exactum_part``, ``exactum_row`` (both bigint,
        nullable), and the columns by their types, all nullable, without defaults and constraints.
        Durable (logged). Commits."""

    def list_staging(self, session: Session, sibling: TableName, prefix: str) -> list[TableName]:
        """The tables in the schema of ``sibling`` whose names begin with exactly ``prefix``."""

    def drop_staging(self, session: Session, name: TableName) -> None:
        """Drop it if it exists and is empty and nobody uses it; else leave it. Commits."""

    # ---- rows --------------------------------------------------------------------------------

    def loader(
        self,
        session: Session,
        name: TableName,
        columns: Sequence[Column],
        part: int | None,
        first_row: int | None,
    ) -> Loader:
        """Begin a bulk load. With ``part``, ``exactum_part`` is filled with it; with ``first_row``,
        ``exactum_row`` is filled with ``first_row``, ``first_row + 1``, ..."""

    def move(self, session: Session, move: RowMove) -> int:
        """See ``RowMove``. Returns how many rows of the staging were used, counted as the server
        reports for an INSERT in APPEND mode, in UPSERT mode any number: the caller counts the
        staging when it differs from what it expects. Checks deferred constraints at once, where the
        server has such."""

    def count(self, session: Session, staging: TableName, parts: Sequence[int]) -> dict[int, int]:
        """Rows of each part in the staging table; a part without rows may be left out."""

    def clear(
        self,
        session: Session,
        staging: TableName,
        parts: Sequence[int],
        is_alone: Callable[[], bool],
    ) -> None:
        """Remove these parts' rows, inside the session's transaction.

        A dialect whose TRUNCATE is transactional may use it, but only if it gets the table's
        exclusive lock at once and ``is_alone()``, asked under that lock, says that no other part's
        rows are there; else it deletes row by row.
        """

    # ---- prepared transactions ---------------------------------------------------------------

    def check_prepared(self, session: Session, where: str) -> None:
        """Whether the server and the user can do two-phase commit at all.

        Raises:
            SettingRefused: says which setting or right is missing and how to give it.
        """

    def begin_prepared(self, session: Session, gid: str) -> None:
        """Begin a transaction that ``prepare`` can prepare. ``gid``: at most 62 characters of
        [0-9a-z_].
        """

    def prepare(self, session: Session, gid: str) -> None:
        """Prepare the transaction begun under ``gid``; the session is then free for others, or
        closed (``usable`` is False) where the server lets nobody else finish it before its
        connection has ended.

        Raises:
            SqlFailure: ROWS, LOST, BUSY.
        """

    def commit_prepared(self, session: Session, gid: str) -> None:
        """Raises SqlFailure: NO_SUCH_PREPARED, BUSY, LOST."""

    def roll_back_prepared(self, session: Session, gid: str) -> None:
        """Raises SqlFailure: NO_SUCH_PREPARED, BUSY, LOST."""

    def inspect_prepared(self, session: Session) -> list[PreparedOnServer]:
        """Everybody's prepared transactions, as far as the user may list them, in this database
        where the server keeps them apart.
        """

    def list_directories(self, session: Session) -> list[TableName]:
        """Every directory that the user may read, in any schema."""

    def list_prepared(self, session: Session, prefix: str) -> list[str]:
        """The gids of prepared transactions, in this database where the server keeps them apart,
        that begin with exactly ``prefix``."""
