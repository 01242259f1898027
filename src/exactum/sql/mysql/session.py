"""One connection to MySQL or MariaDB by PyMySQL, in the state that exactum's statements rely on."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exactum.errors import SettingRefused
from exactum.packages import not_installed
from exactum.sql.session import ServerFailure, Session, SqlFailure
from exactum.sql.statements import Statements
from exactum.sql.url import Address, merged, split_url

if TYPE_CHECKING:
    from exactum.sql.mysql.connection import Connection


sql = Statements("exactum.sql.mysql", "`")
quote, quote_table = sql.quote, sql.quote_table


# ---- errors ----------------------------------------------------------------------------------


_CODES: dict[ServerFailure, tuple[int, ...]] = {
    ServerFailure.LOST: (
        0,  # PyMySQL: the connection is closed already
        1053,  # server shutdown in progress
        1158, 1159, 1160, 1161,  # torn communication
        1927,  # MariaDB: connection was killed
        3169,  # MySQL: session was killed
        4031,  # MySQL: disconnected because of inactivity
        2003, 2006, 2013,  # PyMySQL: not reached, gone, lost during a query
        1290, 1836,  # read-only, as in a failover: another connection may lead to the new primary
    ),
    ServerFailure.BUSY: (
        1040, 1203, 1226,  # too many connections
        1205, 1206, 1213, 3572,  # lock wait timeout, no room for locks, deadlock, NOWAIT
        1020,  # MariaDB with innodb_snapshot_isolation: changed since last read
        1047,  # Galera: the node is not ready for statements
        1317, 1969, 3024,  # interrupted, statement time
        1412,  # the table's definition has changed meanwhile
        1050,  # another start has made the table
        1021, 1114,  # a disk, or a table, that is full
        1180, 3101,  # the COMMIT failed, as where a cluster of servers does not agree to it
    ),
    ServerFailure.DENIED: (1044, 1142, 1143, 1227, 1370),
    ServerFailure.MISSING: (1049, 1146),
    ServerFailure.ROWS: (
        1048, 1364,  # null
        1264, 1690,  # beyond a range
        1153, 1265, 1406,  # too large, cut, too long
        1292, 1366, 1411, 1416, 3140,  # no value of the type
        1022, 1062,  # a key that is there
        1451, 1452,  # foreign keys
        1526,  # no partition takes it
        3819, 4025,  # CHECK
        1644,  # a trigger's own refusal
    ),
}  # fmt: skip
_FAILURE_OF = {code: failure for failure, codes in _CODES.items() for code in codes}


def classified(error: Exception, address: Address) -> SqlFailure:
    """PyMySQL's error, or the operating system's under it, as ours. The text holds no secret."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if code is not None and len(error.args) > 1 else str(error)
    if isinstance(error, OSError):
        return SqlFailure(ServerFailure.LOST, "", address.scrub(f"{type(error).__name__}: {error}"))
    if code == 0:
        text = text or "the connection is closed"
    return SqlFailure(
        failure_of(code),
        "" if code is None else str(code),
        address.scrub(text or type(error).__name__),
    )


def failure_of(code: int | None) -> ServerFailure:
    """OTHER for a number that is not listed, and for none."""
    return ServerFailure.OTHER if code is None else _FAILURE_OF.get(code, ServerFailure.OTHER)


# ---- the session -----------------------------------------------------------------------------


CONNECT_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 3_600
"""Longest wait for the answer to one statement: the move of a large epoch may take minutes."""
IDLE_TRANSACTION_TIMEOUT_S = 30
"""A stopped driver holds its locks no longer than this: its successor waits longer."""
MARIADB_MIN = (10, 6)
MYSQL_MIN = (8, 0)


def _port(text: str) -> int:
    if not 0 < int(text) < 1 << 16:
        raise ValueError(text)
    return int(text)


def _flag(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false", "1", "0", "yes", "no", "on", "off"):
        raise ValueError(text)
    return lowered in ("true", "1", "yes", "on")


OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "host": str,
    "port": _port,
    "user": str,
    "password": str,
    "database": str,
    "unix_socket": str,
    "bind_address": str,
    "connect_timeout": float,
    "read_timeout": float,
    "write_timeout": float,
    "local_infile": _flag,
    "ssl_ca": str,
    "ssl_cert": str,
    "ssl_key": str,
    "ssl_key_password": str,
    "ssl_disabled": _flag,
    "ssl_verify_cert": _flag,
    "ssl_verify_identity": _flag,
    "server_public_key": str,
}
"""PyMySQL's options that a user may set. The others would change what exactum's statements mean."""
SCHEMES = ("mysql", "mariadb")
DEFAULT_HOST = "localhost"
DEFAULT_PORT = "3306"


