"""A start with another ``decision_log=``, or with one that is empty now: what the last run has
decided is on record elsewhere, or was, and is not written again.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from exactum.checkpoint.known_sinks import KnownSinks, read_known_sinks
from exactum.checkpoint.layout import DECISIONS
from exactum.errors import CheckpointRefused, Unavailable
from exactum.protocol.ends import Noted
from exactum.protocol.model import Decision, DecisionRecord
from exactum.testing import MemoryDecisionLog, MemoryStorage
from tests.kit.errors import check_query_error
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept

pytestmark = pytest.mark.spark


class DiesBehindTheDecision(MemoryDecisionLog):
    """In no folder. Its first COMMIT stands, and the run hears nothing of it."""

    has_died = False

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = super().decide(record)
        if record.decision is Decision.COMMIT and not self.has_died:
            self.has_died = True
            raise Unavailable("the driver is gone")
        return stands


def on_file(query: Any) -> KnownSinks:
    known = read_known_sinks(query.checkpoint)
    assert known is not None
    return known


def check_moved(text: str, former: Path) -> None:
    check_query_error(text, CheckpointRefused, "DECISION_LOG_MOVED", "batch 0", former)


def run(query: Any, log: Any) -> str:
    return query.run(query.exactly_once(decision_log=log)) or ""


@pytest.mark.variants(1)
@pytest.mark.parametrize("before", [None, "old"])
def test_a_decided_batch_is_not_written_again(
    query: Any, tmp_path: Path, before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused as often as it is started; with the log of before it goes on. Between two batches
    the log can be another one.
    """
    other = tmp_path / "other"
    monkeypatch.chdir(tmp_path)  # where a relative path leads from
    query.give(1, 2)
    assert run(query, before) == ""
    query.forget_last_commit()
    for _ in range(2):
        old = tmp_path / "old" if before else query.checkpoint / DECISIONS
        check_moved(run(query, other), old)
        assert query.values() == [1, 2]
    assert run(query, before) == ""
    query.give(3)
    assert run(query, other) == ""
    assert query.values() == [1, 2, 3]


def test_a_relative_path_from_another_folder_is_another_log(
    query: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts the program from somewhere else has the same text, and no records."""
    monkeypatch.chdir(tmp_path)
    query.give(1, 2)
    assert run(query, "log") == ""
    query.forget_last_commit()
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    check_moved(run(query, "log"), tmp_path / "log")
    assert query.values() == [1, 2]


@pytest.mark.deep
def test_records_that_were_moved_along_are_used(query: Any, tmp_path: Path) -> None:
    """A folder that was renamed has what it had; one that is away is not taken for empty."""
    old, new = tmp_path / "old", tmp_path / "new"
    query.give(1, 2)
    assert run(query, old) == ""
    query.forget_last_commit()
    old.rename(new)
    check_moved(run(query, tmp_path / "empty"), old)
    assert run(query, new) == ""
    assert query.values() == [1, 2]
    shutil.rmtree(new)


@pytest.mark.deep
def test_a_log_that_is_not_mounted(query: Any, tmp_path: Path) -> None:
    """The folder is made anew where it should be mounted. Refused, there or for another log, until
    it is back.
    """
    mount, away = tmp_path / "mount", tmp_path / "away"
    query.give(1, 2)
    assert run(query, mount) == ""
    query.forget_last_commit()
    (query_folder,) = mount.iterdir()
    mount.rename(away)
    mount.joinpath(query_folder.name).mkdir(parents=True)
    for log in (mount, mount, tmp_path / "other"):
        text = run(query, log)
        facts = "decision log", "checkpoint", "batch 0"
        check_query_error(text, CheckpointRefused, "ENDS_DIFFER", *facts)
        assert query.values() == [1, 2]
    shutil.rmtree(mount)
    away.rename(mount)
    query.give(3)
    assert run(query, mount) == ""
    assert query.values() == [1, 2, 3]


def test_a_log_that_is_lost_for_good(query: Any, tmp_path: Path) -> None:
    """The way out holds: who accepts it goes on with a new log."""
    query.give(1)
    assert run(query, None) == ""
    shutil.rmtree(query.checkpoint / DECISIONS)
    query.give(2)
    assert "exactum accept" in run(query, None)
    accept(query.checkpoint, 1, *given(query.sink))
    assert run(query, None) == ""
    assert query.values() == [1, 2]
    noted = on_file(query).noted
    assert (noted.first, noted.decided) == (1, 1)


def test_a_new_log_whose_first_batch_was_decided_and_not_noted(query: Any) -> None:
    """The deployment is rolled back then. The former log has an ABORT of that batch, from the move,
    which is no sign that it has what was decided since.
    """
    query.give(1)
    assert run(query, None) == ""
    new = DiesBehindTheDecision(MemoryStorage(), on_file(query).query_id)
    query.give(2)
    assert "the driver is gone" in run(query, new)
    assert on_file(query).noted == Noted(first=1)
    for _ in range(2):
        error = run(query, None)
        check_query_error(error, CheckpointRefused, "DECISION_LOG_MOVED", "batch 1")
    query.give(3)
    assert run(query, new) == ""
    assert query.values() == [1, 2, 3]
    assert on_file(query).noted == Noted(first=1, decided=1)
