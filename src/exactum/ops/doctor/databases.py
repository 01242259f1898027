"""What the checks of PostgreSQL and of MySQL have in common: failures as findings, and the target
table of a sink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from exactum.ops.problem import Problem, error, ok, warning
from exactum.sql.dialect import LEDGER, Mode, Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.sink import SqlSink
from exactum.sql.table import Table
from exactum.sql.url import Address


@contextmanager
def saying_where(where: str) -> Iterator[None]:
    """A server's failure comes out as exactum's own error."""
    try:
        yield
    except SqlFailure as failure:
        raise port_error(failure, where) from failure


def bounded(address: Address, **timeouts: int) -> Address:
    """The same server, with these options of its client where the user has given no others."""
    given = dict(address.options)
    more = {name: str(value) for name, value in timeouts.items()}
    return Address(address.where, tuple({**more, **given}.items()))


def table_of(session: Session, target: SqlSink) -> Table | None:
    """
    Raises:
        SettingRefused: it is something that cannot hold the guarantee.
    """
    found = target.dialect.read_table(session, target.target)
    session.rollback()
    return found


def lagging(area: str, count: int) -> Iterator[Problem]:
    """Standbys that no COMMIT waits for."""
    if count:
        yield warning(
            area,
            f"{count} standbys get their data asynchronously, and none synchronously.",
            "A failover to one of them loses what was committed last: rows or decisions.",
            "Have a COMMIT wait for one of them, or never fail over to them (docs/guarantees.md).",
        )


def absent(target: SqlSink, *, may_create: bool) -> Problem:
    """There is no table."""
    if target.creates_table and may_create:
        return ok(target.where, "The table is not there yet; it can be created.")
    mend = (
        "Grant CREATE, or create it yourself."
        if target.creates_table
        else "Create it, or pass create_table=True."
    )
    return error(
        target.where,
        f"There is no table {target.target}, or the user may not see it"
        + (", and he may not create one." if target.creates_table else "."),
        "exactum never creates a table unasked.",
        mend,
    )


def rights(
    target: SqlSink,
    denied: Collection[str],
    ledger_denied: Collection[str] | None,
    *,
    may_create: bool,
    temporary: str | None,
) -> Iterator[Problem]:
    """``denied``: of SELECT, INSERT, UPDATE and DELETE, those that the user may not do;
    ``ledger_denied``: likewise of what a commit does to the ledger beside the target, None where
    there is none. ``temporary``: the right to make temporary tables, where the user lacks it.
    """
    lacking = [right for right in target.rights if right in denied]
    if lacking:
        yield _denied(target, lacking, str(target.target), "The sink writes by it.")
    elif ledger_denied:
        yield _denied(
            target, ledger_denied, LEDGER, "A commit notes there which micro-batch the table has."
        )
    elif ledger_denied is None and not may_create:
        yield error(
            target.where,
            f"The user may not create tables beside the target, and there is no {LEDGER}.",
            "It is made at the first start, and says which micro-batches the table has.",
            "Grant CREATE there, or have it created: docs/targets.md shows the statement.",
        )
    else:
        own = "is there" if ledger_denied is not None else "can be created"
        yield ok(target.where, f"{target.target} can be written, and {LEDGER} {own}.")
    if target.mode is Mode.UPSERT and temporary is not None:
        yield error(
            target.where,
            "The user may not create temporary tables.",
            "The rows of an upsert are loaded into one, and go from there into the table.",
            temporary,
        )


def _denied(target: SqlSink, lacking: Collection[str], table: str, why: str) -> Problem:
    named = ", ".join(lacking)
    return error(
        target.where,
        f"The user has no {named} on {table}.",
        why,
        f"GRANT {named} ON {table}; docs/targets.md lists what each sink needs.",
    )
