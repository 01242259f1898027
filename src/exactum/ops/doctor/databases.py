"""What the checks of PostgreSQL and of MySQL have in common: failures as findings, and the target
table of a sink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from exactum.ops.problem import Problem, error, ok, warning
from exactum.sql.dialect import Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.plan import Mechanism
from exactum.sql.table import Table
from exactum.sql.target import SqlTarget
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


def table_of(session: Session, target: SqlTarget) -> Table | None:
    """
    Raises:
        SettingRefused: it is something that cannot hold the guarantee.
    """
    found = target.dialect.read_table(session, target.table)
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


def absent(target: SqlTarget, *, may_create: bool) -> Problem:
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
        f"There is no table {target.table}, or the user may not see it"
        + (", and he may not create one." if target.creates_table else "."),
        "exactum never creates a table unasked.",
        mend,
    )


def rights(
    target: SqlTarget, denied: Collection[str], *, may_create: bool, own_are_there: bool
) -> Problem:
    """``denied``: of SELECT, INSERT, UPDATE and DELETE, those that the user may not do.
    ``own_are_there``: exactum's own two tables beside the target.
    """
    lacking = [right for right in target.rights if right in denied]
    if lacking:
        named = ", ".join(lacking)
        return error(
            target.where,
            f"The user has no {named} on {target.table}.",
            "The sink writes by it.",
            f"GRANT {named} ON {target.table}; docs/targets.md lists what each sink needs.",
        )
    if may_create:
        return ok(target.where, f"{target.table} can be written, and tables beside it created.")
    if not own_are_there:
        return error(
            target.where,
            "The user may not create tables beside the target, and exactum's own are not there.",
            "exactum_ledger, exactum_prepared and a staging table for each sink are made at the "
            "first start.",
            "Grant CREATE there, or have them created: docs/targets.md shows the statements.",
        )
    if target.mechanism is Mechanism.STAGED:
        return warning(
            target.where,
            "The user may not create tables beside the target. exactum_ledger and "
            "exactum_prepared are there; whether the staging table is depends on the columns.",
            "Without it the query is refused at its start.",
            "Grant CREATE there, or have the staging table created.",
        )
    return ok(target.where, f"{target.table} can be written, and exactum's own tables are there.")
