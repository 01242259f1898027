"""Each kind of server, with all its types of columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.abuse.sql_values import Server, mariadb_server_of, postgres_server_of


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    started = request.getfixturevalue(request.param)
    made = postgres_server_of if request.param == "postgres" else mariadb_server_of
    with made(started) as found:
        yield found
