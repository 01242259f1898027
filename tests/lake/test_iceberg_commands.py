"""What an operator's commands say of an Iceberg table, and do for it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.lake.iceberg import Lake
from tests.kit.lake.tables import numbers
from tests.kit.transactions.operator import invoke
from tests.kit.verify.recorded_query import RecordedQuery


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def findings(query: RecordedQuery) -> list[str]:
    said = invoke("verify", "--checkpoint", query.folder, "--json")
    return [each["finding"] for each in json.loads(said.stdout)["epochs"]]


def test_what_is_decided_is_finished_without_spark(tmp_path: Path, lake: Lake) -> None:
    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        return [[numbers(batch_id * 10 + n)] for n in range(2)]

    sinks = {"iceberg": (lake.sink, (("id", "bigint"),), tasks)}
    query = RecordedQuery(tmp_path / "checkpoint", sinks)
    query.run([0, 1])
    query.run([2], dies_after_decision=True)
    assert findings(query) == ["exact", "exact", "in doubt"]
    listed = invoke("transactions", "list", "--checkpoint", query.folder)
    assert "iceberg" in listed.output
    finished = invoke("transactions", "finish", "--checkpoint", query.folder)
    assert finished.exit_code == 0, finished.output
    assert findings(query) == ["exact", "exact", "exact"]
    assert lake.ids() == [0, 1, 10, 11, 20, 21]
    lake.table.overwrite(lake.read())
    assert findings(query) == ["unknowable"] * 3


def test_doctor(tmp_path: Path, lake: Lake) -> None:
    (tmp_path / "sinks.py").write_text(
        f"import exactum\nSINK = exactum.IcebergSink('shop.orders', catalog={dict(lake.settings)!r})\n"
    )
    given = ("doctor", "--sinks", f"{tmp_path / 'sinks.py'}:SINK")
    assert "There is no table yet" in invoke(*given).output
    lake.create(pa.schema([("id", pa.int64())]))
    assert "The table can be written to" in invoke(*given).output
    lake.table.transaction().set_properties({"write.wap.enabled": "true"}).commit_transaction()
    assert "write.wap.enabled" in invoke(*given).output
