"""What a database says of a range of epochs: its ledger, and in PostgreSQL the rows' own
transactions.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree, rmtree
from types import SimpleNamespace

import pytest

from exactum.files import slot_log
from exactum.ops import verify
from exactum.protocol.inspection import Evidence
from exactum.spark.query import RETAINED_DEFAULT
from exactum.spark.run.housekeeping import PRUNED_WITHIN
from exactum.sql.target import BATCHES_KEPT
from tests.kit.docs.code import fences
from tests.kit.docs.program import replaced
from tests.kit.environment import ROOT
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.operator import accept, invoke
from tests.kit.verify.recorded_query import RecordedQuery
from tests.sql.conftest import database

__all__ = ["database"]
OPERATIONS = ROOT / "docs" / "operations.md"
ROWS = 12
"""Of one batch of ``tasks_of``."""


class World:
    def __init__(self, database: SqlDatabase, folder: Path, **settings: object) -> None:
        database.run("CREATE TABLE out_rows (id bigint PRIMARY KEY, name varchar(50))")
        self.tells = database.dialect.name == "PostgreSQL"

        sink = lambda: database.sink("out_rows", **settings)  # noqa: E731
        self.query = RecordedQuery(folder, {"out": (sink, ID_AND_NAME, tasks_of)})

    def look(self, first: int | None = None) -> list[Evidence]:
        return self.query.evidence("out", first)


def test_a_row_that_is_gone_from_within_the_ledger(database: SqlDatabase, tmp_path: Path) -> None:
    """Rows are pruned from the lowest batch on: where an earlier one is left, it was not pruned,
    be it in the range or before it.
    """
    world = World(database, tmp_path)
    world.query.run([0, 1, 2])
    world.query.remove_staged()
    database.run("DELETE FROM out_rows WHERE id BETWEEN 1000 AND 1999")
    database.run("DELETE FROM exactum_ledger WHERE batch_id = 1")
    assert [e.text for e in world.look()] == ["exact", f"missing {ROWS}", "exact"]
    assert [e.text for e in world.look(first=1)] == [f"missing {ROWS}", "exact"]
    database.run("DELETE FROM exactum_ledger WHERE batch_id = 0")
    assert [e.text for e in world.look(first=1)] == ["unknowable", "exact"]


def test_rows_and_ledger(database: SqlDatabase, tmp_path: Path) -> None:
    """Exact as long as all is there; a deleted row is missing where rows tell who wrote them, and of
    all batches together, in one line, where they do not; what is decided and waits is in doubt; a
    batch from files that no record names is extra.
    """
    world = World(database, tmp_path)
    world.query.run([0, 1, 2], dies_after_decision=True)
    assert [e.text for e in world.look()] == ["exact", "exact", "in doubt"]
    waits = world.query.staged()[0]
    waits.rename(waits.with_suffix(".away"))
    assert [e.text for e in world.look()] == ["exact", "exact", f"missing {ROWS}"]
    waits.with_suffix(".away").rename(waits)
    world.query.run([2, 3])
    evidence = world.look()
    assert [e.text for e in evidence] == ["exact"] * 4
    assert [e.found for e in evidence] == [ROWS] * 4
    assert {e.by for e in evidence} == {"rows" if world.tells else "ledger"}
    database.run("DELETE FROM out_rows WHERE id = 1000")
    second = world.look()[1]
    if world.tells:
        assert second.text == "missing 1" and "deleted since" in second.why
    else:
        short = {(each.text, each.found, each.why) for each in world.look()}
        ((text, count, why),) = short
        assert (text, count) == ("missing", None)
        assert f"wrote {4 * ROWS} rows" in why
        assert f"has {4 * ROWS - 1} in all" in why
        told = invoke("verify", "--checkpoint", world.query.folder).stdout
        lines = [line.split()[1:] for line in told.splitlines() if line.startswith("out\t")]
        assert lines == [["0", "to", "3", f"{4 * ROWS}", "-", "missing", "ledger"]]
    database.run("UPDATE exactum_ledger SET digest = 'another' WHERE batch_id = 3")
    assert world.look()[-1].text.startswith("extra")
    database.run("DELETE FROM exactum_ledger WHERE batch_id >= 2")
    assert [e.text for e in world.look()][2:] == ["in doubt"] * 2
    world.query.remove_staged()
    assert [e.text for e in world.look()][2:] == [f"missing {ROWS}"] * 2


def test_a_batch_that_becomes_visible_while_it_is_looked_at(
    database: SqlDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver was just committing it: the next look finds all exact."""
    world = World(database, tmp_path)
    world.query.run([0, 1], dies_after_decision=True)
    commits = SimpleNamespace(sleep=lambda pause_s: world.query.run([1]))
    monkeypatch.setattr(verify, "time", commits)
    told = invoke("verify", "--checkpoint", world.query.folder, "--json")
    assert [each["finding"] for each in json.loads(told.stdout)["epochs"]] == ["exact"] * 2
    assert told.exit_code == 0


