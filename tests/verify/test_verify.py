"""``exactum verify`` over one query with several sinks, as somebody types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from exactum import FileSink, PostgresSink
from tests.kit.query_record import note, on_file
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import NO_SINKS, invoke
from tests.kit.verify.recorded_query import RecordedQuery

ROWS = 12
SINKS = ("json", "parquet", "csv")


@pytest.fixture
def query(tmp_path: Path) -> RecordedQuery:
    """A sink for each format."""
    return RecordedQuery(
        tmp_path / "checkpoint",
        {
            kind: (
                lambda kind=kind: FileSink(tmp_path / kind, format=kind),  # type: ignore[misc]
                ID_AND_NAME,
                tasks_of,
            )
            for kind in SINKS
        },
    )


def verified(query: RecordedQuery, *more: str, **env: str) -> Result:
    return invoke("verify", "--checkpoint", query.folder, *more, env=env)


def test_a_range_and_a_sink(query: RecordedQuery) -> None:
    """All by default; wrong arguments say what is there."""
    query.run([0, 1, 2])
    result = verified(query)
    assert result.exit_code == 0, result.output
    assert "0 to 2" in result.output and "Epochs by sink: 9 exact." in result.output
    some = verified(query, "--from", "1", "--to", "2", "--sink", "json", "--json")
    assert [(e["batch_id"], e["sink"]) for e in json.loads(some.stdout)["epochs"]] == [
        (1, "json"),
        (2, "json"),
    ]
    assert "no batch from 9 to 2" in verified(query, "--from", "9").output
    assert "'json', 'parquet', 'csv'" in verified(query, "--sink", "nobody").output


def test_what_cannot_be_reached_is_unknowable(query: RecordedQuery) -> None:
    """The other sinks are verified all the same, and the status says that not all is known; without
    sinks it says what was promised to which. A decision log that lies elsewhere is asked for, never
    taken for empty.
    """
    query.run([0])
    away = PostgresSink("postgresql://nobody@127.0.0.1:1/none", table="verified")
    result = verified(query, *given({**query.sinks(), "csv": away}))
    assert result.exit_code == 2, result.output
    assert "2 exact, 1 unknowable" in result.output
    some = {name: sink for name, sink in query.sinks().items() if name != "csv"}
    result = verified(query, *given(some))
    assert result.exit_code == 2 and "2 exact, 1 unknowable" in result.output
    result = verified(query, "--json", **NO_SINKS)
    assert result.exit_code == 2
    epochs = json.loads(result.stdout)["epochs"]
    assert [(e["sink"], e["promised"], e["finding"]) for e in epochs] == [
        (name, ROWS, "unknowable") for name in SINKS
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
