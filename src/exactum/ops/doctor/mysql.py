"""A server of MySQL or MariaDB and the sinks' tables in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from exactum.errors import Refused
from exactum.ops.doctor.databases import absent, bounded, lagging, rights, saying_where, table_of
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.sql.dialect import LEDGER, Mode, Role
from exactum.sql.mysql import examination
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address

TIMEOUT_S = 10
LOCK_TIMEOUT_S = 5.0
PACKET_MIN_BYTES = 4 * 2**20


def findings(address: Address, sinks: Sequence[SqlSink]) -> Iterator[Problem]:
    """``sinks``: those with their tables there; none where only decisions are."""
    area = address.where
    with saying_where(area):
        session = look(address)
        try:
            yield from _server(area, session)
            for target in sinks:
                yield from _target(session, target)
        finally:
            session.close()


def look(address: Address) -> MySQLSession:
    """A session whose waits are short.

    Raises:
        SettingRefused: the server is too old, logs by statement, or does not keep commits.
        SqlFailure: no connection.
    """
    short = bounded(
        address, connect_timeout=TIMEOUT_S, read_timeout=TIMEOUT_S, write_timeout=TIMEOUT_S
    )
    session = MySQLDialect().connect(short, Role.DRIVER, "exactum doctor", LOCK_TIMEOUT_S)
    return cast("MySQLSession", session)


def _server(area: str, session: MySQLSession) -> Iterator[Problem]:
    seen = examination.examine(session)
    yield ok(area, f"{'MariaDB' if session.is_mariadb else 'MySQL'} {seen.version} answers.")
    if seen.read_only:
        yield error(
            area,
            "The server is read-only.",
            "It is a replica, or in the middle of a failover.",
            "Name the server that takes writes, or SET GLOBAL read_only = 0.",
        )
    if not seen.strict:
        yield ok(
            area,
            "Its sql_mode is not strict. exactum's own sessions are; other writers may cut values.",
        )
    if not seen.local_infile:
        yield warning(
            area,
            "local_infile is off.",
            "Rows are then sent by INSERT, which is slower than LOAD DATA LOCAL.",
            "SET GLOBAL local_infile = 1, if the server's owner agrees.",
        )
    if seen.packet_bytes_max < PACKET_MIN_BYTES:
        yield warning(
            area,
            f"max_allowed_packet is {seen.packet_bytes_max:,} bytes.",
            "A larger row is refused, and each statement carries fewer of them.",
            "Set it to 64 MiB, MySQL's default.",
        )
    yield from lagging(area, MySQLDialect().lagging_standbys(session))
    session.rollback()
    yield from skew_findings(area, "the server", seen.skew_s, seen.uncertain_s)


def _target(session: MySQLSession, target: SqlSink) -> Iterator[Problem]:
    try:
        table = table_of(session, target)
        may_create = examination.may_create(session, table.name if table else target.target)
        if table is None:
            yield absent(target, may_create=may_create)
            return
        target.check_key(table)
        ledger = MySQLDialect().read_table(session, table.name.sibling(LEDGER))
        session.rollback()
    except Refused as failure:
        yield of_failure(target.where, failure)
        return
    yield from rights(
        target,
        examination.denied(session, table),
        None if ledger is None else examination.denied(session, ledger),
        may_create=may_create,
        temporary=None
        if target.mode is not Mode.UPSERT or examination.may_create_temporary(session)
        else "GRANT CREATE TEMPORARY TABLES ON the database of the sink's URL.",
    )
