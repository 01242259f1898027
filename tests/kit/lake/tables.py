"""What the tests of Delta tables share: a table of their own, a plain reader, and versions by hand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema, write_deltalake

from exactum.errors import ExactumError
from exactum.lake.delta import DeltaSink
from tests.kit.opened_sink import OpenedSink


class Delta:
    """One table, and whoever else uses it. ``Lake`` is the same for Iceberg."""

    name = "delta"
    commits = (DeltaTable, "create_write_transaction")
    """What brings rows, and may die."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.path = folder / "table"

    def sink(self, **more: Any) -> DeltaSink:
        return DeltaSink(self.path, **more)

    def create(self, schema: pa.Schema) -> None:
        DeltaTable.create(str(self.path), Schema.from_arrow(schema))

    @property
    def table(self) -> DeltaTable:
        """As it is now."""
        return DeltaTable(str(self.path))

    def exists(self) -> bool:
        return self.path.exists()

    def versions(self) -> int:
        """Behind the one that made it."""
        return int(self.table.version())

    def read(self) -> pa.Table:
        """Its rows, by delta-rs alone."""
        rows = QueryBuilder().register("t", self.table).execute("SELECT * FROM t")
        return pa.table(rows.read_all())

    def found(self, wanted: pa.RecordBatch) -> list[int]:
        """How many rows there are for each value of one row, by the statistics of the files."""
        (row,) = wanted.to_pylist()
        return [self.table.to_pyarrow_table(filters=[(c, "=", v)]).num_rows for c, v in row.items()]

    def ids(self) -> list[int]:
        return sorted(self.read()["id"].to_pylist())

    def staged(self) -> list[Path]:
        return sorted(self.path.glob(".exactum/*/*.staged"))

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.path

    def foreign(self, *values: int) -> None:
        """Somebody else appends rows of one column."""
        write_deltalake(
            str(self.path), pa.table({"id": pa.array(values, pa.int64())}), mode="append"
        )

    def tidied(self) -> None:
        """Compacted, and all that is not needed any more is removed."""
        self.table.optimize.compact()
        self.table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    def made_anew(self, schema: pa.Schema) -> None:
        (self.path / "_delta_log").rename(self.folder / "old")
        for file in self.path.glob("*.parquet"):
            file.unlink()
        self.create(schema)

    def away(self) -> Callable[[], object]:
        """Somewhere else; gives what brings it back."""
        aside = self.path.rename(self.folder / uuid.uuid4().hex)
        return lambda: aside.rename(self.path)

    def close(self) -> None:
        """Nothing is open."""

    # ---- versions that any writer of Delta could have made, as the protocol has it ---------------

    def _commit(self, *actions: dict[str, Any]) -> None:
        log = self.path / "_delta_log"
        version = len(list(log.glob("*.json")))
        lines = "".join(json.dumps(action) + "\n" for action in actions)
        (log / f"{version:020d}.json").write_text(lines)

    def with_features(self, *features: str, readers: Sequence[str] = ()) -> None:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": list(readers),
            "writerFeatures": [*features],
        }
        self._commit({"protocol": protocol})

    def with_metadata(self, column: dict[str, Any] | None = None, **settings: str) -> None:
        """Settings, and metadata of the first column."""
        lines = (self.path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
        first = next(json.loads(line) for line in lines if "metaData" in line)
        schema = json.loads(first["metaData"]["schemaString"])
        schema["fields"][0]["metadata"] = column or {}
        first["metaData"]["schemaString"] = json.dumps(schema)
        first["metaData"]["configuration"] = {k.replace("__", "."): v for k, v in settings.items()}
        self._commit(first)


def numbers(*values: int, **more: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64()), **more})


def columns_of(*batches: pa.RecordBatch) -> tuple[tuple[str, str], ...]:
    names = {"int64": "bigint", "string": "string", "bool": "boolean", "date32[day]": "date"}
    return tuple((f.name, names[str(f.type)]) for f in batches[0].schema)


def refusal(kind: type[ExactumError], sink: Any, *columns: tuple[str, str]) -> str:
    """What a start of a query with these columns says."""
    with pytest.raises(kind) as refused:
        OpenedSink(sink, columns)
    return f"{refused.value}"


def at_once(*commits: Callable[[Any], object], permit: Any) -> None:
    """Each in a thread of its own, to its end."""
    with ThreadPoolExecutor(len(commits)) as pool:
        list(pool.map(lambda commit: commit(permit), commits))
