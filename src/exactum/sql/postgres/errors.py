"""PostgreSQL's error codes (SQLSTATE), and libpq's words where there is none."""

from __future__ import annotations

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.url import Address

READ_ONLY = "25006"
"""The server is a standby, or has become one: another connection may lead to the primary."""
_CODES = {
    ServerFailure.LOST: ("57P01", "57P02", "57P05", "25P03", "25P04", "08"),
    # serialization, deadlock, a lock, two starts that create one table; and the classes of
    # insufficient resources, of an operator's intervention, of the machine
    ServerFailure.BUSY: (
        "40001", "40P01", "55006", "55P03", "42P06", "42P07", "42710", "53", "57", "58",
    ),
    ServerFailure.DENIED: ("42501", "28"),
    ServerFailure.MISSING: ("42P01", "3D", "3F"),
    ServerFailure.ROWS: ("21", "22", "23", "44", "54", "P0"),  # 54: beyond a page or an index
}  # fmt: skip
"""SQLSTATEs, and classes of them: the first two characters."""
_FAILURE_OF = {code: failure for failure, codes in _CODES.items() for code in codes}
_WORDS = {
    ServerFailure.BUSY: ("too many clients", "connection slots", "too many connections"),
    ServerFailure.DENIED: (
        "authentication failed", "no pg_hba.conf entry", "permission denied", "role ",
        "certificate", "does not support SSL", "no password supplied",
    ),
    ServerFailure.MISSING: ('" does not exist',),
    # What options that the user gave cannot become, as often as it is tried.
    ServerFailure.OTHER: (
        "invalid ", "bad value for", "could not parse network address", "could not match",
        "definition of service", "unrecognized configuration parameter", "channel binding required",
        "authentication method", "encryption required", "private key", "is not in hot standby mode",
        "session is not read-only", "codec",
    ),
}  # fmt: skip


def failure_of(code: str) -> ServerFailure:
    """By the SQLSTATE, else by its class; OTHER where neither is listed."""
    return _FAILURE_OF.get(code) or _FAILURE_OF.get(code[:2], ServerFailure.OTHER)


def connect_failure(address: Address, error: Exception) -> SqlFailure:
    """libpq gives no SQLSTATE here, so the words must do; an unknown language reads as LOST, which
    is tried again.
    """
    text = address.scrub(str(error))
    for failure, words in _WORDS.items():
        if any(word in text for word in words):
            return SqlFailure(failure, "", text)
    return SqlFailure(ServerFailure.LOST, "", text)
