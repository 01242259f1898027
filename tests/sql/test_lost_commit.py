"""A commit that failed, or that a server has lost, as in a failover to an asynchronous standby: its
rows are staged still, or it is refused with both numbers.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from exactum import PostgresSink
from exactum.errors import CheckpointRefused, HeuristicOutcome
from exactum.ops import accept as accept_command
from exactum.protocol.sink import Scope
from exactum.sinks.staged import Published
from exactum.sql.writer import scope_text
from tests.kit.errors import raised
from tests.kit.sql.replicated import pair
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, Query, expected, tasks_of
from tests.kit.transactions.operator import NO_SINKS, accept, transactions
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import await_true
from tests.sql.test_epochs import decided, restored, rows_in


def children(batch_id: int) -> list[list[pa.RecordBatch]]:
    """A row that names the one of the batch before."""
    row = {"id": batch_id, "name": "a row", "parent": batch_id - 1 if batch_id else None}
    fields = [("id", pa.int64()), ("name", pa.string()), ("parent", pa.int64())]
    return [[pa.RecordBatch.from_pylist([row], schema=pa.schema(fields))]]


def test_rows_that_refer_to_a_lost_commit(database: SqlDatabase) -> None:
    """The target refuses them as long as it lacks what they refer to. The rows are correct, and
    nobody is told to correct them.
    """
    table = database.table("id bigint PRIMARY KEY, name varchar(50), parent bigint")
    database.run(f"ALTER TABLE {table} ADD FOREIGN KEY (parent) REFERENCES {table} (id)")
    query = database.query(table, (*ID_AND_NAME, ("parent", "bigint")))
    query.tasks = children
    driver = query.start()
    driver.run(0)
    driver.run(1)
    restored(database, table, 0)
    database.run(f"DELETE FROM {table} WHERE id = 1")
    with raised(CheckpointRefused, "ENDS_DIFFER", "batch 0", "batch 1"):
        driver.run(2)
    driver.close()
    assert database.value(f"SELECT count(*) FROM {table}") == 1


def test_what_is_gone_in_part_is_kept_as_decided(database: SqlDatabase, tmp_path: Path) -> None:
    """The way that the error names, though Spark has finished the batch and never repeats it. What is
    left of it is not written and not undone by the start: the operator loads what is missing.
    """
    table = database.table()
    sink = lambda: database.sink(table)  # noqa: E731
    query = RecordedQuery(tmp_path, {"out": (sink, ID_AND_NAME, tasks_of)})
    query.run([0], dies_after_decision=True)
    (query.folder / "commits" / "0").write_text("v1\n{}\n")
    query.staged()[0].unlink()
    for _ in range(2):
        with raised(HeuristicOutcome, "COMMIT_UNDONE_LATE", "'exactum accept --without'"):
            query.run([1])
    assert "nothing to accept" in accept(query.folder, 1)
    unseen = accept(query.folder, 0, "--without", "out", status=2, env=NO_SINKS)
    assert "[SINKS_NOT_GIVEN]" in unseen
    assert "accepted: micro-batch 0 is decided without sink" in accept(
        query.folder, 0, "--without", "out"
    )
    query.run([1, 2])
    assert rows_in(database, table) == expected([1, 2])
    assert "micro-batch 1 is complete" in accept(query.folder, 1, "--without", "out")


def test_finish_brings_in_all_that_a_target_lost_or_nothing(
    database: SqlDatabase, tmp_path: Path
) -> None:
    """The staging keeps the last batches alone. Behind these a start would not see the others, and
    what a person has accepted as lost is not brought in later.
    """
    table = database.table()
    sink = lambda: database.sink(table)  # noqa: E731
    query = RecordedQuery(tmp_path, {"out": (sink, ID_AND_NAME, tasks_of)})
    query.run(range(10))
    restored(database, table, 3)
    for _ in range(2):
        with raised(CheckpointRefused, "ENDS_DIFFER", "batch 3", "batch 9"):
            query.run([10])
        told = transactions("finish", "--checkpoint", query.folder, status=2)
        assert "ENDS_DIFFER" in told.output
        assert rows_in(database, table) == expected(range(4))
        assert "finish" not in told.output, "it would send who asked in a circle"
    said = accept(query.folder, 10)
    assert "rows of micro-batches 4 to 9 are missing" in said and "accepted" in said
    assert "are dropped" in said and "finish" not in said
    for command in ("list", "finish"):
        transactions(command, "--checkpoint", query.folder, status=1)
    assert rows_in(database, table) == expected(range(4))
    query.run([10])
    assert rows_in(database, table) == expected([*range(4), 10])


@pytest.mark.parametrize("begins", [2, 3])
def test_two_people_accept_what_a_log_has_lost(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begins: int
) -> None:
    """The first one starts the query before the other has answered. What it has written since is not
    loaded again. Spark has logged batch 2 or not, which is decided.
    """
    table = database.table()
    sink = lambda: database.sink(table)  # noqa: E731
    query = RecordedQuery(tmp_path, {"out": (sink, ID_AND_NAME, tasks_of)})
    query.run(range(4))
    query.lose_decision(3)
    if begins == 2:
        (query.folder / "commits" / "2").unlink()

    def goes_on(question: str) -> bool:
        accept(query.folder, begins, "--yes", answer="")
        query.run(range(begins, 5))
        return True

    with monkeypatch.context() as asked:
        asked.setattr(accept_command.click, "confirm", goes_on)
        told = accept(query.folder, begins, status=2)
    assert "was started or accepted since it was compared" in told
    query.run([5])
    assert rows_in(database, table) == expected([*range(6), *range(begins, 4)])


def test_a_later_batch_is_there_already(database: SqlDatabase) -> None:
    """A ledger row of a later batch speaks for those before it, but not for rows that are still
    staged.
    """
    table = database.table()
    query, driver, allowed = decided(database, table)
    driver.close()
    scope = scope_text(Scope(query.query_id, driver.participant.name))
    database.run(
        "INSERT INTO exactum_ledger (scope, batch_id, digest, attempt, row_count) "
        "VALUES (%s, 7, 'x', 0, 12)",
        [scope],
    )
    before = query.staged()
    following = query.start()
    with raised(HeuristicOutcome, "TARGET_DIFFERS", Published.OVERTAKEN.value, " 12 rows"):
        following.participant.commit(allowed, allowed.record.prepared)
    following.close()
    assert rows_in(database, table) == []
    assert query.staged() == before


@pytest.mark.postgres
@pytest.mark.deep
def test_a_failover_between_prepare_and_commit() -> None:
    """Of a real pair: the standby has what was before and not the COMMIT, and the driver
    lives on: it writes nothing past the gap.
    """
    with pair() as servers:
        servers.run("CREATE TABLE t (id bigint, name text)")
        query = Query(lambda: PostgresSink(servers.url, table="t"))
        driver = query.start()
        driver.run(0)
        commit = driver.participant.commit

        def late(permit, prepared):  # type: ignore[no-untyped-def]
            await_true(servers.caught_up, "the standby has batch 0")
            servers.standby.kill()
            driver.participant.commit = commit  # type: ignore[method-assign]
            return commit(permit, prepared)

        driver.participant.commit = late  # type: ignore[method-assign]
        driver.run(1)
        servers.primary.kill()
        servers.standby.start()
        servers.promote()
        with raised(CheckpointRefused, "ENDS_DIFFER", "batch 0", "batch 1"):
            driver.run(2)
        driver.close()
        rows = servers.run("SELECT id, name FROM t ORDER BY 1", servers.standby)
        assert rows == expected([0])
