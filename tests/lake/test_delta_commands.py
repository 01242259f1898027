"""What an operator's commands say of a Delta table, and do for it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from exactum.lake.delta import DeltaSink
from tests.kit.lake.tables import ids, numbers, with_features
from tests.kit.transactions.operator import invoke
from tests.kit.verify.recorded_query import RecordedQuery


def query_at(tmp_path: Path, table: Path) -> RecordedQuery:
    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        return [[numbers(batch_id * 10 + n)] for n in range(2)]

    sinks = {"delta": (lambda: DeltaSink(table), (("id", "bigint"),), tasks)}
    return RecordedQuery(tmp_path / "checkpoint", sinks)


def findings(query: RecordedQuery) -> list[str]:
    said = invoke("verify", "--checkpoint", query.folder, "--json")
    return [each["finding"] for each in json.loads(said.stdout)["epochs"]]


def test_rows_that_were_rewritten_are_not_counted(tmp_path: Path, table: Path) -> None:
    """By a compaction, say: the marker has the batches, and nobody can tell their rows."""
    query = query_at(tmp_path, table)
    query.run([0, 1])
    assert findings(query) == ["exact", "exact"]
    DeltaTable(str(table)).optimize.compact()
    assert findings(query) == ["unknowable"] * 2
    assert ids(table) == [0, 1, 10, 11]


def test_doctor(tmp_path: Path) -> None:
    (tmp_path / "sinks.py").write_text(
        f"import exactum\nSINK = exactum.DeltaSink({str(tmp_path / 't')!r})\n"
    )
    given = ("doctor", "--sinks", f"{tmp_path / 'sinks.py'}:SINK")
    assert "There is no table yet" in invoke(*given).output
    DeltaTable.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]))
    assert "The table can be written to" in invoke(*given).output
    with_features(tmp_path / "t", "clustering")
    assert "clustering" in invoke(*given).output
