"""What a start does not look at in a PostgreSQL server. Nothing here changes anything."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator

from exactum.problem import Problem, clock, error, ok, warning
from exactum.sql.dialect import Dialect, Session
from exactum.sql.postgres.session import PostgresSession, opened
from exactum.sql.postgres.statements import regclass, sql
from exactum.sql.proof import LABEL, lagging
from exactum.sql.table import Table
from exactum.sql.url import Address

STATEMENT_TIMEOUT_MS = 10_000
VERSION_MIN = 120_000
SLOW_COMMIT_S = 0.25
RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def prove_server(dialect: Dialect, address: Address, where: str) -> Iterator[Problem]:
    """By a session in which nothing is set for longer than a transaction: behind a pooler it would
    be set for whoever is served next.
    """
    session = opened(address, LABEL)
    try:
        _bound(session)
        before_s = time.time()
        ((text, pid, clock_s),) = session.query(sql("examine_server"))
        took_s = time.time() - before_s
        session.rollback()
        facts = json.loads(text)
        yield from _server(where, facts)
        yield clock(where, "the server", float(clock_s) - before_s - took_s / 2, took_s / 2)
        if int(pid) != session.connection.info.backend_pid:
            yield _pooler(address, where)
        if not facts["is_standby"]:
            yield from lagging(where, dialect, session)
            yield _commit(where, session, facts)
    finally:
        session.close()


def denied(session: Session, table: Table) -> Collection[str]:
    rows = session.query(sql("examine_table"), (regclass(table.name),))
    session.rollback()
    return [right for right, granted in zip(RIGHTS, rows[0], strict=True) if not granted]


def _bound(session: PostgresSession) -> None:
    """No statement of the transaction that this begins takes longer."""
    session.query(sql("bound_look"), (f"{STATEMENT_TIMEOUT_MS}ms",))


def _server(where: str, facts: dict[str, object]) -> Iterator[Problem]:
    version = f"PostgreSQL {facts['version']}"
    if int(str(facts["number"])) < VERSION_MIN:
        yield error(where, f"{version}.", "exactum needs 12 or later.", "Update it.")
    else:
        yield ok(where, f"{version} answers to {facts['user']}.")
    if facts["is_standby"]:
        yield error(
            where,
            "The server is a standby, which takes no writes.",
            "",
            "Name the primary; or all hosts, separated by commas, and exactum finds it.",
        )
    if not facts["full_page_writes"]:
        yield error(
            where,
            "full_page_writes is off.",
            "A crash of the machine can damage the database.",
            "Set full_page_writes=on (the default) and reload the server's configuration.",
        )


def _commit(where: str, session: PostgresSession, facts: dict[str, object]) -> Problem:
    """How long one takes that has something to keep."""
    names = facts["synchronous_standby_names"]
    if names and not facts["senders"]:
        return error(
            where,
            f"synchronous_standby_names is {names!r}, and no standby is connected.",
            "Every COMMIT waits for one, without end.",
            "Bring the standby back, or empty synchronous_standby_names.",
        )
    _bound(session)
    session.query(sql("note"))
    began_s = time.monotonic()
    session.commit()
    took_s = time.monotonic() - began_s
    text = f"A COMMIT took {took_s * 1000:.1f} ms."
    if took_s <= SLOW_COMMIT_S:
        return ok(where, text)
    return warning(
        where,
        text,
        "Every micro-batch waits for one or more of them.",
        "Look at its disk, at its standbys, and at the way to it.",
    )


def _pooler(address: Address, where: str) -> Problem:
    if _keeps_sessions(address):
        return ok(where, "A pooler is in between, and keeps a session's connection to the end.")
    return error(
        where,
        "A pooler is in between that lends a connection for each transaction only (pgbouncer's "
        "pool_mode=transaction).",
        "What exactum sets for its session (timeouts, time zone, synchronous_commit) is lost to "
        "it, and is set for others.",
        "Name the server itself, or a pool with pool_mode=session.",
    )


def _keeps_sessions(address: Address) -> bool:
    """Whether what a session sets is still there in its next transaction, also when another client
    was served between the two. Not so behind a pooler that lends a connection for each
    transaction.
    """
    first = opened(address, LABEL)
    try:
        second = opened(address, LABEL)
        try:
            first.query(sql("mark_session"), ("first",))
            before = first.query(sql("read_mark"))
            first.commit()
            second.query(sql("mark_session"), ("second",))  # holds a connection of the pool
            after = first.query(sql("read_mark"))
            for session in (first, second):  # what was set goes with it
                session.rollback()
                session.query(sql("mark_session"), ("",))
                session.commit()
            return before == after
        finally:
            second.close()
    finally:
        first.close()
