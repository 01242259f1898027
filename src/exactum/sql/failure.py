"""A classified server error -> the error of exactum that says what to do. Pure."""

from __future__ import annotations

from exactum.errors import EpochAborted, ExactumError, RowsRefused, SettingRefused, Unavailable
from exactum.sql.dialect import ServerFailure, SqlFailure

TRANSIENT = frozenset({ServerFailure.LOST, ServerFailure.BUSY, ServerFailure.PREPARED_BUSY})
"""The same again may succeed."""


def port_error(failure: SqlFailure, where: str) -> ExactumError:
    """For the driver, where nothing is known to have changed."""
    match failure.failure:
        case ServerFailure.DENIED:
            return SettingRefused(
                f"{where}: the server refused the user: {failure}. It needs to read and insert in "
                "the table (to update and delete, too, for an upsert), and once to create "
                "exactum's tables beside it."
            )
        case (
            ServerFailure.MISSING | ServerFailure.EXISTS | ServerFailure.UNFIT | ServerFailure.ROWS
        ):
            return SettingRefused(f"{where}: {failure}.")
        case ServerFailure.NO_SLOT:
            return SettingRefused(f"{where}: {failure}. {NO_SLOT}")
        case _:
            return Unavailable(
                f"{where}: {failure}. Nothing is known to have changed; start the query again."
            )


NO_SLOT = (
    "Every task of an epoch holds one prepared transaction until the decision, so the server "
    "needs room for as many as the write job has tasks, and for those of other queries: raise "
    "max_prepared_transactions and restart the server, write with fewer partitions, or use "
    "mechanism='staged'."
)


def task_error(failure: SqlFailure, where: str) -> EpochAborted | SettingRefused | RowsRefused:
    """For a task: nothing of it becomes visible. ``where`` names the task and the sink."""
    match failure.failure:
        case ServerFailure.ROWS:
            return RowsRefused(
                f"{where}: the server refused the rows: {failure}. Nothing of the epoch is "
                "visible. Correct the rows in the query, or the table."
            )
        case (
            ServerFailure.DENIED
            | ServerFailure.MISSING
            | ServerFailure.EXISTS
            | ServerFailure.UNFIT
        ):
            return SettingRefused(f"{where}: {failure}. Nothing of the epoch is visible.")
        case ServerFailure.NO_SLOT:
            return EpochAborted(
                f"{where}: {failure}. {NO_SLOT} The attempt is void; start the query again."
            )
        case _:
            return EpochAborted(f"{where}: {failure}. The attempt is void; start the query again.")
