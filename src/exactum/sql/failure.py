"""A classified server error -> the error of exactum that says what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import EpochAborted, ExactumError, RowsRefused, SettingRefused, Unavailable
from exactum.protocol.sink import Rejection
from exactum.sql.dialect import RefusedRow, ServerFailure, Session, SqlFailure
from exactum.sql.plan import WritePlan

TRANSIENT = frozenset({ServerFailure.LOST, ServerFailure.BUSY})
"""The same again may succeed."""


def refusal(session: Session, statement: str) -> ServerFailure | None:
    """Why the server refuses the statement, which is rolled back; None: it does not.

    Raises:
        SqlFailure: the same again may succeed.
    """
    try:
        session.execute(statement)
    except SqlFailure as failure:
        if failure.failure in TRANSIENT:
            raise
        return failure.failure
    finally:
        session.rollback()
    return None


def port_error(failure: SqlFailure, where: str) -> ExactumError:
    """For the driver, where nothing is known to have changed."""
    said = f"{where}: {failure}"
    if not said.endswith((".", "?", "!")):  # a question of the server is left as it is
        said += "."
    match failure.failure:
        case ServerFailure.LOST | ServerFailure.BUSY | ServerFailure.CHANGED:
            return Unavailable(f"{said} Nothing is known to have changed; start the query again.")
        case ServerFailure.DENIED if not failure.code:  # at login
            return SettingRefused(
                "SQL_ACCESS",
                f"{said} The server does not let the user in. Correct user, password and database "
                "in the URL, or what the server allows.",
            )
        case ServerFailure.DENIED:
            return SettingRefused(
                "SQL_ACCESS",
                f"{said} The server refused the user. It needs to read and insert in the table "
                "(to update and delete, too, for an upsert), and once to create exactum's tables "
                "beside it.",
            )
        case _:
            return SettingRefused("SQL_REFUSED", said)


def rows_refused(plan: WritePlan, batch_id: int, failure: SqlFailure) -> ExactumError:
    """Staged rows do not go into the target."""
    if failure.failure is ServerFailure.ROWS:
        return RowsRefused(
            "ROWS_REFUSED",
            f"{plan.shown}: the table {plan.target} refused the rows of batch "
            f"{batch_id}: {failure}. Nothing of the epoch is visible. Correct the rows in the "
            "query, or the table.",
        )
    if failure.failure is ServerFailure.CHANGED:
        return EpochAborted(
            f"{plan.shown}: {failure} Nothing of batch {batch_id} is visible; start the query "
            "again."
        )
    return port_error(failure, plan.shown)


def rejection_of(plan: WritePlan, refused: Sequence[RefusedRow]) -> Rejection:
    """Rows that the server alone refuses, as a task rejects the others."""
    import pyarrow as pa

    from exactum.sinks.rows import rejected
    from exactum.sql.rows import TableRules

    flag = () if plan.flag_column is None else (plan.flag_column,)
    each = [row.row.select([*plan.frame_columns, *flag]) for row in refused]
    (rows,) = pa.Table.from_batches(each).combine_chunks().to_batches()
    rules = TableRules(plan.columns, plan.frame_columns, named_by=plan.named_by)
    reasons = [f"{plan.dialect.name} refuses it: {row.why}" for row in refused]
    return rejected(rows, reasons, rules.names)


def too_many_refused(plan: WritePlan, batch_id: int, refused: Sequence[RefusedRow]) -> RowsRefused:
    """More than are put aside."""
    return RowsRefused(
        "ROWS_REFUSED",
        f"{plan.shown}: the table {plan.target} refuses {len(refused)} rows of batch {batch_id} or "
        f"more, the first: {rejection_of(plan, refused[:1]).reasons[0]}. So many are not put "
        "aside. Nothing of the epoch is visible. Correct the rows in the query, or the table.",
    )
