"""``exactum transactions`` on a query with several sinks, which come by --sinks: files, a target of the
user's own, and a write-ahead log. Each by itself is in ``tests/operate``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exactum.checkpoint.run_file import RunFile
from exactum.protocol.model import new_incarnation
from exactum.storage.folder import Folder
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions import own_sinks
from tests.kit.transactions.operator import listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery

ALL = ("--sinks", "tests.kit.transactions.own_sinks:sinks")
SOME = ("--sinks", "tests.kit.transactions.own_sinks:files")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(own_sinks.FOLDER, str(tmp_path))
    for name in ("open", "done"):
        (tmp_path / name).mkdir()


def test_some_of_them_and_all(tmp_path: Path) -> None:
    """What is not given cannot be finished, and that is said; beside a run that lives a log is left to
    its one sender, unless it is taken over.
    """
    makes = {
        "files": own_sinks.files,
        "folders": own_sinks.folders,
        "ahead": own_sinks.write_ahead,
    }
    sinks = {name: (make, ID_AND_NAME, tasks_of) for name, make in makes.items()}
    query = RecordedQuery(tmp_path / "checkpoint", sinks)
    at = ("--checkpoint", query.folder)

    def states(status: int) -> dict[str, str]:
        return {t["sink"]: t["state"] for t in listed(query.folder, *ALL, status=status)}

    query.run([0, 1], dies_after_decision=True)
    for command, status in (("list", 1), ("finish", 2)):
        typed = transactions(command, *at, *SOME, status=status).output
        assert "sink 'folders', 'ahead' could not be looked at" in typed
    assert states(1) == {"files": "committed", "folders": "prepared", "ahead": "prepared"}
    alive = RunFile(Folder(query.folder), new_incarnation(), "", "")
    alive.hold()
    assert "say --take-over" in transactions("finish", *at, *ALL, status=2).output
    assert states(0)["ahead"] == "prepared"
    alive.release()
    transactions("finish", *at, *ALL, status=0)
    # The user's target lists it no longer, and only the target knows why: a commit of it asks.
    assert states(1) == {"files": "committed", "folders": "unknown", "ahead": "committed"}
    query.run([1, 2])
    assert states(0) == {}


def test_a_target_that_lists_what_is_settled(tmp_path: Path) -> None:
    """It had lost nothing, and ``finish`` does not say so."""
    query = {"folders": (own_sinks.everything, ID_AND_NAME, tasks_of)}
    RecordedQuery(tmp_path / "checkpoint", query).run([0, 1, 2])
    sinks = ("--sinks", "tests.kit.transactions.own_sinks:everything")
    at = ("--checkpoint", tmp_path / "checkpoint")
    told = transactions("finish", *at, *sinks, "--json", status=0).json
    assert (told["committed_again"], told["open_undecided"], told["problems"]) == (0, 0, [])
