"""What a target refuses before the decision, as errors that say what to do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.errors import EpochAborted, ExactumError, RowsRefused
from exactum.protocol.sink import Rejection
from exactum.sql.dialect import RefusedRow, ServerFailure, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.plan import WritePlan


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
    import numpy as np
    import pyarrow as pa

    from exactum.sql.checks import Broken
    from exactum.sql.rules import TableRules

    flag = () if plan.flag_column is None else (plan.flag_column,)
    each = [row.row.select([*plan.frame_columns, *flag]) for row in refused]
    (rows,) = pa.Table.from_batches(each).combine_chunks().to_batches()
    rules = TableRules(plan.columns, plan.frame_columns, named_by=plan.named_by)
    texts = tuple(row.why for row in refused)
    rule = f"{plan.dialect.name} refuses it"
    return rules.apart(rows, Broken(rule, np.ones(len(texts), bool), details=texts))


def too_many_refused(plan: WritePlan, batch_id: int, refused: Sequence[RefusedRow]) -> RowsRefused:
    """More than are put aside."""
    return RowsRefused(
        "ROWS_REFUSED",
        f"{plan.shown}: the table {plan.target} refuses {len(refused)} rows of batch {batch_id} or "
        f"more, the first: {rejection_of(plan, refused[:1]).reasons[0]}. So many are not put "
        "aside. Nothing of the epoch is visible. Correct the rows in the query, or the table.",
    )
