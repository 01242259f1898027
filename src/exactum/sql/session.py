"""A connection to a server: what it does, how it fails, and made again when it breaks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.sql.url import Address

if TYPE_CHECKING:
    from exactum.sql.dialect import Dialect

T = TypeVar("T")


class ServerFailure(Enum):
    """What is done about a server's error; the dialect maps its codes to these.

    A code that is not listed is OTHER, which stops the query with the server's words. So it is
    never taken for a success, and never tried again without end.
    """

    LOST = "the connection was lost or not made; a COMMIT under way may have taken effect"
    BUSY = (
        "a lock, no free connection, no room on the disk, a race with another session: the "
        "transaction is rolled back, the same again may succeed"
    )
    DENIED = "authentication or rights"
    MISSING = "a database, a schema or a table that does not exist"
    CHANGED = (
        "the table's definition is another one than at the query's start: a new start knows it"
    )
    ROWS = "the rows break a constraint or do not fit a type: the same again fails again"
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


class Session(ABC):
    """One connection: READ COMMITTED, no autocommit (the first statement begins a transaction), one
    thread.

    Every method raises ``SqlFailure`` and nothing else of the client library. ``connection`` is
    that library's own, by Python's DB-API, and ``errors`` are all that it raises.
    """

    def __init__(
        self, connection: Any, address: Address, errors: tuple[type[Exception], ...]
    ) -> None:
        self.connection = connection
        self.address = address
        self._errors = errors

    def execute(self, sql: str, arguments: Sequence[object] = ()) -> int:
        """Run one statement; returns the number of rows it affected (matched or inserted)."""
        with self.failing(), self.connection.cursor() as cursor:
            cursor.execute(sql, tuple(arguments))
            return int(cursor.rowcount)

    def query(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one statement and return all its rows."""
        with self.failing(), self.connection.cursor() as cursor:
            cursor.execute(sql, tuple(arguments))
            return list(cursor.fetchall())

    def commit(self) -> None:
        with self.failing():
            self.connection.commit()

    def rollback(self) -> None:
        """Idempotent, never raises. Where it fails the session is closed, and the server undoes the
        transaction.
        """
        if self.usable:
            try:
                with self.failing():
                    self.connection.rollback()
            except SqlFailure:
                self.close()

    def close(self) -> None:
        """Idempotent; never raises."""
        with suppress(*self._errors):  # it is gone, which is what was wanted
            self.connection.close()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Errors of the client library come out as ``SqlFailure``. One that is LOST is closed."""
        try:
            yield
        except self._errors as error:
            failure = self.classified(error)
            if failure.failure is ServerFailure.LOST:
                self.close()
            raise failure from None

    @property
    @abstractmethod
    def usable(self) -> bool:
        """False once the connection is known to be broken or closed."""

    @abstractmethod
    def classified(self, error: Any) -> SqlFailure:
        """One of ``errors``."""


TRANSIENT = frozenset({ServerFailure.LOST, ServerFailure.BUSY})
"""The same again may succeed."""


def refusal(session: Session, statement: str) -> ServerFailure | None:
    """Why the server refuses the statement, which is rolled back; None: it does not.

    Raises:
        SqlFailure: the same again may succeed.
    """
    try:
        session.execute(statement)
    except SqlFailure as failure:
        if failure.failure in TRANSIENT:
            raise
        return failure.failure
    finally:
        session.rollback()
    return None


def port_error(failure: SqlFailure, where: str) -> ExactumError:
    """For the driver, where nothing is known to have changed."""
    said = f"{where}: {failure}"
    if not said.endswith((".", "?", "!")):  # a question of the server is left as it is
        said += "."
    match failure.failure:
        case ServerFailure.LOST | ServerFailure.BUSY | ServerFailure.CHANGED:
            return Unavailable(f"{said} Nothing is known to have changed; start the query again.")
        case ServerFailure.DENIED if not failure.code:  # at login
            return SettingRefused(
                "SQL_ACCESS",
                f"{said} The server does not let the user in. Correct user, password and database "
                "in the URL, or what the server allows.",
            )
        case ServerFailure.DENIED:
            return SettingRefused(
                "SQL_ACCESS",
                f"{said} The server refused the user. It needs to read and insert in the table "
                "(to update and delete, too, for an upsert), and once to create exactum's tables "
                "beside it.",
            )
        case _:
            todo = "Correct or put back what the server names, and start the query again."
            return SettingRefused("SQL_REFUSED", f"{said} {todo}")


# ---- made again when it breaks ---------------------------------------------------------------


TIMEOUT_S = 60.0
"""How long a step is tried again while the server is away or locks are held: longer than a restart,
and than the server lets a stopped driver idle in its transaction."""
LOCK_TIMEOUT_S = 20.0
"""Longest that a statement of ours waits for somebody else's lock."""
PAUSE_S = 0.05
PAUSE_MAX_S = 2.0
TRIES_MIN = 2
"""However late it is: where the machine stood still for the whole time, the server has ended the
session, and nothing was tried."""


@contextmanager
def asking(
    dialect: Dialect,
    address: Address,
    label: str,
    where: str,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
) -> Iterator[Session]:
    """A session for some questions; what it has not committed is undone. ``where``: in messages.

    Raises:
        SettingRefused: the client library is not installed, or the server is one that is refused.
        ExactumError: the server did not answer, or refused.
    """
    try:
        session = dialect.connect(address, label, lock_timeout_s)
        try:
            yield session
        finally:
            session.close()
    except SqlFailure as failure:
        raise port_error(failure, where) from failure


class RetryingSession:
    """One thread at a time. ``run`` does one idempotent step."""

    def __init__(self, dialect: Dialect, address: Address, label: str) -> None:
        self._dialect = dialect
        self._address = address
        self._label = label
        self._session: Session | None = None

    def run(self, step: Callable[[Session], T], timeout_s: float | None = None) -> T:
        """Run ``step`` in a session without a transaction; again after a transient failure, for
        ``timeout_s`` (default: ``TIMEOUT_S``), and once at least.

        Raises:
            SqlFailure: not transient, or the last one.
        """
        end_s = time.monotonic() + (TIMEOUT_S if timeout_s is None else timeout_s)
        pause_s = PAUSE_S
        tries = 0
        while True:
            tries += 1
            try:
                session = self._ready()
                return step(session)
            except SqlFailure as failure:
                self.reset()
                late = time.monotonic() + pause_s > end_s
                if failure.failure not in TRANSIENT or (late and tries >= TRIES_MIN):
                    raise
            except BaseException:
                self.reset()
                raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def reset(self) -> None:
        """End the transaction, if there is one; the server undoes it. Idempotent, never raises."""
        if self._session is None:
            return
        self._session.rollback()
        if not self._session.usable:
            self.close()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _ready(self) -> Session:
        if self._session is None or not self._session.usable:
            self.close()
            self._session = self._dialect.connect(self._address, self._label, LOCK_TIMEOUT_S)
        return self._session