@pytest.mark.parametrize("settings", [{}, {"mode": "upsert", "key": "id"}])
def test_a_table_that_is_gone_or_another_one(
    database: SqlDatabase, tmp_path: Path, settings: dict[str, str]
) -> None:
    """The ledger stands beside it and knows nothing of that. An empty table of its name is told
    from it where rows are not replaced by later ones.
    """
    world = World(database, tmp_path, **settings)
    world.query.run([0, 1])
    database.run("ALTER TABLE out_rows RENAME TO renamed_rows")
    evidence = world.look()
    assert [(e.text, e.found) for e in evidence] == [(f"missing {ROWS}", 0)] * 2
    assert {"is no more" in e.why for e in evidence} == {True}
    database.run("CREATE TABLE out_rows (id bigint PRIMARY KEY, name varchar(50))")
    if not settings and not world.tells:
        assert [(e.text, e.found) for e in world.look()] == [(f"missing {ROWS}", 0)] * 2
    database.run("DROP TABLE renamed_rows")


def test_an_older_checkpoint_that_is_accepted(database: SqlDatabase, tmp_path: Path) -> None:
    """What stands of the batches before it is known as ever, at once and behind the next start, though
    their files still lie in the staging. Where a ledger is lost that knew of them, nobody knows.
    """
    world = World(database, tmp_path / "checkpoint")
    world.query.run([0, 1])
    copytree(world.query.folder, tmp_path / "old")
    world.query.run([2, 3])
    rmtree(world.query.folder)
    (tmp_path / "old").rename(world.query.folder)
    if world.tells:
        of_ours = {"orders": "out_rows", "<query id>": world.query.query_id, ">= 9": ">= 2"}
        removal = next(sql for kind, sql in fences(OPERATIONS) if kind == "sql")
        database.run(replaced(removal, of_ours))
    else:
        database.run("DELETE FROM out_rows WHERE id >= 2000")
    accept(world.query.folder, 2)
    assert [e.text for e in world.look()] == ["exact"] * 2
    world.query.run([2, 3])
    assert [e.text for e in world.look()] == ["exact"] * 4
    assert database.value("SELECT count(*) FROM out_rows") == 4 * ROWS
    database.run("DELETE FROM exactum_ledger WHERE batch_id < 2")
    found = world.look()
    assert [e.text for e in found] == ["unknowable"] * 2 + ["exact"] * 2
    assert "begins with a later batch" in found[0].why


def test_an_upsert_is_known_by_the_ledger(database: SqlDatabase, tmp_path: Path) -> None:
    """Its rows are replaced by later ones, so nobody counts them."""
    world = World(database, tmp_path, mode="upsert", key="id")
    world.query.run([0, 1])
    database.run("DELETE FROM out_rows")
    evidence = world.look()
    assert [(e.text, e.by) for e in evidence] == [("exact", "ledger")] * 2
    world.query.remove_staged()
    database.run("DELETE FROM exactum_ledger WHERE batch_id = 0")
    assert [e.text for e in world.look()] == ["unknowable", "exact"]


def test_a_ledger_keeps_what_the_log_has() -> None:
    """So a query that is whole is exact, with status 0: a log is pruned late, and in steps."""
    on_record = int(RETAINED_DEFAULT) + 1 + PRUNED_WITHIN + slot_log.PRUNE_EVERY
    assert on_record < BATCHES_KEPT
