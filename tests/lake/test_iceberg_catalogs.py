"""Iceberg tables in the catalogs that can run here: PostgreSQL's, and one over REST whose answers are
lost.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.errors import SettingRefused
from exactum.lake.iceberg import IcebergSink
from tests.kit.errors import raised
from tests.kit.lake.iceberg import Lake
from tests.kit.lake.rest_catalog import RestCatalog, rest_catalog
from tests.kit.lake.tables import numbers
from tests.kit.opened_sink import OpenedSink
from tests.kit.servers.postgres import LocalPostgres
from tests.lake.test_tables import race

COLUMNS = (("id", "bigint"),)


@pytest.mark.postgres
def test_a_catalog_in_postgresql(postgres: LocalPostgres, tmp_path: Path) -> None:
    """Two drivers and somebody else at once."""
    uri = postgres.url.replace("postgresql://", "postgresql+psycopg://")
    lake = Lake(tmp_path / "lake", type="sql", uri=uri, name=uuid.uuid4().hex)
    try:
        race(lake, 4)
    finally:
        lake.catalog.close()


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path / "lake") as catalog:
        yield catalog


@pytest.fixture
def lake(rest: RestCatalog, tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path / "lake", type="rest", uri=rest.uri)
    yield found
    found.catalog.close()


def test_a_catalog_over_rest(lake: Lake) -> None:
    race(lake, 4)


def test_a_table_is_made_over_rest(lake: Lake) -> None:
    query = OpenedSink(lake.sink(partition_by="bucket(4, id)", sort_by="id"), COLUMNS)
    query.write(numbers(1, 2, 3))
    assert lake.ids() == [1, 2, 3]
    assert lake.table.spec().fields[0].transform.num_buckets == 4


@pytest.mark.parametrize("lost", ["before", "after", "again"])
def test_answers_that_are_lost(lost: str, lake: Lake, rest: RestCatalog) -> None:
    """An error of the server, a gateway's timeout, and a gateway that asks again and gets a conflict
    with itself: nothing is doubled, and nothing that the table needs is removed.
    """
    query = OpenedSink(lake.sink(), COLUMNS)
    permit = query.decide(numbers(1))
    before = rest.commits
    rest.lose = [lost, lost]
    query.commit(permit)
    OpenedSink(lake.sink(), COLUMNS).commit(permit)
    assert rest.commits == before + 1
    assert lake.ids() == [1]


def test_a_catalog_that_is_not_there(tmp_path: Path) -> None:
    gone = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'no' / 'catalog.db'}"}
    with pytest.raises(Exception, match="did not answer"):
        OpenedSink(IcebergSink("a.b", catalog=gone), COLUMNS)
    with raised(SettingRefused, "LAKE_FEATURE", "uri"):
        OpenedSink(IcebergSink("a.b", catalog={"type": "sql"}), COLUMNS)
