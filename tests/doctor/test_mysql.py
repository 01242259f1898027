"""MariaDB: settings of the server, made for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.doctor.diagnosis import diagnosed
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database

pytestmark = pytest.mark.mariadb


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as found:
        yield found


def test_settings_that_make_it_slow(database: Database, tmp_path: Path) -> None:
    table = database.table()
    database.run("SET GLOBAL local_infile = 0")
    try:
        sink = f"exactum.MySQLSink({database.url!r}, table={table!r})"
        found = diagnosed(sinks=sink, folder=tmp_path)
    finally:
        database.run("SET GLOBAL local_infile = 1")
    assert found.has("warning", "local_infile is off")
    assert found.status == 0