def address_of(url: str, connect: Mapping[str, object] | None, where: str) -> Address:
    """The server that a URL and further options name.

    Raises:
        SettingRefused: the URL cannot be read or names no database; an option is unknown or of the
            wrong type.
    """
    options = {"host": DEFAULT_HOST, "port": DEFAULT_PORT, **split_url(url, SCHEMES, where)}
    pairs = merged(options, connect, where)
    final = dict(pairs)
    if not final.get("database"):
        raise SettingRefused(
            "SQL_URL",
            f"{where}: the URL names no database; it must look like "
            "mysql://user:password@host/database.",
        )
    for name, value in pairs:
        _check_option(name, value, where)
    user = f"{final['user']}@" if final.get("user") else ""
    server = f"{final['host'] or DEFAULT_HOST}:{final['port']}"
    if final.get("unix_socket"):  # PyMySQL goes there, whatever the host is
        server = f"unix:{final['unix_socket']}"
    return Address(f"mysql://{user}{server}/{final['database']}", pairs)


def _check_option(name: str, value: str, where: str) -> None:
    """An error shows no value: it may be a password under a wrong name."""
    if name not in OPTIONS:
        raise SettingRefused(
            "SQL_URL",
            f"{where}: connect={{{name!r}: ...}} is not an option that can be set here. These can: "
            f"{', '.join(sorted(OPTIONS))}.",
        )
    try:
        OPTIONS[name](value)
    except ValueError:
        raise SettingRefused(
            "SQL_URL", f"{where}: the value of connect={{{name!r}: ...}} is of the wrong kind."
        ) from None


class MySQLSession(Session):
    """See the base class. UTC, strict. ``takes_files``: the server may ask for a "file" (LOAD DATA
    LOCAL). ``packet_bytes``: longest statement.
    """

    packet_bytes = 1 << 30

    def __init__(self, connection: Connection, address: Address, takes_files: bool) -> None:
        import pymysql

        super().__init__(connection, address, (pymysql.err.Error, OSError))
        self.takes_files = takes_files
        self.version = str(connection.get_server_info())  # type: ignore[no-untyped-call]
        self.is_mariadb = "mariadb" in self.version.lower()

    @property
    def usable(self) -> bool:
        return bool(self.connection.open)

    def classified(self, error: Exception) -> SqlFailure:
        return classified(error, self.address)

    def execute(self, sql: str, arguments: Sequence[object] = ()) -> int:
        with self.failing(), self.connection.cursor() as cursor:
            statement = cursor.mogrify(sql, tuple(arguments))
            size = len(statement.encode(errors="surrogateescape"))
            if size >= self.packet_bytes:  # a server that gets it may just end the connection
                why = (
                    f"this needs a statement of {size} bytes, and the server takes less than "
                    f"{self.packet_bytes} (max_allowed_packet). Set more there, or make the "
                    "micro-batches smaller"
                )
                raise SqlFailure(ServerFailure.OTHER, "", why)
            return int(cursor.execute(statement))

    def send(self, statement: bytes, local_file: str | None = None) -> tuple[int, int]:
        """Run a statement as it is, without substitution; returns (rows affected, number of
        warnings).

        The server may ask for ``local_file`` meanwhile, and for no other.
        """
        self.connection.local_file = None if local_file is None else local_file.encode()
        try:
            with self.failing(), self.connection.cursor() as cursor:
                cursor.execute(statement)
                return int(cursor.rowcount), int(cursor.warning_count)
        finally:
            self.connection.local_file = None


