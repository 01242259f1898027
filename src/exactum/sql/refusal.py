"""What a target refuses before the decision, as errors that say what to do. Pure."""

from __future__ import annotations

from exactum.errors import CheckpointRefused, EpochAborted, ExactumError, RowsRefused
from exactum.sql.dialect import LEDGER, ServerFailure, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.plan import WritePlan


def had_before(plan: WritePlan, batch_id: int) -> CheckpointRefused:
    """The ledger has the batch, or a later one."""
    return CheckpointRefused(
        "TARGET_AHEAD",
        f"{plan.shown}: the table {plan.target} has batch {batch_id} of query "
        f"{plan.scope.query_id} already (its {LEDGER} says so), and the decision log does not. "
        "Checkpoint or log are an older copy, or two queries run on copies of one. Restore both "
        "and the table from the same moment, or start with a new checkpoint location. Nothing was "
        "written.",
    )


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
