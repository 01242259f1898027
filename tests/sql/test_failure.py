"""What a refusal of a server is turned into says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from exactum.errors import (
    ExactumError,
    SettingRefused,
    Unavailable,
)
from exactum.sql.mysql.session import failure_of
from exactum.sql.postgres.session import failure_of as of_sqlstate
from exactum.sql.session import TRANSIENT, ServerFailure, SqlFailure, port_error
from tests.kit.errors import check_error, raised
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.clerk import LOGIN, RIGHTS
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import NUMBERS


def test_a_question_of_the_server_is_left_as_it_is() -> None:
    """As libpq asks where nobody listens."""
    failure = SqlFailure(ServerFailure.LOST, "", "Is the server accepting TCP/IP connections?")
    asks = port_error(failure, "PostgresSink('orders')")
    check_error(asks, Unavailable, "PostgresSink('orders')", f"{failure.text} ")
    failure = SqlFailure(ServerFailure.LOST, "", "connection lost")
    says = port_error(failure, "PostgresSink('orders')")
    check_error(says, Unavailable, "PostgresSink('orders')", f"{failure.text}. ")


MYSQL = {
    "0 1053 1158 1159 1160 1161 1927 3169 4031 2003 2006 2013 1290 1836": ServerFailure.LOST,
    "1040 1203 1226 1205 1206 1213 3572 1020 1047 1317 1969 3024 1412 1050 1021 1114 1180 3101":
        ServerFailure.BUSY,
    "1044 1142 1143 1227 1370": ServerFailure.DENIED,
    "1049 1146": ServerFailure.MISSING,
    "1048 1364 1264 1690 1153 1265 1406 1292 1366 1411 1416 3140 1022 1062 1451 1452 1526 3819 4025"
    " 1644": ServerFailure.ROWS,
    # no such column, syntax, no such engine, what a proxy or a later version may say
    "1054 1064 1286 9001 6001": ServerFailure.OTHER,
}  # fmt: skip
POSTGRES = {
    "08000 08006 57P01 57P02 57P05 25P03 25P04": ServerFailure.LOST,
    "40001 40P01 55006 55P03 42P06 42P07 42710 53100 53200 53300 57014 57P03 58030":
        ServerFailure.BUSY,
    "42501 28000 28P01": ServerFailure.DENIED,
    "42P01 3D000 3F000": ServerFailure.MISSING,
    "22003 22P02 23502 23505 23514 21000 44000 P0001 54000": ServerFailure.ROWS,
    "42601 42703 42804 0A000 XX000 XX001 40003 HV000 2D000 99999": ServerFailure.OTHER,
}  # fmt: skip
PASSING = (ServerFailure.LOST, ServerFailure.BUSY)
CASES = [
    *((c, failure_of(int(c)), failure) for cs, failure in MYSQL.items() for c in cs.split()),
    *((c, of_sqlstate(c), failure) for cs, failure in POSTGRES.items() for c in cs.split()),
]


@pytest.mark.parametrize(("code", "found", "wanted"), CASES, ids=str)
def test_what_is_done_about_each_error(
    code: str, found: ServerFailure, wanted: ServerFailure
) -> None:
    """A code that nobody knows stops the driver. It is never a success."""
    failure = SqlFailure(found, code, "the server's words")
    assert found is wanted
    assert (found in TRANSIENT) is (wanted in PASSING)
    made = port_error(failure, "PostgresSink('orders')")
    assert type(made) is (Unavailable if wanted in PASSING else SettingRefused)


@pytest.mark.parametrize(
    ("connect", "error", "facts"),
    [
        ({"host": "a..b"}, SettingRefused, ["SQL_URL", "a..b:", "Unicode"]),
        # A name service that is down.
        ({"host": "no-such-host.invalid"}, Unavailable, ["no-such-host.invalid:", "(2003)"]),
        ({"port": 1}, Unavailable, [":1/", "(2003)"]),
        ({"unix_socket": "/nowhere"}, Unavailable, ["/nowhere", "(2003)"]),  # the server makes it
        ({"connect_timeout": -1}, SettingRefused, ["SQL_URL", "connect_timeout"]),
        ({"read_timeout": 0}, SettingRefused, ["SQL_URL", "read_timeout"]),
        ({"ssl_ca": "/nowhere/ca.pem"}, SettingRefused, ["SQL_URL", "FileNotFoundError"]),
        ({"ssl_verify_cert": True}, SettingRefused, ["SQL_ACCESS", "SSL", LOGIN]),
        ({"ssl_verify_identity": "true"}, SettingRefused, ["SQL_ACCESS", "SSL", LOGIN]),
        ({"password": "wrong"}, SettingRefused, ["SQL_ACCESS", "(1045)", LOGIN]),
        ({"user": "locked", "password": "x"}, SettingRefused, ["SQL_ACCESS", "locked (", LOGIN]),
        ({"database": "nowhere"}, SettingRefused, ["SQL_REFUSED", "'nowhere'", "(1049)"]),
    ],
    ids=str,
)
def test_what_no_other_start_mends_is_a_setting(
    mariadb: LocalMariaDB,
    connect: dict[str, Any],
    error: type[ExactumError],
    facts: list[str],
) -> None:
    """And what one may mend is Unavailable. Who is not let in is not told of rights on a table."""
    with Database.made(mariadb) as database:
        database.run("CREATE TABLE t (v bigint NOT NULL)")
        database.run("CREATE USER IF NOT EXISTS locked IDENTIFIED BY 'x' ACCOUNT LOCK")
        query = database.query("t", NUMBERS, connect=connect)
        with raised(error, *facts) as caught:
            query.start()
    assert RIGHTS not in str(caught.value)
