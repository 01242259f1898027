"""A classified server error -> the error of exactum that says what to do. Pure."""

from __future__ import annotations

from exactum.errors import (
    ExactumError,
    SettingRefused,
    Unavailable,
)
from exactum.sql.dialect import ServerFailure, SqlFailure

TRANSIENT = frozenset({ServerFailure.LOST, ServerFailure.BUSY})
"""The same again may succeed."""


def sentence(failure: SqlFailure) -> str:
    """The server's words, with a full stop unless they end with a question."""
    said = str(failure)
    return said if said.endswith((".", "?", "!")) else f"{said}."


def port_error(failure: SqlFailure, where: str) -> ExactumError:
    """For the driver, where nothing is known to have changed."""
    said = f"{where}: {sentence(failure)}"
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
