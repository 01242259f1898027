"""The contract of every sink, kept by Delta tables."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from exactum.lake.delta import DeltaSink
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink
from exactum.testing import SinkContract

pytestmark = pytest.mark.slow

_numbers = itertools.count()


class Contract(SinkContract):
    columns = (("id", "bigint"), ("day", "string"))
    upserts = False

    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        shm = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
            self.table = Path(name) / "table"
            yield

    def visible_rows(self) -> Iterable[object]:
        """By delta-rs alone: what a reader of the table's log finds."""
        if not DeltaTable.is_deltatable(str(self.table)):
            return []
        rows = DeltaTable(str(self.table)).to_pyarrow_table(columns=["id", "day"])
        return [tuple(row.values()) for row in rows.to_pylist()]

    def batches(self) -> Sequence[Any]:
        return [
            pa.record_batch({"id": [next(_numbers) for _ in range(3)], "day": ["a", "b", "a"]})
            for _ in range(4)
        ]

    def reset(self) -> None:
        shutil.rmtree(self.table, ignore_errors=True)

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for p in prepared:
            for file in self.table.glob(f".exactum/*/{p.identity}.*"):
                file.unlink()


@pytest.mark.sweep
class TestAppend(Contract):
    def make_sink(self) -> Sink:
        return DeltaSink(self.table, partition_by="day")

    def leftovers(self) -> Sequence[object]:
        """Files that no version names are garbage as well."""
        if not self.table.exists():
            return []
        named = {Path(uri).name for uri in DeltaTable(str(self.table)).file_uris()}
        found = [f for f in self.table.rglob("*.parquet") if f.name not in named]
        return [*found, *self.table.rglob("*.staged")]


@pytest.mark.deep
@pytest.mark.sweep
class TestUpsert(Contract):
    def make_sink(self) -> Sink:
        return DeltaSink(self.table, mode="upsert", key="id", partition_by="day")
