"""``staging=`` as a prefix in an object store, reached by what Spark is told of it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.checkpoint.query_place import files_of, recorded_staging, staging_at
from exactum.checkpoint.query_record import IN_CHECKPOINT
from exactum.errors import SettingRefused
from exactum.testing import MemoryStorage
from tests.kit.errors import raised
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.query import Query
from tests.spark.test_log_at_start import DiesBehindTheDecision


def said_of(endpoint: str) -> dict[str, str]:
    settings = {"endpoint": endpoint, "access.key": "any", "secret.key": "any"}
    settings["endpoint.region"] = "us-east-1"
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


@pytest.fixture
def store(spark: SparkSession) -> Iterator[S3Server]:
    """Spark is told of it, as of one that its session has begun with."""
    told = spark.sparkContext._conf
    with s3_server("kept") as server:
        settings = said_of(server.url)
        told.setAll([*settings.items()])
        yield server
    for name in settings:
        told._jconf.remove(name)


@pytest.mark.spark
def test_a_decided_batch_is_loaded_from_the_store(
    query: Query, store: S3Server, postgres: LocalPostgres
) -> None:
    """The run ends behind the decision of a batch; the next one finds its rows in the store."""
    query_id = str(uuid.uuid4())
    query.checkpoint.mkdir()
    (query.checkpoint / "metadata").write_text(json.dumps({"id": query_id}))  # as Spark makes it
    log = DiesBehindTheDecision(MemoryStorage(), query_id)
    sink = exactum.PostgresSink(postgres.url, table="staged_in_a_store", create_table=True)
    exact = query.exactly_once(sink, staging="s3a://bucket/staging", decision_log=log)
    query.give(1, 2)
    assert "the driver is gone" in str(query.run(exact))
    assert any(key.startswith("staging/") and key.endswith(".staged") for key in store.objects)
    query.give(3)
    assert query.run(exact) is None
    with psycopg.connect(postgres.url) as database:
        found = database.execute("SELECT v FROM staged_in_a_store ORDER BY v").fetchall()
    assert found == [(1,), (2,), (3,)]
    assert all(key.startswith("staging/") for key in store.objects)
    assert not (query.checkpoint / "exactum" / "staging").exists()


class Somewhere:
    """A query with its checkpoint at a place; see ``query_place.HasCheckpoint``."""

    query_id = "query"

    def __init__(self, checkpoint: str, endpoint: str = "http://127.0.0.1:1") -> None:
        self.checkpoint = checkpoint
        self.hadoop = said_of(endpoint)
        self.files = files_of(checkpoint, self.hadoop)


def test_the_default_lies_below_the_checkpoint() -> None:
    """Also where the checkpoint is in an object store. It moves with it, so it is on file as that."""
    with s3_server("kept") as server:
        query = Somewhere("s3a://bucket/jobs/orders/", server.url)
        storage = staging_at(query, None)
        assert storage is not None
        assert storage.where == "s3a://bucket/jobs/orders/exactum/staging"
        storage.put("a", b"1")
        assert server.objects == {"jobs/orders/exactum/staging/a": b"1"}
        assert recorded_staging(query, storage) == IN_CHECKPOINT
        other = staging_at(query, "s3://bucket/elsewhere")
        assert recorded_staging(query, other) == "s3://bucket/elsewhere"


def test_where_exactum_keeps_nothing() -> None:
    assert staging_at(Somewhere("hdfs://host/orders"), None) is None
    with raised(SettingRefused, "STAGING_PLACE"):
        staging_at(Somewhere("hdfs://host/orders"), "hdfs://host/staging")
