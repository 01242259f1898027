"""Who may use a server: its settings, rights, passwords and TLS. No text ever holds a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.errors import (
    ExactumError,
    Refused,
    SettingRefused,
    Unavailable,
)
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.certificates import make_certificate, serve_tls
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected

pytestmark = pytest.mark.postgres


@pytest.fixture
def limited(database: Database) -> Iterator[str]:
    """The URL of a user with no rights but to connect."""
    database.run("DROP ROLE IF EXISTS limited")
    database.run("CREATE ROLE limited LOGIN PASSWORD 'a secret&key'")
    yield database.server.url_of(database.server.database, "limited", "a secret&key")
    database.run("DROP OWNED BY limited")
    database.run("DROP ROLE limited")


def test_rights_that_are_missing(database: Database, limited: str) -> None:
    """Each missing right is refused at start, not at the first commit, and says which; then the
    user can write.
    """
    table = database.table()
    refusals: list[str] = []
    grants = [
        f"GRANT SELECT ON {table} TO limited",
        f"GRANT INSERT ON {table} TO limited",
        "GRANT CREATE ON SCHEMA public TO limited",
    ]
    for grant in grants:
        with pytest.raises(SettingRefused) as caught:
            database.query(table, url=limited).check()
        refusals.append(str(caught.value))
        database.run(grant)
    database.query(table, url=limited).check()
    assert all("secret" not in text for text in refusals)
    assert all("Correct user" not in text for text in refusals)
    assert "Grant CREATE" in refusals[-1]
    database.query(table, url=limited).run(0)
    assert sorted(database.rows(f"SELECT * FROM {table}")) == expected([0])


def test_own_tables_made_by_an_administrator(database: Database, limited: str) -> None:
    """A user who may not create tables can have them made, by the statements that the refusals
    give.
    """
    table = database.table()
    database.run(f"GRANT SELECT, INSERT ON {table} TO limited")
    query = database.query(table, url=limited)
    with pytest.raises(SettingRefused) as caught:
        query.check()
    statement = str(caught.value).split("have it created: ")[1].split("; with")[0]
    database.run(statement)
    database.run("GRANT SELECT, INSERT, DELETE ON exactum_ledger TO limited")
    query.check()


@pytest.mark.parametrize(
    ("connect", "error"),
    [
        ({"port": "99999"}, SettingRefused),
        ({"port": "0"}, SettingRefused),
        ({"port": "abc"}, SettingRefused),
        ({"port": "1,2"}, SettingRefused),
        ({"port": "1"}, Unavailable),
        ({"host": "a..b"}, SettingRefused),
        (
            {"host": "no-such-host.invalid"},
            Unavailable,
        ),  # a name service that is down says the same
        ({"host": "/nowhere"}, Unavailable),  # the server makes its socket
        ({"hostaddr": "nonsense"}, SettingRefused),
        ({"sslmode": "nonsense"}, SettingRefused),
        ({"sslmode": "verify-full", "sslrootcert": "/nowhere/ca.pem"}, SettingRefused),
        ({"ssl_min_protocol_version": "TLSv9"}, SettingRefused),
        ({"channel_binding": "require"}, SettingRefused),
        ({"gssencmode": "require"}, SettingRefused),
        ({"require_auth": "gss"}, SettingRefused),
        ({"connect_timeout": "abc"}, SettingRefused),
        ({"keepalives": "abc"}, SettingRefused),
        ({"target_session_attrs": "nonsense"}, SettingRefused),
        ({"target_session_attrs": "standby"}, SettingRefused),
        ({"target_session_attrs": "read-only"}, SettingRefused),
        ({"service": "none-such"}, SettingRefused),
        ({"client_encoding": "nonsense"}, SettingRefused),
        ({"options": "-c nonsense=1"}, SettingRefused),
        ({"options": "-c work_mem=abc"}, SettingRefused),
    ],
    ids=str,
)
def test_what_no_other_start_mends_is_a_setting(
    database: Database, connect: dict[str, str], error: type[ExactumError]
) -> None:
    """And what one may mend is Unavailable."""
    with pytest.raises(error):
        database.query(database.table(), connect=connect).check()


def test_a_port_where_another_kind_of_server_listens(
    database: Database, mariadb: LocalMariaDB
) -> None:
    with pytest.raises(SettingRefused, match="invalid response"):
        database.query(database.table(), connect={"port": mariadb.port}).check()


def test_libpq_options_pass_through(database: Database) -> None:
    """connect= reaches libpq and wins over the URL: TLS that the server does not have is then
    refused.
    """
    table = database.table()
    with pytest.raises(Refused, match="SSL"):
        database.query(table, connect={"sslmode": "require"}).check()
    database.query(
        table, url=database.url + "?sslmode=require", connect={"sslmode": "disable"}
    ).check()
    database.query(table, connect={"host": str(database.server.socket_dir)}).check()
    with pytest.raises(SettingRefused, match="connect="):
        database.query(table, connect={"sslmode": ["require"]}).check()


def test_tls_verifies_the_server(tmp_path: Path) -> None:
    """With verify-full the right authority is accepted; another one is refused."""
    other, _ = make_certificate(tmp_path)
    with LocalPostgres() as server:
        right = {"sslmode": "verify-full", "sslrootcert": str(serve_tls(server))}
        database = Database(server)
        table = database.table()
        driver = database.query(table, connect=right).start()
        driver.run(0)
        encrypted = database.rows(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name "
            "LIKE 'exactum %'"
        )
        driver.close()
        assert set(encrypted) == {(True,)}
        assert sorted(database.rows(f"SELECT * FROM {table}")) == expected([0])
        with pytest.raises(SettingRefused, match="certificate verify failed"):
            database.query(table, connect={**right, "sslrootcert": str(other)}).check()
        database.close()


def test_the_session_keeps_the_guarantee_whatever_the_role_has_set(database: Database) -> None:
    """A role with synchronous_commit=off, another isolation, time zone and date style, without
    warnings and nulls in arrays writes durably and exactly.
    """
    database.run("DROP ROLE IF EXISTS odd")
    database.run("CREATE ROLE odd LOGIN SUPERUSER PASSWORD 'odd'")
    for setting in (
        "synchronous_commit = off",
        "default_transaction_isolation = 'serializable'",
        "default_transaction_read_only = on",
        "TimeZone = 'Asia/Tokyo'",
        "DateStyle = 'German'",
        "statement_timeout = '1s'",
        "client_min_messages = 'error'",
        "array_nulls = off",
    ):
        database.run(f"ALTER ROLE odd SET {setting}")
    sink = database.sink("any", database.server.url_of(database.server.database, "odd", "odd"))
    session = sink.dialect.connect(sink.address, "exactum test", 1.0)
    shown = session.query(
        "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation'), "
        "current_setting('transaction_read_only'), current_setting('TimeZone'), "
        "current_setting('statement_timeout'), date '2024-01-02'::text, "
        "current_setting('client_min_messages'), '{NULL}'::text[]"
    )
    session.close()
    database.run("DROP ROLE odd")
    assert shown == [("on", "read committed", "off", "UTC", "0", "2024-01-02", "warning", [None])]
