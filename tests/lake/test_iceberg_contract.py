"""The contract of every sink, kept by Iceberg tables."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink
from exactum.testing import SinkContract
from tests.kit.lake.iceberg import Lake

pytestmark = [pytest.mark.slow, pytest.mark.sweep]

_numbers = itertools.count()


class TestAppend(SinkContract):
    columns = (("id", "bigint"), ("day", "string"))

    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        shm = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
            self.place = Path(name) / "lake"
            self.lake = Lake(self.place)
            yield
            self.lake.catalog.close()

    def make_sink(self) -> Sink:
        return self.lake.sink(partition_by="day")

    def visible_rows(self) -> Iterable[object]:
        """By pyiceberg alone: what a reader of the table finds."""
        try:
            rows = self.lake.read().select(["id", "day"])
        except NoSuchTableError:
            return []
        return [tuple(row.values()) for row in rows.to_pylist()]

    def batches(self) -> Sequence[Any]:
        return [
            pa.record_batch({"id": [next(_numbers) for _ in range(3)], "day": ["a", "b", "a"]})
            for _ in range(4)
        ]

    def leftovers(self) -> Sequence[object]:
        """Files that no snapshot names are garbage as well."""
        try:
            named = {Path(t.file.file_path).name for t in self.lake.table.scan().plan_files()}
        except NoSuchTableError:
            return []
        found = [f for f in self.lake.data.glob("*.parquet") if f.name not in named]
        return [*found, *self.lake.staged()]

    def reset(self) -> None:
        self.lake.catalog.close()
        shutil.rmtree(self.place, ignore_errors=True)
        self.lake = Lake(self.place)

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for p in prepared:
            for file in self.lake.folder.glob(f"shop/orders/.exactum/*/{p.identity}.*"):
                file.unlink()
