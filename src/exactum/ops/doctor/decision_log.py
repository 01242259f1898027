"""The decision log's place: tried with records of nobody, which are taken back."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from exactum.checkpoint.decision_place import (
    KINDS,
    MYSQL_SCHEMES,
    OBJECT_SCHEMES,
    POSTGRES_SCHEMES,
    shown_place,
)
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.offset_log import local_folder
from exactum.ops.doctor.databases import saying_where
from exactum.ops.doctor.folder_probe import FOR_DECISIONS, folder_findings
from exactum.ops.problem import Problem, error, ok
from exactum.sql.dialect import DECISION_LOGS, Session, SqlFailure
from exactum.sql.dialect import DECISIONS as DECISIONS_TABLE
from exactum.sql.table import TableName
from exactum.storage.at import storage_at

if TYPE_CHECKING:
    from exactum.sql.url import Address

AREA = "decision log"


def findings(place: str | None, checkpoint: str | None) -> Iterator[Problem]:
    """``place``: as the query is given it as decision_log=; None for the checkpoint's own."""
    if place is None:
        folder = None if checkpoint is None else local_folder(checkpoint)
        if folder is not None:
            yield from folder_findings(AREA, (folder / DECISIONS).absolute(), FOR_DECISIONS)
        return
    scheme = urlsplit(place).scheme.lower()
    if scheme in POSTGRES_SCHEMES:
        yield from _in_postgres(place)
    elif scheme in MYSQL_SCHEMES:
        yield from _in_mysql(place)
    elif scheme in OBJECT_SCHEMES:
        yield from _in_object_store(place)
    else:
        folder = local_folder(place)
        if folder is None:
            yield error(
                AREA,
                f"{shown_place(place)} is not supported.",
                f"A decision log is {KINDS}.",
                "Name one of these.",
            )
            return
        yield from folder_findings(AREA, Path(folder).absolute(), FOR_DECISIONS)


# ---- object stores ---------------------------------------------------------------------------


def _in_object_store(place: str) -> Iterator[Problem]:
    storage = storage_at(place).below(_nobody())
    storage.open()
    storage.names()
    yield ok(
        AREA,
        f"{shown_place(place)}: of several puts of one new object one was taken; objects can be "
        "listed and deleted.",
    )


# ---- databases -------------------------------------------------------------------------------


def _in_postgres(place: str) -> Iterator[Problem]:
    from exactum.ops.doctor import postgres
    from exactum.sql.postgres import examination
    from exactum.sql.postgres.dialect import PostgresDialect
    from exactum.sql.postgres.session import address_of
    from exactum.sql.postgres.statements import regclass

    address = address_of(place, None, AREA)
    yield from postgres.findings(address, ())
    with saying_where(address.where):
        session = examination.look(address)
        try:
            examination.bound(session)
            dialect = PostgresDialect()
            there = [
                bool(session.query(dialect.sql("is_there"), (regclass(TableName(None, name)),)))
                for name in (DECISIONS_TABLE, DECISION_LOGS)
            ]
            if not all(there):
                yield _to_be_made(address, may_create=examination.may_create(session, None))
                return
            yield _tried(session, address)
        finally:
            session.close()


def _in_mysql(place: str) -> Iterator[Problem]:
    from exactum.ops.doctor import mysql
    from exactum.sql.mysql import examination
    from exactum.sql.mysql.sink import address_of

    address = address_of(place, None, AREA)
    yield from mysql.findings(address, ())
    with saying_where(address.where):
        session = mysql.look(address)
        try:
            tables = [TableName(None, name) for name in (DECISIONS_TABLE, DECISION_LOGS)]
            if not all(examination.is_there(session, table) for table in tables):
                may_create = examination.may_create(session, tables[0])
                yield _to_be_made(address, may_create=may_create)
                return
            yield _tried(session, address)
        finally:
            session.close()


def _to_be_made(address: Address, *, may_create: bool) -> Problem:
    tables = f"{DECISIONS_TABLE} and {DECISION_LOGS}"
    if may_create:
        return ok(AREA, f"{tables} are not at {address.where} yet; they can be created.")
    return error(
        AREA,
        f"{tables} are not at {address.where}, and the user may not create them.",
        "They hold the decisions.",
        "Grant CREATE there once, or create them: docs/targets.md shows the statements.",
    )


def _tried(session: Session, address: Address) -> Problem:
    """Do once what a decision and a pruning do, and take it back."""
    from exactum.sql.mysql.session import MySQLSession
    from exactum.sql.mysql.statements import sql as mysql
    from exactum.sql.postgres.statements import sql as postgres

    sql = mysql if isinstance(session, MySQLSession) else postgres
    places = {"files": TableName(None, DECISIONS_TABLE), "logs": TableName(None, DECISION_LOGS)}
    query = _nobody()
    key = (query, "tried")
    try:
        session.execute(sql("enter_log", **places), (query,))
        session.query(sql("lock_changes", **places), (query,))
        first = session.execute(sql("enter_file", **places), (*key, "first"))
        second = session.execute(sql("enter_file", **places), (*key, "other"))
        stands = session.query(sql("read_file", **places), key)
        session.execute(sql("forget_file", **places), key)
        session.execute(sql("count_change", **places), (query,))
    except SqlFailure as failure:
        return error(
            AREA,
            f"A decision cannot be recorded at {address.where}: {failure}",
            "No micro-batch could be committed.",
            "Grant what docs/targets.md lists for exactum_decisions and exactum_decision_logs.",
        )
    finally:
        session.rollback()
    if first != 1 or second != 0 or stands != [("first",)]:
        return error(
            AREA,
            f"{DECISIONS_TABLE} at {address.where} takes two records for one slot.",
            "Two drivers could both believe that their decision stands.",
            "Its primary key is missing: create it as docs/targets.md shows.",
        )
    return ok(AREA, f"A record at {address.where} is taken once; a second one was refused.")


def _nobody() -> str:
    """An id that no query has."""
    return f"exactum-doctor-{secrets.token_hex(8)}"
