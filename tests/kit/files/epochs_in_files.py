"""What the tests of the file sink share: rows as Arrow, tasks without Spark, the real
coordinator, plain readers.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pytest

from exactum.files.sink import FileSink
from exactum.files.slot_log import SlotLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets
from exactum.storage.folder import Folder
from exactum.testing import TaskJob
from tests.kit.nth_call import at_call
from tests.kit.opened_sink import QUERY, OpenedSink

ROWS = 6
"""Rows of one task."""


def ids_of(batch_id: int, task: int) -> list[int]:
    return [batch_id * 1_000 + task * 100 + i for i in range(ROWS)]


def expected(batches: Iterable[int], tasks: int = 1) -> list[int]:
    return sorted(i for b in batches for t in range(tasks) for i in ids_of(b, t))


def rows(batch_id: int, task: int) -> pa.RecordBatch:
    """The same rows whoever runs the task, over two days."""
    ids = ids_of(batch_id, task)
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "text": [f"row {i}" for i in ids],
            "day": [f"2026-01-0{1 + i % 2}" for i in ids],
        }
    )


def write_run(writer: Any) -> None:
    """Its task writes what it has gathered."""
    writer._rows.write_run(writer._files)


# ---- plain readers -------------------------------------------------------------------------------

_DUCK = {
    "parquet": "read_parquet('{}/**/*.parquet', hive_partitioning=true)",
    "json": "read_json('{}/**/*.json*', hive_partitioning=true, union_by_name=true)",
    "csv": "read_csv('{}/**/*.csv*', hive_partitioning=true)",
}


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """To connect takes ten times as long as a question. It remembers nothing of a file: tests write
    others under the same names.
    """
    atexit.register(_duckdb.cache_clear)  # DuckDB counts what is left of it at the end
    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def duck(
    folder: Path | str, select: str = "*", format_: str = "parquet", order: str = "id"
) -> list[tuple[Any, ...]]:
    """What DuckDB reads by its pattern, which does look into hidden folders."""
    place = str(folder).replace("'", "''")
    with _duckdb().cursor() as cursor:
        return cursor.execute(
            f"select {select} from {_DUCK[format_].format(place)} order by {order}"
        ).fetchall()


def ids_in(folder: Path | str) -> list[int]:
    """Every id that stands, by two independent readers that must agree. Empty where there is no
    file.
    """
    if not visible(folder):
        return []
    by_duck = [row[0] for row in duck(folder, "id")]
    by_arrow = pyarrow.dataset.dataset(str(folder), format="parquet", partitioning="hive").to_table(
        columns=["id"]
    )
    assert sorted(by_arrow["id"].to_pylist()) == by_duck
    return by_duck


def visible(folder: Path | str) -> list[str]:
    """Every file outside of .exactum, relative."""
    return sorted(
        os.path.relpath(os.path.join(top, f), folder)
        for top, _, files in os.walk(folder)
        for f in files
        if ".exactum" not in top
    )


def hidden(folder: Path | str, what: str = ".staged") -> list[str]:
    """Every file in .exactum/<scope> with this in its name; default: all that is staged, and what
    is half written of it.
    """
    top = os.path.join(folder, ".exactum")
    return sorted(os.path.join(t, f) for t, _, files in os.walk(top) for f in files if what in f)


# ---- processes that die --------------------------------------------------------------------------

_CALLS = ("open", "rename", "unlink", "rmdir", "mkdir", "fsync")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def drive(
    folder: str, batches: Sequence[int], kill_at: int | None, partition_by: Sequence[str]
) -> None:
    """One incarnation over a folder, with its decision log beside it. With ``kill_at`` it dies before
    its call of this number that changes the file system.
    """
    opened = OpenedSink(FileSink(f"{folder}/table", partition_by=partition_by))
    log = SlotLog(Folder(Path(folder) / "log"), QUERY)
    coordinator = Coordinator(opened.run, [opened.participant], log)
    if kill_at is not None:
        at_call(pytest.MonkeyPatch(), os, _CALLS, kill_at, die)
    for batch_id in batches:
        # One try is prepared and not told of, one dies with its files on the disk.
        job = TaskJob(opened.opened.writers, [[rows(batch_id, 0)]], losers=True, kill=write_run)
        coordinator.run(batch_id, SourceOffsets(), job)
