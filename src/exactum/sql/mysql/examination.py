"""What a server of MySQL or MariaDB tells of itself and of a user's rights, for ``exactum
doctor``. Nothing here changes anything.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import quote, quote_table, sql
from exactum.sql.table import Table, TableName

DUPLICATE_COLUMN = "1060"
PROBE = "exactum_doctor"


@dataclass(frozen=True)
class MySQLExamined:
    """``skew_s``: how far its clock is ahead of ours, give or take ``uncertain_s``."""

    version: str
    local_infile: bool
    packet_bytes_max: int
    strict: bool
    read_only: bool
    user: str
    skew_s: float
    uncertain_s: float


def examine(session: MySQLSession) -> MySQLExamined:
    before_s = time.time()
    (row,) = session.query(sql("examine_server"))
    after_s = time.time()
    session.rollback()
    version, clock_us, local_infile, packet, mode, read_only, user = row
    return MySQLExamined(
        version=str(version),
        local_infile=bool(int(local_infile)),
        packet_bytes_max=int(packet),
        strict="STRICT_" in str(mode).upper(),
        read_only=str(read_only).upper() not in ("0", "OFF", "FALSE"),
        user=str(user),
        skew_s=int(clock_us) / 1e6 - (before_s + after_s) / 2,
        uncertain_s=(after_s - before_s) / 2,
    )


def denied(session: MySQLSession, table: Table) -> list[str]:
    """Which of SELECT, INSERT, UPDATE and DELETE the user may not do to the table: each is done to
    no row, and rolled back.
    """
    columns = [column.name for column in table.columns if not column.generated]
    name, first = quote_table(table.name), quote(columns[0])
    listed, nulls = ", ".join(map(quote, columns)), ", ".join(["NULL"] * len(columns))
    statements = {
        "SELECT": f"SELECT {first} FROM {name} WHERE 1 = 0",
        "INSERT": f"INSERT INTO {name} ({listed}) SELECT {nulls} FROM DUAL WHERE 1 = 0",
        "UPDATE": f"UPDATE {name} SET {first} = NULL WHERE 1 = 0",
        "DELETE": f"DELETE FROM {name} WHERE 1 = 0",
    }
    return [right for right, statement in statements.items() if _is_denied(session, statement)]


def may_create(session: MySQLSession, beside: TableName) -> bool:
    """Whether tables can be created in the database of ``beside``."""
    return not _is_denied(session, sql("try_creating", table=beside.sibling(PROBE)))


def may_create_temporary(session: MySQLSession) -> bool:
    """Whether temporary tables can be created in the session's database."""
    probe = sql("try_creating_temporary", table=TableName(None, PROBE))
    return not _is_denied(session, probe)


def is_there(session: MySQLSession, table: TableName) -> bool:
    rows = session.query(sql("is_there"), (table.schema, table.table))
    session.rollback()
    return bool(rows)


def _is_denied(session: MySQLSession, statement: str) -> bool:
    try:
        session.execute(statement)
    except SqlFailure as failure:
        if failure.failure is not ServerFailure.DENIED and failure.code != DUPLICATE_COLUMN:
            raise
        return failure.failure is ServerFailure.DENIED
    finally:
        session.rollback()
    return False
