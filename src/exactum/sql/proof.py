"""Whether a table, or a decision log in a database, can be used: tried by what a start does, and
rolled back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager

from exactum.problem import Problem, error, ok
from exactum.sql.dialect import (
    DECISION_LOGS,
    DECISIONS,
    LEDGER,
    PROOF_LABEL,
    PROOF_LOCK_TIMEOUT_S,
    Dialect,
    Mode,
)
from exactum.sql.files import server_of
from exactum.sql.session import (
    TRANSIENT,
    ServerFailure,
    Session,
    SqlFailure,
    asking,
    port_error,
    refusal,
)
from exactum.sql.sink import SqlSink
from exactum.sql.table import TableName
from exactum.sql.url import Address

PROBE = "exactum_doctor"


def _session(dialect: Dialect, address: Address) -> AbstractContextManager[Session]:
    """As a start has it."""
    return asking(dialect, address, PROOF_LABEL, address.where, PROOF_LOCK_TIMEOUT_S)


def _prove_server(dialect: Dialect, address: Address) -> Iterator[Problem]:
    try:
        yield from dialect.prove_server(address, address.where)
    except SqlFailure as failure:
        raise port_error(failure, address.where) from failure


# ---- a table -----------------------------------------------------------------------------------


def prove_sink(sink: SqlSink) -> Iterator[Problem]:
    yield from _prove_server(sink.dialect, sink.address)
    with _session(sink.dialect, sink.address) as session:
        yield from _table(sink, session)


def _table(sink: SqlSink, session: Session) -> Iterator[Problem]:
    dialect, where = sink.dialect, sink.where
    table = dialect.read_table(session, sink.target)
    may_create = may_be_created(dialect, session, sink.target if table is None else table.name)
    if table is None:
        if sink.creates_table and may_create:
            yield ok(where, "The table is not there yet; it can be created.")
            return
        raise sink.missing_table()
    sink.check_key(table)
    if lacking := _lacking(sink.rights, dialect.denied(session, table)):
        yield _denied(where, lacking, table.name, "The sink writes by it.")
    ledger = dialect.read_table(session, table.name.sibling(LEDGER))
    if ledger is None and not may_create:
        yield error(
            where,
            f"The user may not create tables beside the target, and there is no {LEDGER}.",
            "It is made at the first start, and says which micro-batches the table has.",
            "Grant CREATE there, or have it created: docs/reference/sql.md shows the statement.",
        )
        return
    if ledger is not None and (
        lacking := _lacking(dialect.ledger_rights, dialect.denied(session, ledger))
    ):
        why = "A commit notes there which micro-batch the table has."
        yield _denied(where, lacking, ledger.name, why)
        return
    if sink.mode is Mode.UPSERT and _is_denied(
        session, dialect.sql("try_creating_temporary", table=TableName(None, PROBE))
    ):
        yield error(
            where,
            "The user may not create temporary tables.",
            "The rows of an upsert are loaded into one, and go from there into the table.",
            "Grant TEMPORARY (in MySQL CREATE TEMPORARY TABLES) on the database of the sink's URL.",
        )
        return
    own = "is there" if ledger is not None else "can be created"
    yield ok(where, f"{table.name} can be written, and {LEDGER} {own}.")


def _lacking(wanted: Collection[str], denied: Collection[str]) -> list[str]:
    return [right for right in wanted if right in denied]


def _denied(where: str, lacking: Collection[str], table: TableName, why: str) -> Problem:
    named = ", ".join(lacking)
    return error(
        where,
        f"The user has no {named} on {table}.",
        why,
        f"GRANT {named} ON {table}; docs/reference/rights.md lists what each sink needs.",
    )


def may_be_created(dialect: Dialect, session: Session, beside: TableName) -> bool:
    """Whether tables can be created where ``beside`` is."""
    statement = dialect.sql("try_creating", table=beside.sibling(PROBE))
    return not _is_denied(session, statement)


def _is_denied(session: Session, statement: str) -> bool:
    """Whether the user's rights forbid it: another refusal comes after these were asked."""
    return refusal(session, statement) in (ServerFailure.DENIED, ServerFailure.MISSING)


# ---- a decision log ----------------------------------------------------------------------------


def prove_log(url: str, query_id: str, where: str) -> Iterator[Problem]:
    """What would keep a query from deciding there, found by doing it and rolled back. ``query_id``:
    of nobody.

    Raises:
        ExactumError: the server did not answer, or is one that a start refuses.
    """
    dialect, address = server_of(url)
    yield from _prove_server(dialect, address)
    with _session(dialect, address) as session:
        files, logs = TableName(None, DECISIONS), TableName(None, DECISION_LOGS)
        if all(dialect.read_table(session, name) for name in (files, logs)):
            yield _recorded(dialect, session, address.where, query_id, where)
        elif may_be_created(dialect, session, files):
            yield ok(where, f"{files} and {logs} are not there yet; they can be created.")
        else:
            yield error(
                where,
                f"{files} and {logs} are not at {address.where}, and the user may not create them.",
                "They hold the decisions.",
                "Grant CREATE there once, or create them: docs/reference/sql.md shows how.",
            )


def _recorded(dialect: Dialect, session: Session, at: str, query_id: str, where: str) -> Problem:
    """Do once what a decision and a pruning do."""
    names = {"files": TableName(None, DECISIONS), "logs": TableName(None, DECISION_LOGS)}
    key = (query_id, "tried")
    try:
        session.execute(dialect.sql("enter_log", **names), (query_id,))
        session.query(dialect.sql("lock_changes", **names), (query_id,))
        first = session.execute(dialect.sql("enter_file", **names), (*key, "first"))
        second = session.execute(dialect.sql("enter_file", **names), (*key, "other"))
        stored = session.query(dialect.sql("read_file", **names), key)
        session.execute(dialect.sql("forget_file", **names), key)
        session.execute(dialect.sql("count_change", **names), (query_id,))
    except SqlFailure as failure:
        if failure.failure in TRANSIENT:
            raise
        return error(
            where,
            f"A decision cannot be recorded at {at}: {failure}",
            "No micro-batch could be committed.",
            f"Grant what docs/reference/rights.md lists for {DECISIONS} and {DECISION_LOGS}.",
        )
    if (first, second, stored) != (1, 0, [("first",)]):
        return error(
            where,
            f"{DECISIONS} at {at} takes two records for one slot.",
            "Two drivers could both believe that their decision stands.",
            "Its primary key is missing: create it as docs/reference/sql.md shows.",
        )
    return ok(where, f"A record at {at} is taken once; a second one was refused.")
