"""MySQL's and MariaDB's error numbers, and what each means for us."""

from __future__ import annotations

from exactum.sql.dialect import Failure, SqlFailure
from exactum.sql.url import Address

XAER_NOTA = 1397
LOCK_WAIT_TIMEOUT = 1205

_CODES: dict[Failure, frozenset[int]] = {
    Failure.LOST: frozenset({
        0,  # PyMySQL: the connection is closed already
        1053,  # server shutdown in progress
        1077, 1078, 1079, 1080,  # shutdown, forced close
        1152, 1153, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184,  # aborted or torn communication
        1927,  # MariaDB: connection was killed
        3169,  # MySQL: session was killed
        4031,  # MySQL: disconnected because of inactivity
        2002, 2003, 2005, 2006, 2012, 2013, 2014, 2055,  # the client's own
    }),
    Failure.BUSY: frozenset({
        1040, 1203, 1226,  # too many connections
        1205, 1213, 3572, 1689,  # lock wait timeout, deadlock, NOWAIT
        1020,  # MariaDB with innodb_snapshot_isolation: changed since last read
        1317, 1969, 3024,  # interrupted, statement time
        1412, 1615,  # the table's definition has changed meanwhile
        1637,  # too many active transactions
        1613, 1614,  # XA_RBTIMEOUT, XA_RBDEADLOCK
    }),
    Failure.DENIED: frozenset({
        1044, 1045, 1142, 1143, 1227, 1251, 1129, 1130, 1370, 1410, 1524, 1698, 1820, 1862,
        2026, 2059, 2061, 2068, 3118, 3955,
        4151,
    }),
    Failure.MISSING: frozenset({1049, 1051, 1054, 1109, 1146, 1193, 1932}),
    Failure.EXISTS: frozenset({1007, 1050}),
    Failure.ROWS: frozenset({
        1048, 1062, 1136, 1169, 1171, 1216, 1217, 1261, 1262, 1263, 1264, 1265, 1292, 1300, 1364, 1365, 1366, 1367,
        1406, 1411, 1416, 1441, 1451, 1452, 1525, 1557, 1586, 1644, 1690, 1748, 1761, 1762, 1859, 3140, 3141, 3819,
        3854, 3903, 4025, 4078,
    }),
}  # fmt: skip
_FAILURE_OF = {code: failure for failure, codes in _CODES.items() for code in codes}


def classified(error: Exception, address: Address) -> SqlFailure:
    """PyMySQL's error, or the operating system's under it, as ours. The text holds no secret."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if code is not None and len(error.args) > 1 else str(error)
    if isinstance(error, OSError):
        return SqlFailure(Failure.LOST, "", address.scrub(f"{type(error).__name__}: {error}"))
    if code == 0:
        text = text or "the connection is closed"
    failure = Failure.OTHER if code is None else _FAILURE_OF.get(code, Failure.OTHER)
    return SqlFailure(failure, "" if code is None else str(code), address.scrub(text or type(error).__name__))


def failure_of(code: int) -> Failure:
    return _FAILURE_OF.get(code, Failure.OTHER)
