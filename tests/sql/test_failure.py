"""What a refusal of a server is turned into says what to do."""

from __future__ import annotations

import pytest

from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.failure import TRANSIENT, port_error
from exactum.sql.mysql import errors


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        ("", 'password authentication failed for user "shop"', "Correct user, password and"),
        ("1045", "Access denied for user 'shop'@'localhost'", "Correct user, password and"),
        ("42501", "permission denied for table orders", "It needs to read and insert"),
        ("1142", "INSERT command denied to user 'shop'", "It needs to read and insert"),
    ],
)
def test_a_wrong_password_is_not_a_missing_right(code: str, text: str, advice: str) -> None:
    error = port_error(SqlFailure(ServerFailure.DENIED, code, text), "PostgresSink('orders')")
    assert text in str(error)
    assert advice in str(error)


def test_a_question_of_the_server_is_left_as_it_is() -> None:
    """As libpq asks where nobody listens."""
    failure = SqlFailure(ServerFailure.LOST, "", "Is the server accepting TCP/IP connections?")
    assert "connections? Nothing is known" in str(port_error(failure, "PostgresSink('orders')"))
    failure = SqlFailure(ServerFailure.LOST, "", "connection lost")
    assert "connection lost. Nothing is known" in str(port_error(failure, "PostgresSink('orders')"))


@pytest.mark.parametrize("code", [1290, 1836])
def test_a_server_that_is_read_only_may_not_be_for_long(code: int) -> None:
    """In a switchover or a failover: what is decided waits for the new primary."""
    assert errors.failure_of(code) in TRANSIENT
