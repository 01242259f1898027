"""Servers that die, refuse, lock and are configured in other ways."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from pymysql.constants import CLIENT

from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.files.slot_log import SlotLog
from exactum.protocol.model import PreparedTransaction
from exactum.sql import session as retrying_session
from exactum.sql.mysql import dialect as mysql_dialect
from exactum.sql.mysql.connection import LOCAL_FILE_REFUSED, Connection
from exactum.sql.mysql.session import address_of, connect
from exactum.sql.mysql.sink import MySQLSink
from exactum.sql.session import SqlFailure
from exactum.testing.log_contract import QUERY_ID, record
from tests.kit.errors import raised
from tests.kit.memory import memory_folder
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.certificates import make_certificate
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import NUMBERS, Query, numbers

pytestmark = pytest.mark.slow


PACKET = 65_536


@pytest.fixture(scope="module")
def narrow_server() -> Iterator[LocalMariaDB]:
    """A server of these tests alone, that takes no LOAD DATA."""
    settings = {"local_infile": "off", "max_allowed_packet": PACKET}
    with memory_folder() as folder, LocalMariaDB(data_dir=folder, settings=settings) as server:
        yield server


def numbers_query(database: Database, **options: Any) -> Query:
    database.run("CREATE TABLE IF NOT EXISTS t (v bigint NOT NULL)")
    return database.query("t", NUMBERS, **options)


def test_rows_without_load_data(narrow_server: LocalMariaDB) -> None:
    """A server that takes no LOAD DATA LOCAL and only small packets: rows go by INSERTs that fit."""
    with Database.made(narrow_server) as database:
        database.run("CREATE TABLE t (v bigint NOT NULL, s longtext)")
        texts = ["x" * (n % 3_000) for n in range(1_000)]
        rows = pa.record_batch([pa.array(range(1_000)), pa.array(texts)], ["v", "s"])
        assert database.query("t", (*NUMBERS, ("s", "string"))).write(rows) == []
        assert database.run("SELECT s FROM t ORDER BY v") == [(t,) for t in texts]


def test_a_row_that_no_packet_takes(narrow_server: LocalMariaDB) -> None:
    """By INSERT a row over max_allowed_packet is put aside with its key and size; the largest that
    fits is stored, also where it is the only one, and where bytes and text take twice their size on
    the way."""
    sizes = [10, PACKET, 57_000, 37_000, None, None]
    a = pa.array([None if n is None else ("'" if i == 3 else "x") * n for i, n in enumerate(sizes)])
    b = pa.array([None, None, None, None, b"\xff" * 28_400, b"\xff" * 33_000], pa.binary())
    names = ["id", "a", "b"]
    six = pa.record_batch([pa.array(range(6), pa.int32()), a, b], names)
    large = pa.record_batch([pa.array([9], pa.int32()), pa.array(["y" * 2 * PACKET]), b[:1]], names)
    small = pa.record_batch([pa.array([10], pa.int32()), pa.array(["z"]), b[:1]], names)
    columns = (("id", "int"), ("a", "string"), ("b", "binary"))
    with Database.made(narrow_server) as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, a longtext, b longblob)")
        query, rejections = database.query("t", columns), []
        for batch_id, task in enumerate((six, [large, small], large)):
            rejections += query.write(task, batch_id=batch_id)
        assert [i for (i,) in database.run("SELECT id FROM t ORDER BY id")] == [0, 2, 4, 10]
    reasons = [reason for rejection in rejections for reason in rejection.reasons]
    assert [reason.split(":")[0].split("=")[1] for reason in reasons] == list("13599")
    assert all("max_allowed_packet" in reason and "the row has" in reason for reason in reasons)


def test_a_record_that_no_packet_takes(narrow_server: LocalMariaDB) -> None:
    """Of a decision: a server that gets it ends the connection, as if it were away. It is not sent;
    the error has both sizes, nothing stands, and the next record does.
    """
    large = PreparedTransaction("lake", "lake/0", 1, "x" * 4_000_000)
    with Database.made(narrow_server) as database:
        log = SlotLog(database.files(QUERY_ID, timeout_s=1.0), QUERY_ID)
        with raised(SettingRefused, "SQL_REFUSED", "bytes", PACKET, "max_allowed_packet"):
            log.decide(replace(record(0), prepared=(large,)))
        assert log.decide(record(0)) == record(0)
        log.close()


def test_locked_rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that somebody locks for longer than we wait: the attempt is void, the next one is
    exact.
    """
    monkeypatch.setattr(retrying_session, "LOCK_TIMEOUT_S", 1.0)
    monkeypatch.setattr(retrying_session.RetryingSession.run, "__defaults__", (2.0,))
    query = numbers_query(database)
    one = query.start()
    with database.client() as client, client.cursor() as cursor:
        cursor.execute("LOCK TABLES t WRITE")
        with pytest.raises((EpochAborted, Unavailable)):
            one.epoch(0, numbers(1))
    one.close()
    two = query.start()
    two.epoch(0, numbers(1))
    assert database.values("t") == [1]
    assert one.query.staged() == []
    two.close()


