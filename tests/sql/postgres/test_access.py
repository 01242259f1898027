"""Who may use a server: its settings, rights, passwords and TLS. No text ever holds a password."""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.errors import (
    ExactumError,
    SettingRefused,
    Unavailable,
)
from tests.kit.errors import raised
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.certificates import make_certificate, serve_tls
from tests.kit.sql.clerk import Clerk
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected

pytestmark = pytest.mark.postgres


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
    with raised(SettingRefused, "SQL_REFUSED", f":{mariadb.port}/", "invalid response"):
        database.query(database.table(), connect={"port": mariadb.port}).check()


def test_libpq_options_pass_through(database: Database) -> None:
    """connect= reaches libpq and wins over the URL: TLS that the server does not have is then
    refused.
    """
    table = database.table()
    with raised(SettingRefused, "SQL_ACCESS", "SSL"):
        database.query(table, connect={"sslmode": "require"}).check()
    database.query(
        table, url=database.url + "?sslmode=require", connect={"sslmode": "disable"}
    ).check()
    database.query(table, connect={"host": str(database.server.socket_dir)}).check()
    with raised(SettingRefused, "SQL_URL", "connect=", "'sslmode'"):
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
        with raised(SettingRefused, "SQL_ACCESS", "certificate verify failed"):
            database.query(table, connect={**right, "sslrootcert": str(other)}).check()
        database.close()


def test_the_session_keeps_the_guarantee_whatever_the_role_has_set(
    database: Database, clerk: Clerk
) -> None:
    """A role with synchronous_commit=off, another isolation, time zone and date style, without
    warnings and nulls in arrays writes durably and exactly.
    """
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
        database.run(f"ALTER ROLE {clerk.name} SET {setting}")
    sink = database.sink("any", clerk.url)
    session = sink.dialect.connect(sink.address, "exactum test", 1.0)
    shown = session.query(
        "SELECT current_setting('synchronous_commit'), current_setting('transaction_isolation'), "
        "current_setting('transaction_read_only'), current_setting('TimeZone'), "
        "current_setting('statement_timeout'), date '2024-01-02'::text, "
        "current_setting('client_min_messages'), '{NULL}'::text[]"
    )
    session.close()
    assert shown == [("on", "read committed", "off", "UTC", "0", "2024-01-02", "warning", [None])]
