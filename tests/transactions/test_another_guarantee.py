"""A batch was decided and its driver died; ``at_least_once`` goes on. It commits what was decided
before it writes, so nobody commits it behind later batches. Each target: ``tests/operate``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from exactum import FileSink, MySQLSink, PostgresSink
from exactum.errors import CheckpointRefused
from exactum.protocol.ends import Noted
from exactum.protocol.sink import Guarantee, Sink
from exactum.sql.sink import SqlSink
from tests.kit.errors import raised
from tests.kit.query_record import on_file
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.transactions.operator import accept, listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery
from tests.sql.conftest import database

__all__ = ["database"]
COLUMNS = (("id", "bigint"), ("name", "string"))
WEAK = Guarantee.AT_LEAST_ONCE


def tasks_of(batch_id: int) -> list[list[pa.RecordBatch]]:
    """One row, of the same key in each batch."""
    name = pa.array([f"of batch {batch_id}"])
    return [[pa.record_batch({"id": pa.array([1], pa.int64()), "name": name})]]


def query_of(folder: Path, sink: Callable[[], Sink]) -> RecordedQuery:
    return RecordedQuery(folder / "checkpoint", {"out": (sink, COLUMNS, tasks_of)})


def files(folder: Path) -> RecordedQuery:
    return query_of(folder, lambda: FileSink(folder / "out", format="json"))


def batches_in(folder: Path) -> list[int]:
    """Which batches are visible, each as often as it is."""
    lines = [line for f in (folder / "out").glob("part-*") for line in f.read_text().splitlines()]
    return sorted(int(line.rpartition(" ")[2].rstrip('"}')) for line in lines)


@pytest.mark.parametrize("since", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4, 5]])
def test_it_is_not_committed_behind_them(tmp_path: Path, since: Sequence[int]) -> None:
    """However many there were; and what comes later is committed as ever."""
    query = files(tmp_path)
    query.run([0, 1], dies_after_decision=True)
    query.run(since, guarantee=WEAK)
    following = since[-1] + 1
    query.run([following, following + 1], dies_after_decision=True)
    query.run([following + 1, following + 2])
    assert batches_in(tmp_path) == list(range(following + 3))


def test_newer_rows_are_not_replaced(database: SqlDatabase, tmp_path: Path) -> None:
    """Of an upsert the old rows would stand for good."""
    table = database.table("id bigint PRIMARY KEY, name varchar(80)")
    kind = PostgresSink if database.dialect.name == "PostgreSQL" else MySQLSink

    def sink() -> SqlSink:
        return kind(database.url, table=table, mode="upsert", key="id")

    query = query_of(tmp_path, sink)
    query.run([0, 1], dies_after_decision=True)
    query.run([1, 2], guarantee=WEAK)
    query._sinks["out"] = (sink, COLUMNS, lambda batch_id: [])  # type: ignore[index]
    query.run([3])
    assert database.rows(f"SELECT name FROM {table}") == [("of batch 2",)]
    assert query.staged() == []


def test_nothing_is_left_to_operators(tmp_path: Path) -> None:
    """What was decided is committed, what was not is aborted, and batch 1 has its decision."""
    query = files(tmp_path)
    query.run([0, 1], dies_after_decision=True)
    query.run([1, 2], guarantee=WEAK)
    query.run([3], dies_before_decision=True)
    query.run([3], guarantee=WEAK)
    assert listed(query.folder, status=0) == []
    assert batches_in(tmp_path) == [0, 1, 2, 3]
    assert on_file(query.folder).noted == Noted(first=3, undecided_from=3)


def test_something_that_leaves_no_record(tmp_path: Path) -> None:
    """Spark's own sink wrote batches 1 and 2, or the log has lost batch 2: nobody can tell, so the
    start is refused until somebody accepts it. What batch 1 left is dropped then, or committed
    before by 'finish'.
    """
    for way in ("finish", "accept"):
        folder = tmp_path / way
        folder.mkdir()
        query = files(folder)
        query.run([0, 1], dies_after_decision=True)
        for batch_id in (1, 2):
            (query.folder / "offsets" / str(batch_id)).write_text("v1\n{}\n-\n")
            (query.folder / "commits" / str(batch_id)).write_text("v1\n{}\n")
        for _ in range(2):
            with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 1, "checkpoint", 2):
                query.run([3])
        assert batches_in(folder) == [0]
        if way == "finish":
            transactions("finish", "--checkpoint", query.folder, status=0)
            assert batches_in(folder) == [0, 1]
            assert "dropped" not in accept(query.folder, 3)
        else:
            assert "nothing was changed" in accept(query.folder, 3, status=1, answer="n\n")
            said = accept(query.folder, 3)
            assert "1 transactions of micro-batch 1, which is decided, still wait" in said
            assert "they are dropped. 'exactum transactions finish'" in said
        query.run([3, 4])
        assert batches_in(folder) == ([0, 1, 3, 4] if way == "finish" else [0, 3, 4])