def connect(address: Address, label: str, lock_timeout_s: float) -> MySQLSession:
    """A new session.

    Raises:
        SettingRefused: PyMySQL is not installed; the server is too old, logs by statement, or does
            not keep commits.
        SqlFailure: no connection could be made, or the server refused it.
    """
    try:
        import pymysql

        from exactum.sql.mysql.connection import Connection
    except ImportError:
        raise SettingRefused(
            "PACKAGE_MISSING", not_installed(f"{address.where} needs", "pymysql", "mysql")
        ) from None
    options = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": STATEMENT_TIMEOUT_S,
        "write_timeout": STATEMENT_TIMEOUT_S,
        "local_infile": True,
        **{name: OPTIONS[name](text) for name, text in address.options},
        "charset": "utf8mb4",
        "autocommit": False,
        "program_name": label,
    }
    try:
        connection = Connection(**options)
    except pymysql.err.Error as error:
        failure = classified(error, address)
        if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
            raise SettingRefused(
                "SQL_TLS",
                f"{address.where}: no TLS connection that connect={{...}} allows: {failure}. Give "
                "the certificate of the authority that signed the server's (ssl_ca), or connect "
                "by the name that the certificate is for.",
            ) from error
        known = (ServerFailure.LOST, ServerFailure.BUSY, ServerFailure.MISSING)
        kind = failure.failure if failure.failure in known else ServerFailure.DENIED
        raise SqlFailure(kind, "", str(failure)) from error  # not of a statement
    # What comes from the network is wrapped: this is a file of TLS, a host's name or a number.
    except (OSError, ValueError) as error:
        raise SettingRefused(
            "SQL_URL", f"{address.where}: {address.scrub(f'{type(error).__name__}: {error}')}"
        ) from error
    except RuntimeError as error:  # the package cryptography is missing, which some logins need
        raise SettingRefused("SQL_URL", f"{address.where}: {address.scrub(str(error))}") from None
    session = MySQLSession(connection, address, bool(options["local_infile"]))
    try:
        _check_version(session)
        _set_up(session, lock_timeout_s)
    except BaseException:
        session.close()
        raise
    return session


def _set_up(session: MySQLSession, lock_timeout_s: float) -> None:
    wait_s = max(1, round(lock_timeout_s))
    mariadb = session.is_mariadb
    settings = sql(
        "set_up_session",
        isolation="tx_isolation" if mariadb else "transaction_isolation",
        idle_timeout="idle_transaction_timeout" if mariadb else "wait_timeout",
    )
    session.execute(settings, (wait_s, wait_s, IDLE_TRANSACTION_TIMEOUT_S))
    _check_server(session)
    session.rollback()


def _check_version(session: MySQLSession) -> None:
    """MySQL below 8 has no window functions."""
    kind, least = ("MariaDB", MARIADB_MIN) if session.is_mariadb else ("MySQL", MYSQL_MIN)
    plain = session.version.removeprefix("5.5.5-")  # MariaDB's disguise for old replicas
    numbers = tuple(int(n) for n in plain.split("-")[0].split(".")[:2] if n.isdigit())
    if len(numbers) == 2 and numbers < least:
        raise SettingRefused(
            "SQL_SERVER",
            f"{session.address.where} is {kind} {plain}; exactum needs {kind} "
            f"{least[0]}.{least[1]} or later.",
        )


def _check_server(session: MySQLSession) -> None:
    rows = session.query(sql("read_settings"))
    values = {str(name).lower(): str(value).upper() for name, value in rows}
    session.packet_bytes = int(values["max_allowed_packet"])
    # With a binary log InnoDB leaves it to that log to keep a commit (MariaDB's page "Binary Log
    # Group Commit and InnoDB Flushing Performance"); 3, of MariaDB, has InnoDB keep it as well.
    flush = values.get("innodb_flush_log_at_trx_commit", "1")
    setting, found = "innodb_flush_log_at_trx_commit", flush
    if flush == "1" and values.get("log_bin") == "ON":
        setting, found = "sync_binlog", values.get("sync_binlog", "1")
    why = None
    if values.get("log_bin") == "ON" and values.get("binlog_format") == "STATEMENT":
        why = (
            "the server logs by statement (binlog_format=STATEMENT), with which InnoDB takes no "
            "writes in READ COMMITTED. Set binlog_format to ROW or MIXED."
        )
    elif found != "1" and flush != "3" and values.get("wsrep_on") != "ON":  # Galera keeps commits
        why = (
            f"the server forgets what it has committed when its machine crashes ({setting}="
            f"{found}). SET GLOBAL {setting} = 1, and set it in the server's configuration file."
        )
    if why is not None:
        raise SettingRefused("SQL_SERVER", f"{session.address.where}: {why}")
