"""``exactum transactions`` on files, and on targets of the user's own, which come by --sinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exactum.checkpoint.run_file import RunFile
from exactum.protocol.model import new_incarnation
from exactum.storage.folder import Folder
from tests.kit.query_record import note
from tests.kit.sql.sql_epochs import ID_AND_NAME, expected, tasks_of
from tests.kit.transactions import own_sinks
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

TASKS, ROWS = 3, 4
SINKS = ("--sinks", "tests.kit.transactions.own_sinks:sinks")
SOME = ("--sinks", "tests.kit.transactions.own_sinks:files")


class World:
    """A query with three sinks: files, a target of the user's class, and a write-ahead log."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        patch.setenv(own_sinks.FOLDER, str(folder))
        for name in ("open", "done"):
            (folder / name).mkdir()
        self.checkpoint = folder / "checkpoint"
        self.query = RecordedQuery(
            self.checkpoint,
            {
                name: (make, ID_AND_NAME, tasks_of)
                for name, make in (
                    ("files", own_sinks.files),
                    ("folders", own_sinks.folders),
                    ("ahead", own_sinks.write_ahead),
                )
            },
        )

    def seen(self) -> dict[str, list[str]]:
        """The names that readers of each target see."""
        files = [
            json.loads(line)["name"]
            for path in (self.folder / "files").glob("part-*")
            for line in path.read_text().splitlines()
        ]
        done = [
            line
            for path in (self.folder / "done").iterdir()
            for line in path.read_text().splitlines()
        ]
        sent = self.folder / "sent"
        lines = sent.read_text().splitlines() if sent.exists() else []
        return {
            "files": sorted(files),
            "folders": sorted(done),
            "ahead": sorted(line.partition(" ")[2] for line in lines),
        }


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def names(batches: list[int]) -> dict[str, list[str]]:
    one = sorted(name for _, name in expected(batches))
    return {"files": one, "folders": one, "ahead": one}


def test_decided_and_not_committed(world: World) -> None:
    """All three are listed and finished; those that are not given cannot be, and the command says
    so.
    """
    world.query.run([0, 1], dies_after_decision=True)
    arguments = ("--checkpoint", world.checkpoint)
    typed = transactions("list", *arguments, *SOME, status=1).output
    assert "sink 'folders', 'ahead' could not be looked at" in typed
    typed = transactions("finish", *arguments, *SOME, status=2).output
    assert "sink 'folders', 'ahead' could not be looked at" in typed
    assert world.seen() == {**names([0]), "files": names([0, 1])["files"]}
    found = listed(world.checkpoint, *SINKS, status=1)
    assert len(found) == 3 * TASKS
    assert {(t["sink"], t["state"], t["rows"]) for t in found} == {
        ("files", "committed", ROWS),
        ("folders", "prepared", ROWS),
        ("ahead", "prepared", ROWS),
    }
    assert {t["on_record"] for t in found} == {"COMMIT on record"}
    ahead = next(t["details"] for t in found if t["sink"] == "ahead")
    assert "0 chunks are acknowledged" in " ".join(ahead)

    alive = RunFile(Folder(world.checkpoint), new_incarnation(), "", "")
    alive.hold()
    typed = transactions("finish", *arguments, *SINKS, status=2).output
    assert "say --take-over" in typed
    assert world.seen() == {**names([0, 1]), "ahead": names([0])["ahead"]}
    alive.release()

    transactions("finish", *arguments, *SINKS, status=0)
    assert world.seen() == names([0, 1])
    transactions("finish", *arguments, *SINKS, status=0)
    found = listed(world.checkpoint, *SINKS, status=1)
    # Its target lists it no longer, and only the target knows why: a commit of it asks.
    assert {(t["sink"], t["state"]) for t in found} == {
        ("files", "committed"),
        ("folders", "unknown"),
        ("ahead", "committed"),
    }
    world.query.run([1, 2])
    assert world.seen() == names([0, 1, 2])
    assert listed(world.checkpoint, *SINKS, status=0) == []


def test_a_target_that_lists_what_is_settled(world: World) -> None:
    """It had lost nothing, and ``finish`` does not say so."""
    query = {"folders": (own_sinks.everything, ID_AND_NAME, tasks_of)}
    checkpoint = world.folder / "of folders alone"
    RecordedQuery(checkpoint, query).run([0, 1, 2])
    arguments = ("--checkpoint", checkpoint)
    sinks = ("--sinks", "tests.kit.transactions.own_sinks:everything")
    told = transactions("finish", *arguments, *sinks, "--json", status=0).json
    assert (told["committed_again"], told["open_undecided"], told["problems"]) == (0, 0, [])
    assert world.seen()["folders"] == names([0, 1, 2])["folders"]


def test_the_log_is_elsewhere(world: World) -> None:
    """An empty log in the checkpoint would call everything undecided: refused, not guessed."""
    world.query.run([0], dies_after_decision=True)
    note(world.checkpoint, world.query.query_id, decision_log="/elsewhere", log_id="a")
    arguments = ("--checkpoint", world.checkpoint, *SINKS)
    typed = transactions("list", *arguments, status=2).output
    assert (
        "to a command --decision-log" in typed
        and "/elsewhere" in typed
        and "nobody knows whether it is decided" in typed
    )
    for command in (("finish",), ("abort",)):
        assert "--decision-log" in transactions(*command, *arguments, status=2).output
    assert world.seen() == {"files": [], "folders": [], "ahead": []}