def test_deadlocks_are_tried_again(database: Database) -> None:
    """Upserts that deadlock with another writer of the same rows end well, on both sides in the
    end.
    """
    database.run("CREATE TABLE t (k int PRIMARY KEY, n int NOT NULL)")
    database.run("INSERT INTO t VALUES " + ", ".join(f"({k}, 0)" for k in range(200)))
    one = database.query("t", (("k", "int"), ("n", "int")), mode="upsert", key="k").start()
    stop = threading.Event()
    deadlocks: list[int] = []

    def rival() -> None:
        with database.client(autocommit=False) as client, client.cursor() as cursor:
            while not stop.is_set():
                try:
                    for k in range(199, -1, -7):
                        cursor.execute("UPDATE t SET n = n WHERE k = %s", (k,))
                    client.commit()
                except pymysql.err.OperationalError as error:
                    deadlocks.append(error.args[0])
                    client.rollback()

    threads = [threading.Thread(target=rival) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for batch_id in range(15):
            n = pa.array([batch_id + 1] * 200, pa.int32())
            one.epoch(batch_id, pa.record_batch([pa.array(range(200), pa.int32()), n], ["k", "n"]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert {n for (n,) in database.run("SELECT n FROM t")} == {15}
    print(f"{len(deadlocks)} deadlocks on the rival's side")
    one.close()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"innodb_flush_log_at_trx_commit": 2}, "innodb_flush_log_at_trx_commit=2"),
        ({"log_bin": "on", "binlog_format": "STATEMENT"}, "binlog_format=STATEMENT"),
        ({"log_bin": "on"}, "sync_binlog=0"),
    ],
)
def test_servers_that_cannot_keep_the_promise(settings: dict[str, str | int], setting: str) -> None:
    """A server that forgets commits, or logs by statement, is refused."""
    with LocalMariaDB(settings=settings) as server, Database.made(server) as database:
        with raised(SettingRefused, "SQL_SERVER", setting):
            numbers_query(database).check()


@pytest.mark.deep
@pytest.mark.parametrize(
    "kept_by", [{"sync_binlog": 1}, {"innodb_flush_log_at_trx_commit": 3}], ids=str
)
def test_with_a_binary_log(kept_by: dict[str, str | int]) -> None:
    """In its default format, where a commit is kept."""
    settings = {"log_bin": "on", **kept_by}
    with LocalMariaDB(settings=settings) as server, Database.made(server) as database:
        one = numbers_query(database).start()
        one.losers = 1
        one.epoch(0, numbers(1), numbers(2))
        one.close()
        assert database.values("t") == [1, 2]
        assert one.query.staged() == []
        database.run("CREATE TABLE u (v bigint PRIMARY KEY)")
        database.query("u", NUMBERS, mode="upsert", key="v").write(numbers(1, 1))
        assert database.values("u") == [1]


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"url": "postgresql://a/b"}, ["SQL_URL", "mysql://,"]),
        (
            {"url": "mysql://u:hidden-pw@host:99999999/db"},
            ["SQL_URL", "mysql://user:password@host:port/database."],
        ),
        (
            {"url": "mysql://u:hidden-pw@host:3306"},
            ["SQL_URL", "mysql://user:password@host/database."],
        ),
        ({"url": "mysql://u:hidden-pw@host/db?autocommit=true"}, ["SQL_URL", "'autocommit'"]),
        ({"connect": {"init_command": "hidden-pw"}}, ["SQL_URL", "'init_command'"]),
        ({"connect": {"port": "hidden-pw"}}, ["SQL_URL", "'port'"]),
        ({"connect": {"port": 65_536}}, ["SQL_URL", "'port'"]),
        ({"url": "mysql://u:hidden-pw@host:0/db"}, ["SQL_URL", "'port'"]),
        ({"connect": {"ssl_ca": object()}}, ["SQL_URL", "'ssl_ca'"]),
        ({"mode": "merge"}, ["SQL_ARGUMENT", "mode='merge'"]),
        ({"mode": "upsert"}, ["SQL_ARGUMENT", "mode='upsert'", "key="]),
        ({"order_by": ["v"]}, ["SQL_ARGUMENT", "order_by", "mode='upsert'"]),
        (
            {"mode": "upsert", "key": "v", "delete_when": "v"},
            ["SQL_ARGUMENT", "delete_when='v'", "key"],
        ),
        ({"table": ""}, ["SQL_ARGUMENT", "'schema.table'"]),
    ],
)
def test_settings_that_cannot_be(options: dict[str, Any], facts: list[str]) -> None:
    """Refused when the sink is made, with the setting named and no value that may be a secret."""
    with raised(SettingRefused, *facts) as caught:
        MySQLSink(**{"url": "mysql://u:hidden-pw@host/db", "table": "t", **options})
    assert "hidden-pw" not in str(caught.value)


