"""A folder that is not the one that has the last batches, and what only looks like it. (Of every target:
tests/contract/test_put_back.py.)
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from exactum import FileSink
from exactum.errors import CheckpointRefused
from tests.kit.sql.sql_epochs import Query, expected


def query_at(folder: Path) -> Query:
    return Query(lambda: FileSink(str(folder)), participant="files")


def rows_below(folder: Path) -> list[tuple[int, str]]:
    files = folder.glob("part-*")
    return sorted((r["id"], r["name"]) for f in files for r in pq.read_table(f).to_pylist())


def scope_of(folder: Path) -> Path:
    (found,) = (folder / ".exactum").iterdir()
    return found


def test_a_folder_that_was_removed_on_purpose(tmp_path: Path) -> None:
    """It is refused, for it looks like a mount that is missing, until its mark is removed."""
    folder = tmp_path / "orders"
    query = query_at(folder)
    query.run(0)
    shutil.rmtree(folder)
    with pytest.raises(CheckpointRefused, match="has no batch of it"):
        query.run(1)
    (scope_of(folder) / "new").unlink()
    query.run(1)
    query.run(2)
    assert rows_below(folder) == expected([1, 2])


def test_old_files_that_a_script_removed(tmp_path: Path) -> None:
    """After a quiet week, all that exactum has there is old. The folders stay."""
    query = query_at(tmp_path / "orders")
    query.run(0, 1)
    for file in [p for p in (tmp_path / "orders" / ".exactum").rglob("*") if p.is_file()]:
        file.unlink()
    query.run(2)
    assert rows_below(tmp_path / "orders") == expected([0, 1, 2])


def test_a_sink_that_was_moved_away_and_back(tmp_path: Path) -> None:
    """A new folder is taken. The old one has the marks of that time: it looks like one that was put
    back, and is refused until somebody accepts it.
    """
    query = query_at(tmp_path / "first")
    query.run(0)
    query.sink = lambda: FileSink(str(tmp_path / "second"))
    query.run(1)
    query.run(2)
    query.sink = lambda: FileSink(str(tmp_path / "first"))
    with pytest.raises(CheckpointRefused, match="ends with batch 0.*batch 2 as committed"):
        query.run(3)
    assert rows_below(tmp_path / "first") == expected([0])
    assert rows_below(tmp_path / "second") == expected([1, 2])
