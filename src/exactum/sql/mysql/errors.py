"""MySQL's and MariaDB's error numbers, and what each means for us."""

from __future__ import annotations

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.url import Address

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
