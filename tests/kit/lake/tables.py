"""What the tests of Delta tables share: a table of their own, a reader that is a process without
exactum, and versions by hand.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from exactum.errors import ExactumError
from exactum.lake.delta import DeltaSink
from tests.kit.opened_sink import OpenedSink

READER = """
import os, sys, pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
for line in sys.stdin:
    path, out, wanted = line.rstrip("\\n").split("\\t")
    table = DeltaTable(path)
    if wanted:
        (row,) = pa.ipc.open_stream(wanted).read_all().to_pylist()
        found = [table.to_pyarrow_table(filters=[(c, "=", v)]).num_rows for c, v in row.items()]
        rows = pa.table({"found": found})
    else:
        rows = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    assert not any(name.split(".")[0] == "exactum" for name in sys.modules)
    print("read", flush=True)
os._exit(0)  # at the end of a process delta-rs's threads may fall over Arrow's
"""


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

    def create(self, schema: pa.Schema, **more: Any) -> None:
        new_table(self.path, schema, **more)

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
        return read(self.path)

    def ids(self) -> list[int]:
        return ids(self.path)

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


def read(table: Path) -> pa.Table:
    """Its rows, as delta-rs reads them in a process of its own."""
    return _answer(table, "")


def found(table: Path, wanted: pa.RecordBatch) -> list[int]:
    """How many rows delta-rs finds for each value of one row, by the statistics of its files."""
    at = table.parent / f"{uuid.uuid4()}.arrow"
    with pa.ipc.new_stream(at, wanted.schema) as stream:
        stream.write_batch(wanted)
    return list(_answer(table, str(at))["found"].to_pylist())


@cache
def _reader() -> subprocess.Popen[str]:
    """It reads for all tests of this process: to start it takes a second."""
    command = [sys.executable, "-I", "-c", READER]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(reader.communicate)
    return reader


def _answer(table: Path, wanted: str) -> pa.Table:
    out = table.parent / f"{uuid.uuid4()}.arrow"
    reader = _reader()
    assert reader.stdin is not None and reader.stdout is not None
    reader.stdin.write(f"{table}\t{out}\t{wanted}\n")
    reader.stdin.flush()
    if reader.stdout.readline() != "read\n":
        _reader.cache_clear()
        raise AssertionError(f"delta-rs's reader of {table} has died: its words are above")
    with pa.ipc.open_stream(out) as stream:
        return stream.read_all()


def ids(table: Path) -> list[int]:
    return sorted(read(table)["id"].to_pylist())


def numbers(*values: int, **more: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(values, pa.int64()), **more})


def columns_of(*batches: pa.RecordBatch) -> tuple[tuple[str, str], ...]:
    names = {"int64": "bigint", "string": "string", "bool": "boolean", "date32[day]": "date"}
    return tuple((f.name, names[str(f.type)]) for f in batches[0].schema)


def new_table(path: Path, schema: pa.Schema, **more: Any) -> DeltaTable:
    return DeltaTable.create(str(path), Schema.from_arrow(schema), **more)


def commit_by_hand(table: Path, *actions: dict[str, Any]) -> None:
    """A version of the table that any writer of Delta could have made, as the protocol has it."""
    log = table / "_delta_log"
    version = len(list(log.glob("*.json")))
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(lines)


def with_features(table: Path, *features: str, readers: Sequence[str] = ()) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(readers),
        "writerFeatures": [*features],
    }
    commit_by_hand(table, {"protocol": protocol})


def with_metadata(table: Path, column: dict[str, Any] | None = None, **settings: str) -> None:
    """The same with settings, and with metadata of its first column."""
    lines = (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    first = next(json.loads(line) for line in lines if "metaData" in line)
    schema = json.loads(first["metaData"]["schemaString"])
    schema["fields"][0]["metadata"] = column or {}
    first["metaData"]["schemaString"] = json.dumps(schema)
    first["metaData"]["configuration"] = {k.replace("__", "."): v for k, v in settings.items()}
    commit_by_hand(table, first)


def refusal(kind: type[ExactumError], sink: Any, *columns: tuple[str, str]) -> str:
    """What a start of a query with these columns says."""
    with pytest.raises(kind) as refused:
        OpenedSink(sink, columns)
    return f"{refused.value}"


def at_once(*commits: Callable[[Any], object], permit: Any) -> None:
    """Each in a thread of its own, to its end."""
    with ThreadPoolExecutor(len(commits)) as pool:
        list(pool.map(lambda commit: commit(permit), commits))
