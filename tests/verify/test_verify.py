"""``exactum verify`` over one query with a sink of each kind, as somebody types it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result

from exactum import FileSink, KafkaSink, PostgresSink
from exactum.local import LocalKafka
from tests.kit.query_record import note, on_file
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import postgres_server
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import NO_SINKS, invoke
from tests.kit.verify.recorded_query import RecordedQuery

ROWS = 12


def messages(batch_id: int) -> list[list[pa.RecordBatch]]:
    texts = [f"{batch_id}/{i}" for i in range(ROWS)]
    return [[pa.record_batch({"key": texts, "value": texts})]]


@pytest.fixture
def query(
    kafka: LocalKafka,
    postgres: LocalPostgres,
    topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[RecordedQuery]:
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    with postgres_server.Database.cleaned(postgres) as database:
        yield made(kafka, database, topic("out"), tmp_path)


def made(kafka: LocalKafka, database: SqlDatabase, topic: str, folder: Path) -> RecordedQuery:
    database.run("CREATE TABLE verified (id bigint PRIMARY KEY, name varchar(50))")
    return RecordedQuery(
        folder / "checkpoint",
        {
            "kafka": (
                lambda: KafkaSink(topic, bootstrap_servers=kafka.bootstrap_servers),
                (("key", "string"), ("value", "string")),
                messages,
            ),
            "table": (
                lambda: PostgresSink(database.url, table="verified"),
                ID_AND_NAME,
                tasks_of,
            ),
            "files": (
                lambda: FileSink(str(folder / "files"), format="json"),
                ID_AND_NAME,
                tasks_of,
            ),
        },
    )


def verified(query: RecordedQuery, *more: str, **env: str) -> Result:
    return invoke("verify", "--checkpoint", query.folder, *more, env=env)


@pytest.mark.broker
@pytest.mark.postgres
def test_every_sink_of_a_query(query: RecordedQuery) -> None:
    """Exact, with status 0; in doubt in every sink after a death, with
    status 1; exact again once the query has started; JSON for programs; wrong arguments say what is
    there.
    """
    query.run([0, 1])
    result = verified(query)
    assert result.exit_code == 0, result.output
    for part in ("0 to 1", "Epochs by sink: 6 exact."):
        assert part in result.output, result.output
    query.run([2, 3], dies_after_decision=True)
    result = verified(query, "--json")
    assert result.exit_code == 1
    epochs = json.loads(result.stdout)["epochs"]
    assert [e["finding"] for e in epochs if e["batch_id"] == 3] == ["in doubt"] * 3
    assert {e["finding"] for e in epochs if e["batch_id"] < 3} == {"exact"}
    query.run([3, 4])
    assert verified(query).exit_code == 0
    some = verified(query, "--from", "1", "--to", "2", "--sink", "table", "--json")
    assert [(e["batch_id"], e["by"]) for e in json.loads(some.stdout)["epochs"]] == [
        (1, "rows"),
        (2, "rows"),
    ]
    assert "no batch from 9 to 4" in verified(query, "--from", "9").output
    assert "'kafka', 'table', 'files'" in verified(query, "--sink", "nobody").output


@pytest.mark.broker
@pytest.mark.postgres
def test_what_cannot_be_reached_is_unknowable(
    query: RecordedQuery, postgres: LocalPostgres
) -> None:
    """The other sinks are verified all the same, and the status says that not all is known; without
    sinks it says what was promised to which. A decision log that lies elsewhere is asked for, never
    taken for empty.
    """
    query.run([0])
    away = PostgresSink(postgres.url.replace(str(postgres.port), "1"), table="verified")
    result = verified(query, *given({**query.sinks(), "table": away}))
    assert result.exit_code == 2, result.output
    assert "2 exact, 1 unknowable" in result.output
    some = {name: sink for name, sink in query.sinks().items() if name != "table"}
    result = verified(query, *given(some))
    assert result.exit_code == 2 and "2 exact, 1 unknowable" in result.output
    result = verified(query, "--json", **NO_SINKS)
    assert result.exit_code == 2
    epochs = json.loads(result.stdout)["epochs"]
    assert [(e["sink"], e["promised"], e["finding"]) for e in epochs] == [
        (name, ROWS, "unknowable") for name in ("kafka", "table", "files")
    ]
    assert all("--sinks FILE.py:NAME" in e["why"] for e in epochs)
    log_id = on_file(query.folder).log_id
    note(query.folder, query.query_id, decision_log="postgresql://db/log", log_id="a")
    result = verified(query)
    assert result.exit_code == 2
    assert "--decision-log" in result.output
    note(query.folder, query.query_id, decision_log="", log_id=log_id)
    for record in (query.folder / "exactum" / "decisions").glob("*.json"):
        record.unlink()
    result = verified(query)
    assert result.exit_code == 2
    assert "No record, although Spark has finished them: batch 0" in result.output
