"""``exactum transactions`` on tables in PostgreSQL and MariaDB."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from exactum import MySQLSink, PostgresSink
from exactum.errors import CheckpointRefused
from exactum.sql.sink import SqlSink
from tests.kit.errors import raised
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, expected, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import NO_SINKS, accept, listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery
from tests.sql.conftest import database

__all__ = ["database"]
SINK = "out"
TASKS, ROWS = 3, 4


class World:
    """A query whose checkpoint has no password, and an operator who has it in his environment."""

    def __init__(
        self,
        database: SqlDatabase,
        folder: Path,
        patch: pytest.MonkeyPatch,
        staging: Path | None = None,
    ) -> None:
        self.database, self.checkpoint = database, folder / "checkpoint"
        self.is_postgres = database.dialect.name == "PostgreSQL"
        self.table = database.table()

        def sink() -> SqlSink:
            kind = PostgresSink if self.is_postgres else MySQLSink
            return kind(database.url, table=self.table)

        self.query = RecordedQuery(self.checkpoint, {SINK: (sink, ID_AND_NAME, tasks_of)}, staging)
        self.password = database.server.password
        patch.setenv("PGPASSWORD" if self.is_postgres else "MYSQL_PWD", self.password)

    def rows(self) -> list[tuple[int, str]]:
        return sorted(self.database.rows(f"SELECT id, name FROM {self.table}"))


def test_logging_in(database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a wrong password nothing can be told, and none is shown."""
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0], dies_before_decision=True)
    kind = type(world.query.sinks()[SINK])
    password = quote(world.password, safe="")
    wrong = kind(database.url.replace(f":{password}@", ":wrong-word@"), table=world.table)
    refused = transactions(
        "list", "--checkpoint", world.checkpoint, *given({SINK: wrong}), status=2
    ).output
    assert "sink 'out' could not be looked at" in refused and "wrong-word" not in refused
    assert len(listed(world.checkpoint, status=1)) == TASKS


def test_without_sinks(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is decided and for which sink is said by the log alone, and what to type; nothing is
    settled, and nothing is called open or undecided.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1], dies_after_decision=True)
    at = ("--checkpoint", world.checkpoint)
    found = listed(*at[1:], status=1, env=NO_SINKS)
    assert {(t["sink"], t["state"], t["on_record"], t["batch_id"], t["rows"]) for t in found} == {
        (SINK, "unknown", "COMMIT on record", 1, ROWS)
    }
    assert len(found) == TASKS
    for command in (("list",), ("finish",), ("abort",)):
        status = 1 if command == ("list",) else 2
        told = " ".join(transactions(*command, *at, status=status, env=NO_SINKS).output.split())
        typed = f"exactum transactions {command[0]} --checkpoint {world.checkpoint} --sinks "
        assert typed + "FILE.py:NAME" in told.replace("main ", "exactum "), told
        assert "'out'" in told and "undecided" not in told
    finished = transactions("finish", *at, "--json", status=2, env=NO_SINKS).json
    assert finished["batches"] == [{"batch_id": 1, "transactions": 0, "rows": 0, "left": TASKS}]
    assert world.rows() == expected([0]) and len(world.query.staged()) == TASKS
    assert "'out'" in accept(world.checkpoint, 1, status=2, env=NO_SINKS)
    transactions("finish", *at, status=0)
    assert world.rows() == expected([0, 1])
    assert (
        "'elsewhere'"
        in transactions(
            "list", *at, *given({"elsewhere": world.query.sinks()[SINK]}), status=2
        ).output
    )


def test_a_database_without_a_trace_of_the_query_gets_nothing(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a script takes its server from the environment, and the operator's has another one.
    The rows stay staged for the right one.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1], dies_after_decision=True)
    make_elsewhere = "CREATE SCHEMA elsewhere" if world.is_postgres else "CREATE DATABASE elsewhere"
    database.run(make_elsewhere)
    try:
        database.run(f"CREATE TABLE elsewhere.{world.table} (id bigint, name varchar(50))")
        kind = type(world.query.sinks()[SINK])
        away = kind(database.url, table=f"elsewhere.{world.table}")
        neighbour = RecordedQuery(tmp_path / "n", {SINK: (lambda: away, ID_AND_NAME, tasks_of)})
        neighbour.run([0])  # makes the ledger
        other = given({SINK: away})
        arguments = ("--checkpoint", world.checkpoint)
        told = transactions("finish", *arguments, *other, status=2).output
        assert "no trace of the query" in told
        assert database.rows(f"SELECT count(*) FROM elsewhere.{world.table}") == [(TASKS * ROWS,)]
        assert len(world.query.staged()) == TASKS
    finally:
        database.run(
            "DROP SCHEMA elsewhere CASCADE" if world.is_postgres else "DROP DATABASE elsewhere"
        )
    transactions("finish", *arguments, status=0)
    assert world.rows() == expected([0, 1])


@pytest.mark.parametrize("own", [True, False])
def test_a_checkpoint_that_was_moved(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Commands find a staging of its own by what the checkpoint has on file, and else the one in it."""
    world = World(database, tmp_path, monkeypatch, staging=tmp_path / "shared" if own else None)
    world.query.run([0, 1], dies_after_decision=True)
    world.query.folder = world.checkpoint.rename(tmp_path / "moved")
    found = listed(world.query.folder, status=1)
    where = world.query.staging or world.query.folder
    assert len(found) == TASKS and str(where) in found[0]["details"][0]
    transactions("finish", "--checkpoint", world.query.folder, status=0)
    world.query.run([1, 2])
    assert world.rows() == expected([0, 1, 2])
    assert world.query.staged() == []


def test_a_target_that_has_lost_batches_gets_no_later_one(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table and ledger are an older copy, the files of a batch that it lacks are gone, and a decided
    batch waits: were it committed, the ledger would end with it, and no start would miss those
    before.
    """
    world = World(database, tmp_path, monkeypatch)
    world.query.run([0, 1])
    world.query.remove_staged()
    world.query.run([2], dies_after_decision=True)
    database.run("DELETE FROM exactum_ledger WHERE batch_id > 0")
    database.run(f"DELETE FROM {world.table} WHERE id >= 1000")
    arguments = ("--checkpoint", world.checkpoint)
    told = transactions("finish", *arguments, status=2).output
    assert "ends with batch 0, and the decision log has batch 1 as committed there" in told
    assert world.rows() == expected([0])
    with raised(CheckpointRefused, "ENDS_DIFFER", "'out'", 0, "decision log", 1):
        world.query.run([2])
