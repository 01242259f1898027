"""What a start does not look at in a server of MySQL or MariaDB. Nothing here changes anything."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from exactum.problem import Problem, clock, error, ok, warning
from exactum.sql.dialect import Dialect, Role, ServerFailure, Session
from exactum.sql.failure import refusal
from exactum.sql.mysql.statements import quote, quote_table, sql
from exactum.sql.proof import LABEL, LOCK_TIMEOUT_S, lagging
from exactum.sql.table import Table
from exactum.sql.url import Address

PACKET_MIN_BYTES = 4 * 2**20


def prove_server(dialect: Dialect, address: Address, where: str) -> Iterator[Problem]:
    session = dialect.connect(address, Role.DRIVER, LABEL, LOCK_TIMEOUT_S)
    try:
        before_s = time.time()
        (row,) = session.query(sql("examine_server"))
        took_s = time.time() - before_s
        version, clock_us, local_infile, packet_bytes, read_only = row
        yield ok(where, f"{'MariaDB' if 'Maria' in version else 'MySQL'} {version} answers.")
        if str(read_only).upper() not in ("0", "OFF", "FALSE"):
            yield error(
                where,
                "The server is read-only.",
                "It is a replica, or in the middle of a failover.",
                "Name the server that takes writes, or SET GLOBAL read_only = 0.",
            )
        if not int(local_infile):
            yield warning(
                where,
                "local_infile is off.",
                "Rows are then sent by INSERT, which is slower than LOAD DATA LOCAL.",
                "SET GLOBAL local_infile = 1, if the server's owner agrees.",
            )
        if int(packet_bytes) < PACKET_MIN_BYTES:
            yield warning(
                where,
                f"max_allowed_packet is {int(packet_bytes):,} bytes.",
                "A larger row is refused, and each statement carries fewer of them.",
                "Set it to 64 MiB, MySQL's default.",
            )
        skew_s = int(clock_us) / 1e6 - before_s - took_s / 2
        yield clock(where, "the server", skew_s, took_s / 2)
        yield from lagging(where, dialect, session)
    finally:
        session.close()


def denied(session: Session, table: Table) -> Collection[str]:
    """Each is done to no row, and rolled back: what a role brings counts as well."""
    columns = [column.name for column in table.columns if not column.generated]
    name, first = quote_table(table.name), quote(columns[0])
    listed, nulls = ", ".join(map(quote, columns)), ", ".join(["NULL"] * len(columns))
    statements = {
        "SELECT": f"SELECT {first} FROM {name} WHERE 1 = 0",
        "INSERT": f"INSERT INTO {name} ({listed}) SELECT {nulls} FROM DUAL WHERE 1 = 0",
        "UPDATE": f"UPDATE {name} SET {first} = NULL WHERE 1 = 0",
        "DELETE": f"DELETE FROM {name} WHERE 1 = 0",
    }
    return [
        right
        for right, statement in statements.items()
        if refusal(session, statement) is ServerFailure.DENIED
    ]
