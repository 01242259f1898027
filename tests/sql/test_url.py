"""A password that is not written as a URL wants it is shown to nobody."""

from __future__ import annotations

import pytest

from exactum import MySQLSink, PostgresSink
from exactum.errors import SettingRefused
from tests.kit.errors import check_error

SINKS = [(PostgresSink, "postgresql"), (MySQLSink, "mysql")]
PASSWORDS = [
    "p@secret",
    "p/secret",
    "12/secret",
    "12/34/secret",
    "1#secret",
    "1?secret",
    "a:secret",
]


@pytest.mark.parametrize(("sink", "scheme"), SINKS)
@pytest.mark.parametrize("password", PASSWORDS)
def test_no_part_of_it_is_shown(sink: type, scheme: str, password: str) -> None:
    """Where the client takes the rest for a host, a port or a database, it is refused."""
    try:
        made = sink(f"{scheme}://shop:{password}@localhost/shop", table="orders")
        shown = repr(made) + str(made)
        assert "shop@localhost" in shown, "the client has read it as it was meant"
    except SettingRefused as error:
        check_error(error, SettingRefused, "SQL_URL")
        shown = str(error)
        assert "%XX" in shown or f"{scheme}://user:password@" in shown
    assert "secret" not in shown


@pytest.mark.parametrize(("sink", "scheme"), SINKS)
def test_what_is_written_right_is_taken(sink: type, scheme: str) -> None:
    made = sink(f"{scheme}://shop:p%40%2Fsecret@localhost/sh%40p", table="orders")
    assert f"{scheme}://shop@localhost" in repr(made)


def test_the_form_of_keywords_needs_no_such_writing() -> None:
    text = "host=localhost dbname=shop password=a://b/c@secret"
    assert "secret" not in repr(PostgresSink(text, table="orders"))


def test_libpqs_variables_say_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As containers are often told. Messages, and what is on file, said localhost."""
    monkeypatch.setenv("PGHOST", "db-1,db-2")
    monkeypatch.setenv("PGPORT", "6432")
    monkeypatch.setenv("PGDATABASE", "shop")
    assert "at='postgresql://me@db-1,db-2:6432/shop'" in repr(
        PostgresSink("postgresql://me@", table="orders")
    )
    assert "at='postgresql://me@one:5/stock'" in repr(
        PostgresSink("postgresql://me@one:5/stock", table="orders")
    )


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("postgresql:///shop", "service=orders/shop"),
        ("postgresql://me@/", "me@service=orders/"),
        ("postgresql:///shop?service=stock", "service=stock/shop"),
        ("postgresql://me@db-1/", "me@db-1:service=orders/"),
        ("postgresql://me@db-1:6432", "me@db-1:6432:service=orders/"),
        ("postgresql://me@db-1:6432/shop", "me@db-1:6432/shop"),
    ],
)
def test_libpqs_service_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, url: str, where: str
) -> None:
    """What the URL leaves out. Two services passed for one place, localhost's, and a decided batch
    of the other one for undone.
    """
    monkeypatch.setenv("PGSERVICE", "orders")
    assert f"at='postgresql://{where}'" in repr(PostgresSink(url, table="orders"))


def test_a_socket_says_where_it_is() -> None:
    made = MySQLSink("mysql://me@/shop", table="orders", connect={"unix_socket": "/run/two.sock"})
    assert "at='mysql://me@unix:/run/two.sock/shop'" in repr(made)


@pytest.mark.parametrize(("sink", "scheme"), SINKS)
def test_options_say_where_it_is(sink: type, scheme: str) -> None:
    """``connect=`` is stronger than the URL, in messages and names as well."""
    database = "dbname" if sink is PostgresSink else "database"
    elsewhere = {"host": "two", "port": 7, "user": "me", database: "stock", "password": "p@secret"}
    made = sink(f"{scheme}://shop@one:5/shop", table="orders", connect=elsewhere)
    assert f"at='{scheme}://me@two:7/stock'" in repr(made)
