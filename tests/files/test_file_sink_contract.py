"""The contract of every sink, kept by files in a folder and by objects."""

from __future__ import annotations

import copyreg
import io
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from exactum.files.sink import FileSink
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink
from exactum.testing import SinkContract
from tests.kit.files.epochs_in_files import duck, hidden, visible

pytestmark = pytest.mark.slow

_numbers = itertools.count()
_stores: dict[int, MemoryStore] = {}


def _store(number: int) -> MemoryStore:
    return _stores[number]


# A copy of a store in memory is another handle to the same memory, as with a store on the network.
copyreg.pickle(MemoryStore, lambda store: (_store, (id(store),)))


def some_batches() -> list[pa.RecordBatch]:
    """Four, of rows that no other call has."""
    return [
        pa.record_batch({"id": [next(_numbers) for _ in range(3)], "day": ["a", "b", "a"]})
        for _ in range(4)
    ]


@pytest.mark.sweep
class TestFolder(SinkContract):
    @pytest.fixture(autouse=True)
    def _place(self) -> Iterator[None]:
        shm = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as name:
            self.table = Path(name) / "table"
            yield

    def make_sink(self) -> Sink:
        return FileSink(self.table, partition_by="day", rows=lambda frame: frame)

    def visible_rows(self) -> Iterable[object]:
        return duck(self.table, "id, day") if self.table.exists() and visible(self.table) else []

    def batches(self) -> Sequence[Any]:
        return some_batches()

    def reset(self) -> None:
        shutil.rmtree(self.table, ignore_errors=True)

    def leftovers(self) -> Sequence[object]:
        return hidden(self.table) if self.table.exists() else ()

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for p in prepared:
            for file in self.table.glob(f".exactum/*/{p.identity}.*"):
                file.unlink()


@pytest.mark.sweep
class TestObjects(SinkContract):
    """The longest sweep is for ``make deep``."""

    @pytest.mark.deep
    def test_every_fault_at_every_call_of_a_recovery(self) -> None:
        super().test_every_fault_at_every_call_of_a_recovery()

    @pytest.fixture(autouse=True)
    def _place(self) -> None:
        self.store = MemoryStore()
        _stores[id(self.store)] = self.store

    def make_sink(self) -> Sink:
        return FileSink("memory://bucket/table", store=self.store)

    def visible_rows(self) -> Iterable[object]:
        names = [n for n in self._names() if not n.startswith(".exactum/")]
        tables = (
            pq.read_table(io.BytesIO(bytes(obstore.get(self.store, n).bytes()))) for n in names
        )
        return [tuple(row.values()) for table in tables for row in table.to_pylist()]

    def batches(self) -> Sequence[Any]:
        return some_batches()

    def reset(self) -> None:
        obstore.delete(self.store, self._names())

    def leftovers(self) -> Sequence[object]:
        return [n for n in self._names() if n.endswith(".staged")]

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        lost = {p.identity for p in prepared}
        obstore.delete(
            self.store,
            [n for n in self._names() if n.rpartition("/")[2].partition(".")[0] in lost],
        )

    def _names(self) -> list[str]:
        return [str(m["path"]) for chunk in obstore.list(self.store) for m in chunk]
