"""XA transactions: prepared by a task's connection, finished by the driver's.

An xid is (format id, gtrid, bqual); ours are (FORMAT_ID, gid, empty). The server lets another
connection finish one only when the connection that prepared it is gone, so ``prepare`` closes it.
Until the server has noticed, it answers XAER_NOTA ("no such xid") and yet lists the xid: that is
``BUSY``. Both servers take an xid off the list only after its commit is visible, so what
is neither known nor listed is settled, and the ledger says how.
"""

from __future__ import annotations

import re

from exactum.errors import SettingRefused
from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.mysql.errors import XAER_NOTA
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import sql

FORMAT_ID = 0x45584143
"""``EXAC``: keeps other programs' xids apart from ours."""
ORPHAN_TIMEOUT_S = 5
"""When a task's machine stops between XA PREPARE and its goodbye, the server ends the connection
after this.
"""

_DENIED = frozenset({"1401", "1227"})
_ROLLED_BACK = frozenset({"1402", "1613", "1614"})
_SQL_FORMAT = re.compile(r"(?:X'([0-9A-Fa-f]*)'|'([^']*)')\s*,")


def begin(session: MySQLSession, gid: str) -> None:
    session.rollback()
    session.execute(sql("begin_xa"), (gid, FORMAT_ID))
    session.in_xa = True


def prepare(session: MySQLSession, gid: str) -> None:
    """Prepare and leave; the session is closed afterwards, also when this fails."""
    try:
        session.execute(sql("set_idle_timeout"), (ORPHAN_TIMEOUT_S,))
        session.execute(sql("end_xa"), (gid, FORMAT_ID))
        session.execute(sql("prepare_xa"), (gid, FORMAT_ID))
    finally:
        session.close()


def commit(session: MySQLSession, gid: str) -> None:
    _finish(session, "commit_xa", gid)


def roll_back(session: MySQLSession, gid: str) -> None:
    _finish(session, "roll_back_xa", gid)


def listed(session: MySQLSession, prefix: str) -> list[str]:
    """The gids of prepared transactions that begin with ``prefix``.

    Empty where the user may not ask (MySQL's XA_RECOVER_ADMIN): then it cannot have prepared any,
    see ``check``.
    """
    try:
        gids = _recover(session)
    except SqlFailure as failure:
        if failure.code not in _DENIED or session.is_mariadb:
            raise
        return []
    return [gid for gid in gids if gid.startswith(prefix)]


def check(session: MySQLSession, where: str) -> None:
    """
    Raises:
        SettingRefused: the server cannot keep XA transactions, or the user may not list them.
    """
    cluster = session.query(sql("read_cluster"))
    if cluster and str(cluster[0][1]).upper() == "ON":
        raise SettingRefused(
            "SQL_PREPARED",
            f"{where}: {session.address.where} is a Galera cluster, which has no XA transactions. "
            "Use mechanism='staged'.",
        )
    try:
        _recover(session)
    except SqlFailure as failure:
        if failure.code not in _DENIED:
            raise
        user = str(session.query(sql("current_user"))[0][0])
        raise SettingRefused(
            "SQL_PREPARED",
            f"{where}: mechanism='prepared' needs the right to list XA transactions, and the user "
            f"{user} has it not: {failure}. Grant it (GRANT XA_RECOVER_ADMIN ON *.* TO "
            f"{_account(user)};), or use mechanism='staged'.",
        ) from failure


def _finish(session: MySQLSession, statement: str, gid: str) -> None:
    try:
        with session.outside_transaction():
            session.execute(sql(statement), (gid, FORMAT_ID))
    except SqlFailure as failure:
        if failure.code in _ROLLED_BACK:
            raise SqlFailure(
                ServerFailure.NO_SUCH_PREPARED, failure.code, failure.text
            ) from failure
        if failure.code != str(XAER_NOTA):
            raise
        there = gid in _recover(session)
        kind = ServerFailure.BUSY if there else ServerFailure.NO_SUCH_PREPARED
        raise SqlFailure(kind, failure.code, failure.text) from failure


def everybodys(session: MySQLSession) -> list[str]:
    """The names of all prepared transactions on the server: the gids of ours, and what the server
    shows of others.
    """
    return [
        _gtrid(text, length) if format_id == FORMAT_ID else text
        for format_id, length, text in _listed(session)
    ]


def _recover(session: MySQLSession) -> list[str]:
    """The gids of all our prepared transactions on the server, of whatever scope."""
    return [_gtrid(text, length) for f, length, text in _listed(session) if f == FORMAT_ID]


def _listed(session: MySQLSession) -> list[tuple[int, int, str]]:
    """(format id, length of the gtrid, what is shown) of each."""
    rows = session.query(sql("list_xa_of_mariadb" if session.is_mariadb else "list_xa"))
    return [
        (int(f), int(n), data.decode(errors="replace") if isinstance(data, bytes) else str(data))
        for f, n, _, data in rows
    ]


def _gtrid(text: str, length: int) -> str:
    """From ``X'6162',X'',1163411779`` or ``'ab','',...`` (MariaDB), or ``0x6162`` (MySQL: gtrid and
    bqual together).
    """
    if text.lower().startswith("0x"):
        return bytes.fromhex(text[2:])[:length].decode("ascii")
    found = _SQL_FORMAT.match(text)
    if found is None:
        return ""
    return bytes.fromhex(found[1]).decode("ascii") if found[1] is not None else found[2]


def _account(user: str) -> str:
    name, _, host = user.rpartition("@")
    return f"'{name}'@'{host}'"
