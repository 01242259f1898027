"""What a refusal of a server is turned into says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from exactum.errors import ExactumError, SettingRefused, Unavailable
from exactum.sql.dialect import ServerFailure, SqlFailure
from exactum.sql.failure import TRANSIENT, port_error
from exactum.sql.mysql import errors
from exactum.sql.mysql.sink import MySQLSink
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_query import Query
from tests.kit.sql.mysql_server import Database


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        ("", 'password authentication failed for user "shop"', "Correct user, password and"),
        ("", "Access denied for user 'shop'@'localhost' (1045)", "Correct user, password and"),
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


@pytest.mark.parametrize(
    ("connect", "error", "words"),
    [
        ({"host": "a..b"}, SettingRefused, "label"),
        (
            {"host": "no-such-host.invalid"},
            Unavailable,
            "Can't connect",
        ),  # a name service that is down
        ({"port": 1}, Unavailable, "Can't connect"),
        ({"unix_socket": "/nowhere"}, Unavailable, "Can't connect"),  # the server makes it
        ({"connect_timeout": -1}, SettingRefused, "connect_timeout"),
        ({"read_timeout": 0}, SettingRefused, "read_timeout"),
        ({"ssl_ca": "/nowhere/ca.pem"}, SettingRefused, "No such file"),
        ({"ssl_verify_cert": True}, SettingRefused, "SSL is required .*Correct user"),
        ({"password": "wrong"}, SettingRefused, "1045.*Correct user"),
        ({"user": "locked", "password": "x"}, SettingRefused, "locked .*Correct user"),
        ({"database": "nowhere"}, SettingRefused, "Unknown database"),
    ],
    ids=str,
)
def test_what_no_other_start_mends_is_a_setting(
    mariadb: LocalMariaDB,
    connect: dict[str, Any],
    error: type[ExactumError],
    words: str,
) -> None:
    """And what one may mend is Unavailable. Who is not let in is not told of rights on a table."""
    with Database.made(mariadb) as database:
        database.run("CREATE TABLE t (v bigint NOT NULL)")
        database.run("CREATE USER IF NOT EXISTS locked IDENTIFIED BY 'x' ACCOUNT LOCK")
        query = Query(lambda: MySQLSink(database.url, table="t", connect=connect))
        with pytest.raises(error, match=words) as caught:
            query.started()
    assert "It needs to read and insert" not in str(caught.value)
