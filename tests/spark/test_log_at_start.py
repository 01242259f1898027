"""A start whose decision log is another one than the query had, or lacks its end: refused, and taken
where a person says so.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.query_place import BorrowedLog, QueryPlace, refuse_another_log
from exactum.checkpoint.query_record import record_of
from exactum.errors import CheckpointRefused, Unavailable
from exactum.files.slot_log import LOG_ID, SlotLog
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import Noted, check_start
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.storage.folder import Folder
from exactum.testing import MemoryDecisionLog, MemoryStorage
from model.memory import MemoryParticipant, MemoryTarget
from tests.kit.errors import check_query_error, raised
from tests.kit.query_record import note, on_file
from tests.kit.spark.files import mounted
from tests.kit.spark.run_begin import run_at
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept

ID = "query"


def decide(log: DecisionLog, *batches: int) -> None:
    """As runs that each fence, and commit one batch."""
    for batch_id in batches:
        who = Incarnation(f"run{batch_id}")
        epoch = Epoch(ID, batch_id)
        attempt = len(log.read(batch_id))
        log.decide(DecisionRecord(epoch, attempt, Decision.ABORT, who))
        log.decide(DecisionRecord(epoch, attempt + 1, Decision.COMMIT, who))


class CannotTell(MemoryParticipant):
    """Of a target without a marker."""

    last_batch = property()  # type: ignore[assignment]


class Logs:
    """Two folders for one query's decisions, given in turn. Each start is a new object."""

    def __init__(self, tmp_path: Path) -> None:
        self.checkpoint = tmp_path / "check point"
        self.place = {"a": tmp_path / "a", "b": tmp_path / "b"}

    def __getitem__(self, name: str) -> SlotLog:
        return SlotLog(Folder(self.place[name] / ID), ID)

    def id_of(self, name: str) -> str:
        return (self.place[name] / ID / LOG_ID).read_text().strip()

    def start(self, name: str, begins: int) -> None:
        """As a run begins, of a query with a sink that cannot tell what it has."""
        run, log = run_at(self.checkpoint, ID, begins), self[name]
        record = run.record.content
        refuse_another_log(run, record, log, str(self.place[name]), begins)
        port = CannotTell(MemoryTarget("own"), run.identity)
        check_start(ID, begins, PermitLog(log), lambda function: [function(port)], record.noted)

    def note(self, name: str, noted: Noted) -> None:
        place, log_id = str(self.place[name]), self[name].log_id()
        note(self.checkpoint, ID, decision_log=place, log_id=log_id, noted=noted)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    found = Logs(tmp_path)
    decide(found["a"], *range(10))
    found.note("a", Noted(first=0, decided=7))
    return found


@pytest.mark.parametrize("other", ["empty", "not mounted", "of another time"])
def test_another_log(logs: Logs, other: str) -> None:
    """As often as it is given, at whatever batch, and both are named; the former goes on."""
    if other == "not mounted":
        (logs.place["b"] / ID).mkdir(parents=True)
    elif other == "of another time":
        decide(logs["b"], *range(12))
    found = logs.id_of("b") if other == "of another time" else "empty"
    for begins in (10, 10, 9, 11):
        facts = logs.id_of("a"), logs.place["a"], found, logs.place["b"], "exactum accept"
        with raised(CheckpointRefused, "DECISION_LOG_OTHER", *facts):
            logs.start("b", begins)
    logs.start("a", 10)


def test_a_log_that_lies_elsewhere_now(logs: Logs) -> None:
    """A folder that was renamed, or copied whole: it is the same log."""
    shutil.copytree(logs.place["a"], logs.place["b"])
    logs.start("b", 10)
    shutil.rmtree(logs.place["a"])
    logs.start("b", 10)
    logs.note("b", Noted(first=0, decided=10))
    with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 9, "checkpoint", 10):
        logs.start("b", 10)


def test_records_without_their_id(logs: Logs) -> None:
    """Copied by hand, one by one: nobody can tell whether these are all."""
    shutil.copytree(logs.place["a"], logs.place["b"])
    (logs.place["b"] / ID / LOG_ID).unlink()
    with raised(CheckpointRefused, "DECISION_LOG_OTHER", logs.id_of("a"), "empty"):
        logs.start("b", 10)


def test_a_log_of_the_users_own_without_an_id(logs: Logs) -> None:
    """It is known by its class: a folder is none."""

    class Own:
        def __init__(self, log: MemoryDecisionLog) -> None:
            self.read, self.decide, self.prune, self.close = (
                log.read,
                log.decide,
                log.prune,
                log.close,
            )

    own = BorrowedLog(Own(MemoryDecisionLog(MemoryStorage(), ID)), ID)
    query = run_at(logs.checkpoint, ID, 10)
    note(logs.checkpoint, ID, log_id=own.log_id())
    record = record_of(Folder(logs.checkpoint), ID).content
    refuse_another_log(query, record, own, "", 10)
    with raised(CheckpointRefused, "DECISION_LOG_OTHER", "Own", logs.id_of("a")):
        logs.start("a", 10)


def test_commands_do_not_take_another_one(logs: Logs) -> None:
    """Nothing is called undecided, or aborted, by a log that is not the query's own."""
    (logs.checkpoint / "metadata").write_text(f'{{"id": "{ID}"}}')
    QueryPlace.of(logs.checkpoint, str(logs.place["a"])).open_log().close()
    with raised(CheckpointRefused, "DECISION_LOG_OTHER", logs.id_of("a")):
        QueryPlace.of(logs.checkpoint, str(logs.place["b"])).open_log()


# ---- with Spark ----------------------------------------------------------------------------------


