"""``exactum transactions`` on a query with several sinks: files, a target of the user's own, and a
write-ahead log. Each by itself is in ``tests/operate``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from two_phase_commit_sink import ENDING, JsonFolderSink

from exactum import FileSink, WriteAheadSink
from exactum.checkpoint.run_file import RunFile
from exactum.protocol.model import new_incarnation
from exactum.storage.folder import Folder
from tests.kit.custom.noted_target import Target
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import NO_SINKS, accept, listed, transactions
from tests.kit.verify.recorded_query import RecordedQuery, of_numbers


class Everything(JsonFolderSink):
    """It lists what is settled, too, as it may."""

    def list_transactions(self, scope: Any) -> Iterable[tuple[str, str]]:
        yield from super().list_transactions(scope)
        for path in self.folder.glob(f"*{ENDING}"):
            yield path.stem, path.stem


def test_some_of_them_and_all(tmp_path: Path) -> None:
    """What is not given cannot be finished, and that is said; beside a run that lives a log is left to
    its one sender, unless it is taken over.
    """
    send = Target(tmp_path / "sent").send
    makes = {
        "files": lambda: FileSink(tmp_path / "files", format="json", name="files"),
        "json-folder": lambda: JsonFolderSink(tmp_path / "own"),
        "ahead": lambda: WriteAheadSink(send, name="ahead", rows_per_send_max=2),
    }
    sinks = {name: (make, ID_AND_NAME, tasks_of) for name, make in makes.items()}
    query = RecordedQuery(tmp_path / "checkpoint", sinks)
    at, some = ("--checkpoint", query.folder), given(makes["files"]())

    def states(status: int) -> dict[str, str]:
        return {t["sink"]: t["state"] for t in listed(query.folder, status=status)}

    query.run([0, 1], dies_after_decision=True)
    for command, status in (("list", 1), ("finish", 2)):
        typed = transactions(command, *at, *some, status=status).output
        assert "sink 'json-folder', 'ahead' could not be looked at" in typed
    assert states(1) == {"files": "committed", "json-folder": "prepared", "ahead": "prepared"}
    alive = RunFile(Folder(query.folder), new_incarnation(), "", "")
    alive.hold()
    assert "say --take-over" in transactions("finish", *at, status=2).output
    assert states(0)["ahead"] == "prepared"
    alive.release()
    transactions("finish", *at, status=0)
    # The user's target lists it no longer, and only the target knows why: a commit of it asks.
    assert states(1) == {"files": "committed", "json-folder": "unknown", "ahead": "committed"}
    query.run([1, 2])
    assert states(0) == {}


def test_none_of_them(tmp_path: Path) -> None:
    """Nothing is settled, and nothing is called open or undecided; what to type is said. (What
    ``list`` says: ``tests/ops/test_output.py``.)
    """
    query = of_numbers(tmp_path)
    query.run([0, 1], dies_after_decision=True)
    at = ("--checkpoint", query.folder)
    for command in ("finish", "abort"):
        told = " ".join(transactions(command, *at, status=2, env=NO_SINKS).output.split())
        typed = f"transactions {command} --checkpoint {query.folder} --sinks FILE.py:NAME"
        assert typed in told and "'files'" in told and "undecided" not in told, told
    finished = transactions("finish", *at, "--json", status=2, env=NO_SINKS).json
    assert finished["batches"] == [{"batch_id": 1, "transactions": 0, "rows": 0, "left": 1}]
    assert "'files'" in accept(query.folder, 1, status=2, env=NO_SINKS)
    assert len(listed(query.folder, status=1)) == 1
    transactions("finish", *at, status=0)


def test_a_target_that_lists_what_is_settled(tmp_path: Path) -> None:
    """It had lost nothing, and ``finish`` does not say so."""
    sinks = {"json-folder": (lambda: Everything(tmp_path / "own"), ID_AND_NAME, tasks_of)}
    RecordedQuery(tmp_path / "checkpoint", sinks).run([0, 1, 2])
    at = ("--checkpoint", tmp_path / "checkpoint")
    told = transactions("finish", *at, "--json", status=0).json
    assert (told["committed_again"], told["open_undecided"], told["problems"]) == (0, 0, [])
