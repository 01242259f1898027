"""``staging=`` as a prefix in an object store, reached by what Spark is told of it."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from exactum.checkpoint.query_place import files_of, recorded_staging, staging_at
from exactum.checkpoint.query_record import IN_CHECKPOINT
from exactum.errors import SettingRefused
from tests.kit.files.s3_server import S3Server, s3_server
from tests.kit.python import python
from tests.kit.servers.postgres import LocalPostgres

TABLE = "staged_in_a_store"
BATCHES = 6
ROWS = 100
JOB = """
import json, os, sys
import exactum

url, table, place, endpoint, die = sys.argv[1:]

def on_event(event):
    if die and type(event).__name__ == "EpochDecided" and event.batch_id == int(die):
        os._exit(7)

settings = {"endpoint": endpoint, "access.key": "any", "secret.key": "any", "endpoint.region": "us-east-1"}
spark = exactum.local_session(
    "store", master="local[2]", **{f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}
)
sink = exactum.PostgresSink(url, table=table)
rows = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1).json(place + "/in")
write = exactum.exactly_once(sink, staging="s3a://bucket/staging", on_event=on_event)
writer = rows.writeStream.trigger(availableNow=True)
write.start(writer, checkpoint=place + "/checkpoint").awaitTermination()
spark.stop()
"""


def endpoint_of(server: S3Server) -> str:
    return str(server.settings["endpoint"])


def play(postgres: LocalPostgres, folder: Path, server: S3Server, die: str) -> None:
    ends = 7 if die else 0
    python(JOB, postgres.url, TABLE, folder, endpoint_of(server), die, status=ends)


@pytest.mark.deep  # make objects has it with every target; the contract has the store itself
@pytest.mark.spark
def test_a_decided_batch_is_loaded_from_the_store(postgres: LocalPostgres, tmp_path: Path) -> None:
    """The driver dies behind the decision of a batch; the next one finds its rows in the store."""
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        lines = [json.dumps({"v": batch * ROWS + n}) for n in range(ROWS)]
        (tmp_path / "in" / f"{batch}.json").write_text("\n".join(lines))
    with s3_server("kept") as server, psycopg.connect(postgres.url, autocommit=True) as database:
        database.execute(f"DROP TABLE IF EXISTS {TABLE}")
        database.execute(f"CREATE TABLE {TABLE} (v bigint)")
        play(postgres, tmp_path, server, "2")
        count = database.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        assert count == (2 * ROWS,)
        assert any(key.startswith("staging/") for key in server.objects)
        play(postgres, tmp_path, server, "")
        found = [row for (row,) in database.execute(f"SELECT v FROM {TABLE}")]
        assert sorted(found) == list(range(BATCHES * ROWS))
        kept = {key.rpartition("/")[0] for key in server.objects}
        assert all(key.startswith("staging/") for key in kept)
        assert not (tmp_path / "checkpoint" / "exactum" / "staging").exists()


class Somewhere:
    """A query with its checkpoint at a place; see ``query_place.HasCheckpoint``."""

    query_id = "query"

    def __init__(self, checkpoint: str, endpoint: str = "http://127.0.0.1:1") -> None:
        self.checkpoint = checkpoint
        self.hadoop = {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.access.key": "any",
            "spark.hadoop.fs.s3a.secret.key": "any",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        }
        self.files = files_of(checkpoint, self.hadoop)


def test_the_default_lies_below_the_checkpoint() -> None:
    """Also where the checkpoint is in an object store. It moves with it, so it is on file as that."""
    with s3_server("kept") as server:
        query = Somewhere("s3a://bucket/jobs/orders/", endpoint_of(server))
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
    with pytest.raises(SettingRefused) as refused:
        staging_at(Somewhere("hdfs://host/orders"), "hdfs://host/staging")
    assert refused.value.code == "STAGING_PLACE"