class DiesBehindTheDecision(MemoryDecisionLog):
    """In no folder. Its first COMMIT stands, and the run hears nothing of it."""

    has_died = False

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = super().decide(record)
        if record.decision is Decision.COMMIT and not self.has_died:
            self.has_died = True
            raise Unavailable("the driver is gone")
        return stands


def run(query: Any, log: Any) -> str:
    return query.run(query.exactly_once(decision_log=log)) or ""


def check_other(text: str, *facts: object) -> None:
    check_query_error(text, CheckpointRefused, "DECISION_LOG_OTHER", *facts)


@pytest.mark.spark
def test_a_decided_batch_is_not_written_again(
    query: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused as often as it is started, also from another folder, and between two batches; with
    the log of before it goes on, and with another one where that is accepted.
    """
    other = tmp_path / "other"
    monkeypatch.chdir(tmp_path)  # where a relative path leads from
    query.give(1, 2)
    assert run(query, "old") == ""
    query.forget_last_commit()
    for _ in range(2):
        check_other(run(query, other), tmp_path / "old", other)
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    check_other(run(query, "old"), tmp_path / "old", tmp_path / "home" / "old")
    monkeypatch.chdir(tmp_path)
    assert query.values() == [1, 2]
    assert run(query, "old") == ""
    query.give(3)
    check_other(run(query, other), "--batch 1")
    said = accept(query.checkpoint, 1, "--decision-log", other, *given(query.sink))
    assert "What was decided there is written again" in said
    assert run(query, other) == ""
    check_other(run(query, "old"), other)
    assert query.values() == [1, 2, 3]


@pytest.mark.spark
def test_a_log_that_is_lost_for_good(query: Any, tmp_path: Path) -> None:
    """Another one is refused, be it that in the checkpoint which is lost. The way out holds: who
    accepts it goes on with a new log.
    """
    query.give(1)
    assert run(query, None) == ""
    query.forget_last_commit()
    check_other(run(query, tmp_path / "other"), "in the checkpoint", tmp_path / "other")
    assert run(query, None) == ""
    assert query.values() == [1]
    shutil.rmtree(query.checkpoint / DECISIONS)
    query.give(2)
    assert "exactum accept" in run(query, None)
    accept(query.checkpoint, 1, *given(query.sink))
    assert run(query, None) == ""
    assert query.values() == [1, 2]
    assert on_file(query.checkpoint).noted == Noted(first=1, accepted=0, decided=1)


@pytest.mark.spark
@pytest.mark.deep
def test_a_log_whose_first_batch_was_decided_and_not_noted(query: Any) -> None:
    """Its driver died right behind the decision, and the deployment is rolled back to a log that
    knows nothing of it.
    """
    query.give(1)
    assert run(query, None) == ""
    new = DiesBehindTheDecision(MemoryStorage(), on_file(query.checkpoint).query_id)
    query.give(2)
    accepted = {"log_id": None, "noted": Noted(first=1)}
    note(query.checkpoint, on_file(query.checkpoint).query_id, **accepted)
    assert "the driver is gone" in run(query, new)
    for _ in range(2):
        check_other(run(query, None), new.log_id(), "--batch 1")
    query.give(3)
    assert run(query, new) == ""
    assert query.values() == [1, 2, 3]


@pytest.mark.spark
def test_a_checkpoint_that_lies_in_no_folder(query: Any, tmp_path: Path) -> None:
    """It says which log the query has, and how far that goes, as one in a folder does."""
    query.checkpoint = f"{mounted(query.spark, tmp_path)}/checkpoint"
    query.give(1, batches=2)
    assert run(query, tmp_path / "a") == ""
    query.give(2)
    for _ in range(2):
        check_other(run(query, tmp_path / "b"), tmp_path / "a", tmp_path / "b")
    assert run(query, tmp_path / "a") == ""
    assert query.values() == [1, 1, 2]
    record = on_file(tmp_path / "checkpoint")
    assert record.noted == Noted(first=0, decided=2)
    (log,) = (tmp_path / "a").iterdir()
    for name in log.glob(f"{2:020d}-*"):
        name.unlink()
    query.give(3)
    facts = "decision log", "batch 1", "checkpoint", "batch 2"
    check_query_error(run(query, tmp_path / "a"), CheckpointRefused, "ENDS_DIFFER", *facts)


@pytest.mark.spark
def test_from_which_batch_on_is_noted(query: Any) -> None:
    query.give(1, batches=3)
    assert query.run(query.exactly_once()) is None
    assert on_file(query.checkpoint).noted == Noted(first=0, decided=0)
    query.give(1)
    assert query.run(exactum.at_least_once(query.sink)) is None
    assert on_file(query.checkpoint).noted == Noted(first=0, decided=0, undecided_from=3)
    query.give(1, batches=2)
    assert query.run(query.exactly_once()) is None
    assert on_file(query.checkpoint).noted == Noted(first=4, decided=4)


@pytest.mark.spark
def test_a_function_that_passes_over_batches(query: Any) -> None:
    """Those between two calls are nobody's loss that can be told; the last ones of a run are
    refused once.
    """
    write = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def some(frame: Any, batch_id: int) -> None:
        if batch_id % 3 == 0:
            write(frame, batch_id)

    for value in (1, 2, 3):
        query.give(value)
    assert query.run(some) is None
    query.give(4)
    facts = "decision log", "batch 0", "checkpoint", "batch 2"
    check_query_error(query.run(some), CheckpointRefused, "ENDS_DIFFER", *facts)
    said = query.accept(3)
    assert "'folder' cannot be looked into" in said
    assert "micro-batches 1 to 2 have no decision" in said
    assert query.run(some) is None
    assert query.values() == [1, 4]
