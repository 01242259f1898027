"""PostgreSQL's error codes (SQLSTATE), and libpq's words where there is none."""

from __future__ import annotations

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.url import Address

BUSY = frozenset({"40001", "40P01", "55P03", "53300", "57014", "57P03"})
"""Serialization failure, deadlock, lock timeout, too many connections, cancelled, starting up."""
READ_ONLY = "25006"
"""The server is a standby, or has become one: another connection may lead to the primary."""
LOST = frozenset({"57P01", "57P02", "57P05", "25P03", "25P04"})
DENIED_WORDS = (
    "authentication failed",
    "no pg_hba.conf entry",
    "permission denied",
    "role ",
    "certificate",
    "does not support SSL",
    "no password supplied",
)
SETTING_WORDS = (
    "invalid ", "bad value for", "could not parse network address", "could not match",
    "definition of service", "unrecognized configuration parameter", "channel binding required",
    "authentication method", "encryption required", "private key", "is not in hot standby mode",
    "session is not read-only", "codec",
)  # fmt: skip
"""What options that the user gave cannot become, as often as it is tried."""
BUSY_WORDS = ("too many clients", "connection slots", "too many connections")


def failure_of(code: str) -> ServerFailure:
    """What a SQLSTATE means for us."""
    if code in LOST or code.startswith("08"):
        return ServerFailure.LOST
    if code in BUSY:
        return ServerFailure.BUSY
    if code in ("42P07", "42710", "42P06"):
        return ServerFailure.EXISTS
    if code == "42501" or code.startswith("28"):
        return ServerFailure.DENIED
    if code[:2] in ("42", "3D", "3F", "0A"):
        return ServerFailure.MISSING
    if code[:2] in (
        "22",
        "23",
        "21",
        "44",
        "P0",
        "54",
    ):  # 54: a row or a key beyond what a page or an index takes
        return ServerFailure.ROWS
    return ServerFailure.OTHER


def connect_failure(address: Address, error: Exception) -> SqlFailure:
    """libpq gives no SQLSTATE here, so the words must do; an unknown language reads as LOST, which
    is tried again.
    """
    text = address.scrub(str(error))
    if any(word in text for word in BUSY_WORDS):
        return SqlFailure(ServerFailure.BUSY, "", text)
    if 'database "' in text and "does not exist" in text:
        return SqlFailure(ServerFailure.MISSING, "", text)
    if any(word in text for word in DENIED_WORDS):
        return SqlFailure(ServerFailure.DENIED, "", text)
    if any(word in text for word in SETTING_WORDS):
        return SqlFailure(ServerFailure.UNFIT, "", text)
    return SqlFailure(ServerFailure.LOST, "", text)
