"""A folder that is not the one that has the last batches, and what only looks like it. (Of every target:
tests/contract/test_put_back.py.)
"""

from __future__ import annotations

from pathlib import Path

from tests.contract.targets import Files
from tests.contract.test_put_back import refuses, shows


def test_a_folder_that_was_removed_on_purpose(tmp_path: Path) -> None:
    """It is refused, for it looks like a mount that is missing, until its mark is removed."""
    target = Files(tmp_path)
    query = target.query()
    query.run(0)
    target.reset()
    refuses(query, 1, "has no batch of it")
    (scope,) = (target.table / ".exactum").iterdir()
    (scope / "new").unlink()
    query.run(1)
    query.run(2)
    shows(target, 1, 2)


def test_old_files_that_a_script_removed(tmp_path: Path) -> None:
    """After a quiet week, all that exactum has there is old. The folders stay."""
    target = Files(tmp_path)
    query = target.query()
    query.run(0, 1)
    for file in [p for p in (target.table / ".exactum").rglob("*") if p.is_file()]:
        file.unlink()
    query.run(2)
    shows(target, 0, 1, 2)


def test_a_sink_that_was_moved_away_and_back(tmp_path: Path) -> None:
    """A new folder is taken. The old one has the marks of that time: it looks like one that was put
    back, and is refused until somebody accepts it.
    """
    first, second = Files(tmp_path / "first"), Files(tmp_path / "second")
    query = first.query()
    query.run(0)
    query.sink = second.sink
    query.run(1)
    query.run(2)
    query.sink = first.sink
    refuses(query, 3, "batch 0", "batch 2")
    shows(first, 0)
    shows(second, 1, 2)
