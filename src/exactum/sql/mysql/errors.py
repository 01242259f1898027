"""MySQL's and MariaDB's error numbers, and what each means for us."""

from __future__ import annotations

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.url import Address

XAER_NOTA = 1397

_CODES: dict[ServerFailure, frozenset[int]] = {
    ServerFailure.LOST: frozenset({
        0,  # PyMySQL: the connection is closed already
        1053,  # server shutdown in progress
        1077, 1078, 1079, 1080,  # shutdown, forced close
        1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184,  # aborted or torn communication
        1927,  # MariaDB: connection was killed
        3169,  # MySQL: session was killed
        4031,  # MySQL: disconnected because of inactivity
        2002, 2003, 2005, 2006, 2012, 2013, 2014, 2055,  # the client's own
        1290, 1836,  # read-only, as in a failover: another connection may lead to the new primary
    }),
    ServerFailure.BUSY: frozenset({
        1040, 1203, 1226,  # too many connections
        1205, 1206, 1213, 3572, 1689,  # lock wait timeout, no room for locks, deadlock, NOWAIT
        1020,  # MariaDB with innodb_snapshot_isolation: changed since last read
        1047,  # Galera: the node is not ready for statements
        1317, 1969, 3024,  # interrupted, statement time
        1412, 1615,  # the table's definition has changed meanwhile
        1637,  # too many active transactions
        1613, 1614,  # XA_RBTIMEOUT, XA_RBDEADLOCK
    }),
    ServerFailure.DENIED: frozenset({
        1044, 1045, 1142, 1143, 1227, 1251, 1129, 1130, 1370, 1410, 1524, 1698, 1820, 1862,
        2026, 2059, 2061, 2068, 3118, 3955,
        4150, 4151,
    }),
    ServerFailure.MISSING: frozenset({1049, 1051, 1054, 1109, 1146, 1193, 1932}),
    ServerFailure.EXISTS: frozenset({1007, 1050}),
    ServerFailure.ROWS: frozenset({
        1048, 1138, 1263,  # null
        1264, 1365, 1441, 1690, 1916, 3732,  # beyond a range
        1118, 1153, 1162, 1261, 1262, 1265, 1301, 1406, 1713, 1917,  # too long, too many, cut
        # no value of the type
        1292, 1299, 1300, 1366, 1367, 1411, 1416, 1525, 1918, 3140, 3141, 3144, 3157,
        4035, 4036, 4037, 4038, 4039, 4040,  # MariaDB: JSON
        1022, 1062, 1169, 1586, 1761, 1762, 1859,  # a key that is there
        1216, 1217, 1451, 1452,  # foreign keys
        1526, 1563, 1591, 1748,  # no partition takes it
        1369, 3819, 4025,  # CHECK
        1242, 1644, 1645,  # a trigger's own refusal
        1136, 1171, 1364, 1557, 3854, 3903,
    }),
    ServerFailure.UNFIT: frozenset({
        1036, 1046, 1164, 1197, 1286, 1467, 1785, 1906, 1907, 1967, 4079, 4084, 4139,
        *range(1055, 1062), 1063, *range(1064, 1077), 1083, 1084, *range(1089, 1094), 1096,
        *range(1099, 1105), *range(1106, 1109), *range(1110, 1114), *range(1115, 1118),
        *range(1120, 1129), 1137, 1139, 1140, 1149, 1163, 1166, 1167, 1168, 1170, 1172, 1173, 1175,
        1176, 1191, 1210, 1221, 1222, *range(1230, 1236), 1239, 1240, 1241, *range(1245, 1251),
        1253, 1267, *range(1270, 1274), 1288, 1289, *range(1293, 1296), 1298, *range(1302, 1317),
        *range(1318, 1364), 1393, 1394, 1395, 1407, *range(1413, 1416), *range(1417, 1428), 1435,
        1437, 1439, *range(1442, 1451), *range(1454, 1460), 1462, 1464, 1471, *range(1478, 1524),
        1709, 4078,
    }) - {1369},
}  # fmt: skip
"""Everything else may be mended by another try: a disk that is full."""
_FAILURE_OF = {code: failure for failure, codes in _CODES.items() for code in codes}


def classified(error: Exception, address: Address) -> SqlFailure:
    """PyMySQL's error, or the operating system's under it, as ours. The text holds no secret."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    text = str(error.args[1]) if code is not None and len(error.args) > 1 else str(error)
    if isinstance(error, OSError):
        return SqlFailure(ServerFailure.LOST, "", address.scrub(f"{type(error).__name__}: {error}"))
    if code == 0:
        text = text or "the connection is closed"
    failure = ServerFailure.OTHER if code is None else _FAILURE_OF.get(code, ServerFailure.OTHER)
    return SqlFailure(
        failure, "" if code is None else str(code), address.scrub(text or type(error).__name__)
    )


def failure_of(code: int) -> ServerFailure:
    return _FAILURE_OF.get(code, ServerFailure.OTHER)
