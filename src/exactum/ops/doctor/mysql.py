"""A server of MySQL or MariaDB and the sinks' tables in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from exactum.errors import Refused
from exactum.ops.doctor.databases import absent, bounded, lagging, rights, saying_where, table_of
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.sql.dialect import DIRECTORY, LEDGER, Role, SqlFailure
from exactum.sql.mysql import examination
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.plan import Mechanism
from exactum.sql.target import SqlTarget
from exactum.sql.url import Address

TIMEOUT_S = 10
LOCK_TIMEOUT_S = 5.0
PACKET_MIN_BYTES = 4 * 2**20


def findings(address: Address, sinks: Sequence[SqlTarget]) -> Iterator[Problem]:
    """``sinks``: those with their tables there; none where only decisions are."""
    area = address.where
    with saying_where(area):
        session = look(address)
        try:
            yield from _server(area, session)
            yield from _prepared(area, session, sinks)
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


def _prepared(area: str, session: MySQLSession, sinks: Sequence[SqlTarget]) -> Iterator[Problem]:
    wanting = [t for t in sinks if t.mechanism is Mechanism.PREPARED]
    try:
        if wanting:
            MySQLDialect().check_prepared(session, wanting[0].where)
        left = examination.xa_left(session)
    except Refused as failure:
        yield of_failure(area, failure)
        return
    except SqlFailure:  # only who uses XA needs the right to list it
        session.rollback()
        return
    if left.own or left.others:
        yield warning(
            area,
            f"XA transactions wait on the server: {left.own} of exactum's, {left.others} others.",
            "Each holds its locks until somebody commits or rolls it back.",
            "'exactum transactions' tells whose they are; of the others XA RECOVER shows the ids.",
        )


def _target(session: MySQLSession, target: SqlTarget) -> Iterator[Problem]:
    try:
        table = table_of(session, target)
        may_create = examination.may_create(session, table.name if table else target.table)
        if table is None:
            yield absent(target, may_create=may_create)
            return
        target.check_key(table)
    except Refused as failure:
        yield of_failure(target.where, failure)
        return
    columns = [column.name for column in table.columns if not column.generated]
    own = (table.name.sibling(LEDGER), table.name.sibling(DIRECTORY))
    yield rights(
        target,
        examination.denied(session, table.name, columns),
        may_create=may_create,
        own_are_there=all(examination.is_there(session, each) for each in own),
    )
