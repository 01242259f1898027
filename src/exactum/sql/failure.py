"""A classified server error -> the error of exactum that says what to do. Pure."""

from __future__ import annotations

from exactum.errors import EpochAborted, ExactumError, RowsRefused, SettingRefused, Unavailable
from exactum.sql.dialect import ServerFailure, SqlFailure

TRANSIENT = frozenset({ServerFailure.LOST, ServerFailure.BUSY, ServerFailure.PREPARED_BUSY})
"""The same again may succeed."""


def sentence(failure: SqlFailure) -> str:
    """The server's words, with a full stop unless they end with a question."""
    said = str(failure)
    return said if said.endswith((".", "?", "!")) else f"{said}."


def port_error(failure: SqlFailure, where: str) -> ExactumError:
    """For the driver, where nothing is known to have changed."""
    said = sentence(failure)
    match failure.failure:
        case ServerFailure.DENIED if not failure.code:  # at login
            return SettingRefused(
                f"{where}: the server does not let the user in: {said} Correct user, "
                "password and database in the URL, or what the server allows."
            )
        case ServerFailure.DENIED:
            return SettingRefused(
                f"{where}: the server refused the user: {said} It needs to read and insert in "
                "the table (to update and delete, too, for an upsert), and once to create "
                "exactum's tables beside it."
            )
        case (
            ServerFailure.MISSING | ServerFailure.EXISTS | ServerFailure.UNFIT | ServerFailure.ROWS
        ):
            return SettingRefused(f"{where}: {said}")
        case ServerFailure.NO_SLOT:
            return SettingRefused(f"{where}: {said} {NO_SLOT}")
        case _:
            return Unavailable(
                f"{where}: {said} Nothing is known to have changed; start the query again."
            )


NO_SLOT = (
    "Every task of an epoch holds one prepared transaction until the decision, so the server "
    "needs room for as many as the write job has tasks, and for those of other queries: raise "
    "max_prepared_transactions and restart the server, write with fewer partitions, or use "
    "mechanism='staged'."
)


def task_error(failure: SqlFailure, where: str) -> EpochAborted | SettingRefused | RowsRefused:
    """For a task: nothing of it becomes visible. ``where`` names the task and the sink."""
    said = sentence(failure)
    match failure.failure:
        case ServerFailure.ROWS:
            return RowsRefused(
                f"{where}: the server refused the rows: {said} Nothing of the epoch is "
                "visible. Correct the rows in the query, or the table."
            )
        case (
            ServerFailure.DENIED
            | ServerFailure.MISSING
            | ServerFailure.EXISTS
            | ServerFailure.UNFIT
        ):
            return SettingRefused(f"{where}: {said} Nothing of the epoch is visible.")
        case ServerFailure.NO_SLOT:
            return EpochAborted(
                f"{where}: {said} {NO_SLOT} The attempt is void; start the query again."
            )
        case _:
            return EpochAborted(f"{where}: {said} The attempt is void; start the query again.")
