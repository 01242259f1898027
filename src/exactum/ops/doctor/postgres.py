"""A PostgreSQL server and the sinks' tables in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exactum.errors import Refused
from exactum.ops.doctor.databases import absent, lagging, rights, saying_where, table_of
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.sql.dialect import LEDGER
from exactum.sql.postgres import examination
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.examination import PostgresExamined
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.sink import SqlSink
from exactum.sql.url import Address

VERSION_MIN = 120_000
SLOW_COMMIT_S = 0.25


def findings(address: Address, sinks: Sequence[SqlSink]) -> Iterator[Problem]:
    """``sinks``: those with their tables there; none where only decisions are."""
    area = address.where
    with saying_where(area):
        session = examination.look(address)
        try:
            seen = examination.examine(session)
            yield from _server(area, seen)
            yield from _pooler(area, address, seen)
            if seen.is_standby:
                return
            yield from _replication(area, session, seen)
            for target in sinks:
                yield from _target(session, seen, target)
        finally:
            session.close()


def _server(area: str, seen: PostgresExamined) -> Iterator[Problem]:
    if seen.version_number < VERSION_MIN:
        yield error(area, f"PostgreSQL {seen.version}.", "exactum needs 12 or later.", "Update it.")
    else:
        yield ok(area, f"PostgreSQL {seen.version} answers to {seen.user}.")
    if seen.is_standby:
        yield error(
            area,
            "The server is a standby, which takes no writes.",
            "",
            "Name the primary; or all hosts, separated by commas, and exactum finds it.",
        )
    for is_on, setting in ((seen.fsyncs, "fsync"), (seen.full_page_writes, "full_page_writes")):
        if not is_on:
            yield error(
                area,
                f"{setting} is off.",
                "A crash of the machine can lose what was committed, or damage the database.",
                f"Set {setting}=on (the default) and reload the server's configuration.",
            )
    yield from skew_findings(area, "the server", seen.skew_s, seen.uncertain_s)


def _pooler(area: str, address: Address, seen: PostgresExamined) -> Iterator[Problem]:
    if not seen.pooled:
        return
    if examination.keeps_sessions(address):
        yield ok(area, "A pooler is in between, and keeps a session's connection to the end.")
        return
    yield error(
        area,
        "A pooler is in between that lends a connection for each transaction only (pgbouncer's "
        "pool_mode=transaction).",
        "What exactum sets for its session (timeouts, time zone, synchronous_commit) is lost to "
        "it, and is set for others.",
        "Name the server itself, or a pool with pool_mode=session.",
    )


def _replication(area: str, session: PostgresSession, seen: PostgresExamined) -> Iterator[Problem]:
    yield from lagging(area, PostgresDialect().lagging_standbys(session))
    session.rollback()
    if seen.synchronous_standby_names and not seen.senders:
        yield error(
            area,
            f"synchronous_standby_names is {seen.synchronous_standby_names!r}, and no standby is "
            "connected.",
            "Every COMMIT waits for one, without end.",
            "Bring the standby back, or empty synchronous_standby_names.",
        )
        return
    took_s = examination.commit_s(session)
    if took_s > SLOW_COMMIT_S:
        yield warning(
            area,
            f"A COMMIT took {took_s * 1000:.0f} ms.",
            "Every micro-batch waits for one or more of them.",
            "Look at its disk, at its standbys, and at the way to it.",
        )
    else:
        yield ok(area, f"A COMMIT takes {took_s * 1000:.1f} ms.")


def _target(session: PostgresSession, seen: PostgresExamined, target: SqlSink) -> Iterator[Problem]:
    try:
        table = table_of(session, target)
        if table is None:
            may_create = examination.may_create(session, target.target.schema)
            yield absent(target, may_create=may_create)
            return
        target.check_key(table)
    except Refused as failure:
        yield of_failure(target.where, failure)
        return
    granted = examination.table_rights(session, table.name)
    if granted is None:
        yield absent(target, may_create=False)
        return
    ledger = examination.table_rights(session, table.name.sibling(LEDGER))
    yield from rights(
        target,
        granted.denied,
        None if ledger is None else [r for r in ledger.denied if r != "UPDATE"],
        may_create=granted.create,
        temporary=None
        if seen.makes_temporary_tables
        else f"GRANT TEMPORARY ON DATABASE {seen.database} TO {seen.user}.",
    )
