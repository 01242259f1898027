"""A session to PostgreSQL by psycopg 3: settings, statements, and every error classified and
scrubbed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.packages import not_installed
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.statements import Statements, unsubstituted
from exactum.sql.table import TableName
from exactum.sql.url import Address, merged, refuse_plain_signs

if TYPE_CHECKING:
    import psycopg

    from exactum.sql.postgres.connection import PostgresConnection


sql = Statements("exactum.sql.postgres", '"')
quote, quote_table = sql.quote, sql.quote_table


def regclass(name: TableName) -> str:
    """The name as an argument for ``to_regclass`` and ``::regclass``."""
    return unsubstituted(quote_table(name))


# ---- errors ----------------------------------------------------------------------------------


READ_ONLY = "25006"
"""The server is a standby, or has become one: another connection may lead to the primary."""
_CODES = {
    ServerFailure.LOST: ("57P01", "57P02", "57P05", "25P03", "25P04", "08"),
    # serialization, deadlock, a lock, two starts that create one table; and the classes of
    # insufficient resources, of an operator's intervention, of the machine
    ServerFailure.BUSY: (
        "40001", "40P01", "55006", "55P03", "42P06", "42P07", "42710", "53", "57", "58",
    ),
    ServerFailure.DENIED: ("42501", "28"),
    ServerFailure.MISSING: ("42P01", "3D", "3F"),
    ServerFailure.ROWS: ("21", "22", "23", "44", "54", "P0"),  # 54: beyond a page or an index
}  # fmt: skip
"""SQLSTATEs, and classes of them: the first two characters."""
_FAILURE_OF = {code: failure for failure, codes in _CODES.items() for code in codes}
_WORDS = {
    ServerFailure.BUSY: ("too many clients", "connection slots", "too many connections"),
    ServerFailure.DENIED: (
        "authentication failed", "no pg_hba.conf entry", "permission denied", "role ",
        "certificate", "does not support SSL", "no password supplied",
    ),
    ServerFailure.MISSING: ('" does not exist',),
    # What options that the user gave cannot become, as often as it is tried.
    ServerFailure.OTHER: (
        "invalid ", "bad value for", "could not parse network address", "could not match",
        "definition of service", "unrecognized configuration parameter", "channel binding required",
        "authentication method", "encryption required", "private key", "is not in hot standby mode",
        "session is not read-only", "codec",
    ),
}  # fmt: skip


def failure_of(code: str) -> ServerFailure:
    """By the SQLSTATE, else by its class; OTHER where neither is listed."""
    return _FAILURE_OF.get(code) or _FAILURE_OF.get(code[:2], ServerFailure.OTHER)


def connect_failure(address: Address, error: Exception) -> SqlFailure:
    """libpq gives no SQLSTATE here, so the words must do; an unknown language reads as LOST, which
    is tried again.
    """
    text = address.scrub(str(error))
    for failure, words in _WORDS.items():
        if any(word in text for word in words):
            return SqlFailure(failure, "", text)
    return SqlFailure(ServerFailure.LOST, "", text)


# ---- the session -----------------------------------------------------------------------------


CONNECT_TIMEOUT_S = 10
DRIVER_IDLE_MAX_S = 30
"""How long a driver may idle in a transaction before PostgreSQL ends its session: a stopped one
must not hold the locks of an epoch for ever. A driver that was only slow does the same again."""
DEFAULTS = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
PLACE = {"host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE"}
"""The options that say where a database is, and the variables that do where the options do not."""
LIBPQ_PRIMARY = 140_000
"""The first libpq that can ask for a primary."""
NAME_MAX = 63
"""Bytes of an application_name."""
UNREPLICATED = "SyncRepWaitForLSN"
"""The server's function that warns of a commit whose wait for a synchronous standby was cancelled:
it is told as done, and a failover may undo it."""


def driver() -> Any:
    """The module ``psycopg``.

    Raises:
        SettingRefused: it is not installed.
    """
    try:
        import psycopg
    except ImportError as error:  # also where psycopg is there, and no libpq
        raise SettingRefused(
            "PACKAGE_MISSING",
            f"{not_installed('PostgreSQL needs', 'psycopg', 'postgres')} (Python says: {error})",
        ) from None
    return psycopg


def address_of(url: str, further: Any, where: str) -> Address:
    """Where ``url`` points to: ``postgresql://user:password@host:port/database?option=value``,
    anything else that libpq takes, with ``further`` libpq options.

    Raises:
        SettingRefused: libpq cannot read it; or psycopg is not installed.
    """
    psycopg = driver()
    from psycopg import conninfo

    try:
        read = {k: str(v) for k, v in conninfo.conninfo_to_dict(url).items() if v is not None}
        options = merged(read, further, where)
        conninfo.make_conninfo("", **dict(options))
    except (psycopg.Error, TypeError, AttributeError):
        # libpq's message may repeat the URL, and the URL may hold a password.
        raise SettingRefused(
            "SQL_URL",
            f"{where}: the URL or an option of connect= is nothing that libpq can read; it must "
            "look like postgresql://user:password@host:port/database?sslmode=require. (Special "
            "characters in a password are written as %XX.)",
        ) from None
    refuse_plain_signs(url, read.get("host"), where)
    final = dict(options)
    user = f"{final['user']}@" if "user" in final else ""
    return Address(f"postgresql://{user}{_server(final)}/{place_of(final)['dbname']}", options)


def _server(given: Mapping[str, str]) -> str:
    asked, service = place_of(given), service_of(given)
    own = [given.get("host") or given.get("hostaddr"), given.get("port"), given.get("dbname")]
    if service and not own[0]:  # a file of libpq's says it, and is stronger than the variables
        return f"service={service}"
    if service and not all(own):  # it may say what is left out
        return ":".join([*filter(None, own[:2]), f"service={service}"])
    return f"{asked['host'] or asked['hostaddr'] or 'localhost'}:{asked['port'] or '5432'}"


def service_of(given: Mapping[str, str]) -> str:
    """The service that libpq looks up, by ``given`` options or its variable; empty without one."""
    return given.get("service") or os.environ.get("PGSERVICE", "")


def place_of(given: Mapping[str, str]) -> dict[str, str]:
    """host, hostaddr, port and dbname, by ``given`` options or libpq's variables; empty where
    neither says.
    """
    return {n: given.get(n) or os.environ.get(variable, "") for n, variable in PLACE.items()}


def connect(address: Address, label: str, lock_timeout_s: float) -> PostgresSession:
    """See ``Dialect.connect``."""
    session = opened(address, label)
    try:
        timeouts = (f"{round(lock_timeout_s * 1000)}ms", f"{DRIVER_IDLE_MAX_S * 1000}ms")
        forgets = session.query(sql("set_up_session"), timeouts)[0][0]
        session.commit()
    except SqlFailure:
        session.close()
        raise
    if forgets:
        session.close()
        raise SettingRefused(
            "SQL_SERVER",
            f"{address.where}: the server forgets what it has committed, or loses the whole "
            "database, when its machine crashes (fsync=off). Where that is on its command "
            "line, as in test containers, start it without; else ALTER SYSTEM SET fsync = on, and "
            "SELECT pg_reload_conf(). Nothing was written.",
        )
    return session


def opened(address: Address, label: str) -> PostgresSession:
    """A session as the server and the user's options make it, with nothing set by us.

    Raises:
        SettingRefused, SqlFailure: as ``Dialect.connect``.
    """
    psycopg = driver()
    from exactum.sql.postgres.connection import PostgresConnection

    defaults = {
        "application_name": label[:NAME_MAX],
        "connect_timeout": str(CONNECT_TIMEOUT_S),
        **DEFAULTS,
    }
    options: dict[str, Any] = {**defaults, **_primary_of_many(address), **dict(address.options)}
    try:
        connection = PostgresConnection.connect(**options, prepare_threshold=None)
    except (psycopg.Error, UnicodeError) as error:
        raise connect_failure(address, error) from None
    return PostgresSession(connection, address)


def _primary_of_many(address: Address) -> dict[str, str]:
    """Of several hosts the one that takes writes, wherever it is by now; libpq would take the first
    that answers.
    """
    asked = place_of(dict(address.options))
    if "," not in asked["host"] + asked["hostaddr"]:
        return {}
    from psycopg import pq

    return {"target_session_attrs": "primary" if pq.version() >= LIBPQ_PRIMARY else "read-write"}


class PostgresSession(Session):
    """See the base class."""

    def __init__(self, connection: PostgresConnection, address: Address) -> None:
        import psycopg

        super().__init__(connection, address, (psycopg.Error,))
        self._unreplicated = ""
        connection.add_notice_handler(self._noticed)

    def commit(self) -> None:
        super().commit()
        if self._unreplicated:
            self.close()
            raise SqlFailure(ServerFailure.LOST, "", self._unreplicated)

    @property
    def usable(self) -> bool:
        return not self.connection.closed

    def _noticed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == UNREPLICATED:
            self._unreplicated = self.address.scrub(
                f"{notice.message_primary}: {notice.message_detail}"
            )

    def classified(self, error: Any) -> SqlFailure:
        import psycopg

        code = error.sqlstate or ""
        detail = " ".join(part for part in (error.diag.message_detail, error.diag.context) if part)
        text = self.address.scrub(f"{error.diag.message_primary or error} {detail}".strip())
        if not self.usable or not code:
            unanswered = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            lost = not self.usable or unanswered
            return SqlFailure(ServerFailure.LOST if lost else ServerFailure.ROWS, code, text)
        if code == READ_ONLY:
            return SqlFailure(ServerFailure.LOST, code, text)
        in_catalog = error.diag.schema_name == "pg_catalog"
        return SqlFailure(
            ServerFailure.BUSY if in_catalog and code == "23505" else failure_of(code), code, text
        )