def test_the_server_gets_no_other_file(database: Database, tmp_path: Path) -> None:
    """A server that asks for a file which was not offered gets nothing, and the connection ends."""
    secret = tmp_path / "secret"
    secret.write_text("1\n")
    database.run("CREATE TABLE t (v bigint)")
    session = connect(address_of(database.url, None, "test"), "test", 5.0)
    for _ in range(2):
        session.execute("SELECT 1")
    with pytest.raises(SqlFailure) as refused:
        session.send(f"LOAD DATA LOCAL INFILE '{secret}' INTO TABLE t".encode(), "/proc/self/fd/9")
    assert refused.value.code == str(LOCAL_FILE_REFUSED)
    assert not session.usable
    assert database.run("SELECT * FROM t") == []


def test_nor_in_a_further_result(database: Database, tmp_path: Path) -> None:
    """A server may send one that nobody has asked for; here by a client that takes two statements."""
    secret = tmp_path / "secret"
    secret.write_text("1\n")
    database.run("CREATE TABLE t (v bigint)")
    options = dict(address_of(database.url, None, "test").options)
    flags = {"client_flag": CLIENT.MULTI_STATEMENTS, "local_infile": True, "autocommit": True}
    client = Connection(**options | {"port": int(options["port"])} | flags)
    with client.cursor() as cursor:
        cursor.execute(f"SELECT 1; LOAD DATA LOCAL INFILE '{secret}' INTO TABLE t")
        with pytest.raises(pymysql.err.OperationalError) as refused:
            cursor.nextset()
    assert refused.value.args[0] == LOCAL_FILE_REFUSED
    assert database.run("SELECT * FROM t") == []


def test_rows_by_way_of_a_file(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory has no path (macOS), a temporary file is used."""
    monkeypatch.setattr(mysql_dialect, "MEMORY_FILES", False)
    numbers_query(database).write(numbers(1, 2))
    assert database.values("t") == [1, 2]


@pytest.mark.deep
def test_tls(tmp_path: Path) -> None:
    """The user's TLS options reach PyMySQL: a certificate that is not trusted is refused, a
    trusted one works.
    """
    certificate, key = make_certificate(tmp_path)
    settings = {"ssl_cert": str(certificate), "ssl_key": str(key), "require_secure_transport": "on"}
    with LocalMariaDB(settings=settings) as server:
        with Database.made(server) as database:
            trusting = {
                "ssl_ca": str(certificate),
                "ssl_verify_cert": True,
                "ssl_verify_identity": True,
            }
            for options in ({}, trusting):
                numbers_query(database, connect=options).check()
            for options in ({"ssl_verify_identity": True}, {"ssl_disabled": True}):
                with pytest.raises((SettingRefused, Unavailable)) as caught:
                    numbers_query(database, connect=options).check()
                print(caught.value)
                assert server.password not in str(caught.value)
