"""A PostgreSQL server and the sinks' tables in it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from exactum.errors import Refused
from exactum.monitor.words import duration
from exactum.ops.doctor.databases import absent, lagging, rights, saying_where, table_of
from exactum.ops.doctor.examination import skew_findings
from exactum.ops.problem import Problem, error, of_failure, ok, warning
from exactum.sql.dialect import DIRECTORY, LEDGER
from exactum.sql.plan import Mechanism
from exactum.sql.postgres import examination
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.examination import PostgresExamined
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.target import SqlTarget
from exactum.sql.url import Address

VERSION_MIN = 120_000
OLD_AFTER_S = 600.0
SLOW_COMMIT_S = 0.25


def findings(address: Address, sinks: Sequence[SqlTarget]) -> Iterator[Problem]:
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
            yield from _prepared(area, session, seen, sinks)
            for target in sinks:
                yield from _target(session, target)
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


def _prepared(
    area: str, session: PostgresSession, seen: PostgresExamined, sinks: Sequence[SqlTarget]
) -> Iterator[Problem]:
    wanting = [t for t in sinks if t.mechanism is Mechanism.PREPARED]
    tasks = os.cpu_count() or 1
    free = seen.prepared_max - seen.prepared
    if wanting and seen.prepared_max == 0:
        yield error(
            area,
            f"max_prepared_transactions is 0, and {wanting[0].where} has mechanism='prepared'.",
            "The server keeps no prepared transactions.",
            "Set it to at least the number of tasks that write at the same time in all queries, "
            "and restart the server; or use mechanism='staged'.",
        )
    elif wanting and free < tasks * len(wanting):
        yield warning(
            area,
            f"{free} of {seen.prepared_max} prepared transactions are free; {tasks} tasks on each "
            f"of {len(wanting)} sinks (one for each core of this machine) may want more.",
            "A task that finds none fails, and its micro-batch is run again.",
            "Raise max_prepared_transactions and restart the server.",
        )
    for left in examination.prepared_left(session):
        if left.age_s > OLD_AFTER_S:
            yield warning(
                area,
                f"The prepared transaction {left.gid!r} of {left.owner} waits since "
                f"{duration(left.age_s)}.",
                "It holds its locks, keeps dead rows from being removed, and takes one of "
                "max_prepared_transactions.",
                "'exactum transactions' says whether a query still owns it; if nobody does: "
                f"ROLLBACK PREPARED '{left.gid}'.",
            )


def _target(session: PostgresSession, target: SqlTarget) -> Iterator[Problem]:
    try:
        table = table_of(session, target)
        if table is None:
            may_create = examination.may_create(session, target.table.schema)
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
    has = {
        "SELECT": granted.select,
        "INSERT": granted.insert,
        "UPDATE": granted.update,
        "DELETE": granted.delete,
    }
    own = (table.name.sibling(LEDGER), table.name.sibling(DIRECTORY))
    yield rights(
        target,
        [right for right, is_granted in has.items() if not is_granted],
        may_create=granted.create,
        own_are_there=all(examination.table_rights(session, each) is not None for each in own),
    )
