"""A database of one test, on a real server of each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from exactum.files.slot_log import SlotLog
from exactum.sql.files import open_files
from exactum.testing.log_contract import QUERY_ID
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.servers.shared import started_postgres
from tests.kit.sql import mysql_server, postgres_server
from tests.kit.sql.clerk import clerk
from tests.kit.sql.sql_database import SqlDatabase

__all__ = ["clerk"]


@pytest.fixture(
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ]
)
def database(request: pytest.FixtureRequest) -> Iterator[SqlDatabase]:
    """Once of PostgreSQL and once of MariaDB, running, with no table in it."""
    if request.param == "postgres":
        with postgres_server.Database.cleaned(postgres_server.server_for(request)) as found:
            yield found
    else:
        with mysql_server.Database.made(request.getfixturevalue("mariadb")) as made:
            yield made


@pytest.fixture
def opened() -> Iterator[Callable[..., SlotLog]]:
    """Decision logs by their URLs, closed at the end."""
    with ExitStack() as stack:

        def make(url: str, query_id: str = QUERY_ID) -> SlotLog:
            log = SlotLog(open_files(url, query_id), query_id)
            stack.callback(log.close)
            return log

        yield make


@pytest.fixture(scope="session")
def mortal_postgres() -> Iterator[LocalPostgres]:
    """For tests marked ``kills_server``: the others' goes on. (MariaDB's tests are in one process.)"""
    with started_postgres() as server:
        yield server
