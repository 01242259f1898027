"""A start whose decision log has lost its newest records, or is another one that the query had:
folders, and what is on file of it.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

import exactum
from exactum.checkpoint.known_sinks import read_known_sinks
from exactum.checkpoint.layout import SINKS
from exactum.errors import CheckpointRefused, InvariantBroken, Unavailable
from exactum.files.slot_log import SlotLog, slot_name
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.ends import Noted, check_start
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.spark.run.moved_log import noted_of
from exactum.storage.folder import Folder
from exactum.testing import MemoryDecisionLog, MemoryParticipant, MemoryStorage, MemoryTarget
from tests.kit.errors import check_query_error, raised
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.run_begin import note, run_at
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept

QUERY = "query"


def decide(log: DecisionLog, *batches: int) -> None:
    """As runs that each fence, and commit one batch."""
    for batch_id in batches:
        who = Incarnation(f"run{batch_id}")
        epoch = Epoch(QUERY, batch_id)
        attempt = len(log.read(batch_id))
        log.decide(DecisionRecord(epoch, attempt, Decision.ABORT, who))
        log.decide(DecisionRecord(epoch, attempt + 1, Decision.COMMIT, who))


class CannotTell(MemoryParticipant):
    """Of a target without a marker."""

    last_batch = property()  # type: ignore[assignment]


def start(checkpoint: Path, log: DecisionLog, place: str, begins: int) -> None:
    """As a run begins, of a query with a sink that cannot tell what it has."""
    context = run_at(checkpoint, QUERY, begins)
    noted = noted_of(context, log, place)
    port = CannotTell(MemoryTarget("own"), context.run)
    check_start(QUERY, begins, PermitLog(log), lambda function: [function(port)], noted)


class Logs:
    """Two folders for one query's decisions, given in turn. Each start is a new object."""

    def __init__(self, tmp_path: Path) -> None:
        self.checkpoint = tmp_path / "check point"
        self.place = {"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}

    def __getitem__(self, name: str) -> SlotLog:
        return SlotLog(Folder(Path(self.place[name]) / QUERY), QUERY)

    def start(self, name: str, begins: int) -> None:
        start(self.checkpoint, self[name], self.place[name], begins)

    def note(self, name: str, noted: Noted) -> None:
        note(self.checkpoint, QUERY, self.place[name], noted)

    def lose(self, name: str, *batches: int) -> None:
        for batch_id in batches:
            for attempt in (0, 1):
                (Path(self.place[name]) / QUERY / slot_name(batch_id, attempt)).unlink()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    found = Logs(tmp_path)
    decide(found["a"], *range(10))
    found.note("a", Noted(first=0, decided=7))
    return found


def test_back_to_the_log_of_before_after_one_batch(logs: Logs) -> None:
    """A deployment gives another log and is rolled back. The former one has an ABORT of the batch
    from the move itself, and the COMMIT of the batch before: the batch is decided elsewhere.
    """
    logs.start("b", 10)
    decide(logs["b"], 10)
    logs.note("b", Noted(first=10, decided=10))
    for _ in range(2):
        with raised(CheckpointRefused, "DECISION_LOG_MOVED", "batch 10", logs.place["b"]):
            logs.start("a", 10)
    logs.start("b", 10)
    logs.start("b", 11)
    logs.start("a", 11)  # between two batches


DATABASES = ("postgresql://one/decisions", "postgresql://two/decisions")


@pytest.mark.parametrize("copied", [False, True])
def test_back_to_the_log_of_before_within_the_first_batch(logs: Logs, copied: bool) -> None:
    """The new log cannot be looked at from here, and the driver died between the decision and the
    note of it: also where the former records were copied to it before. Until a batch is written
    there, the former log goes on.
    """
    former, new = (MemoryDecisionLog(MemoryStorage(), QUERY) for _ in DATABASES)
    decide(former, *range(10))
    note(logs.checkpoint, QUERY, DATABASES[0], Noted(first=0, decided=9))
    if copied:
        decide(new, *range(10))
        start(logs.checkpoint, new, DATABASES[1], 10)
    note(logs.checkpoint, QUERY, DATABASES[1], Noted())
    start(logs.checkpoint, former, DATABASES[0], 10)
    note(logs.checkpoint, QUERY, DATABASES[1], Noted(first=10))
    decide(new, 10)
    for _ in range(2):
        with raised(CheckpointRefused, "DECISION_LOG_MOVED", "batch 10", DATABASES[1]):
            start(logs.checkpoint, former, DATABASES[0], 10)
    start(logs.checkpoint, new, DATABASES[1], 10)
    decide(former, 10)  # the records of the new one were moved back
    start(logs.checkpoint, former, DATABASES[0], 10)
    start(logs.checkpoint, former, DATABASES[0], 11)


def test_records_that_came_along(logs: Logs) -> None:
    """A folder that was renamed, or its records in another place."""
    Path(logs.place["a"]).rename(logs.place["b"])
    logs.start("b", 10)
    with raised(CheckpointRefused, "DECISION_LOG_MOVED", "batch 11", logs.place["a"]):
        logs.start("b", 11)


def test_a_log_that_cannot_be_looked_at(logs: Logs) -> None:
    """Lost with its machine: refused as often as it is tried."""
    shutil.rmtree(logs.place["a"])
    for _ in range(2):
        with raised(CheckpointRefused, "DECISION_LOG_MOVED", logs.place["a"], "exactum accept"):
            logs.start("b", 10)


@pytest.mark.parametrize("last", [8, 0])
def test_a_folder_that_was_restored_from_an_older_copy(logs: Logs, last: int) -> None:
    """Refused with both numbers, whatever log is given."""
    logs.lose("a", *range(last + 1, 10))
    for name in ("a", "a", "b"):
        with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", last, "checkpoint", 9):
            logs.start(name, 10)


@pytest.mark.parametrize("begins", [10, 9])
def test_the_batch_at_hand_alone_is_gone(logs: Logs, begins: int) -> None:
    """The first one of the last run, which was finished, and which Spark had not logged; or it is a
    copy of the checkpoint whose note is newer.
    """
    logs.note("a", Noted(first=0, decided=10))
    decide(logs["a"], 10)
    logs.start("a", 10)
    logs.lose("a", 10)
    with raised(CheckpointRefused, "ENDS_DIFFER", "decision log", 9, "checkpoint", 10):
        logs.start("a", begins)


def test_what_is_sound(logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    """Pruned; behind batches of ``at_least_once``; accepted; a checkpoint that has no such file."""
    with caplog.at_level(logging.WARNING):
        logs.start("a", 10)
        logs.note("a", Noted(first=0, undecided_from=10))
        logs.start("a", 40)
        logs.note("a", Noted(first=40))
        logs.start("a", 40)
        log = SlotLog(Folder(Path(logs.place["a"]) / QUERY), QUERY, prune_every=1)
        log.prune(9)
        logs.note("a", Noted(first=0, decided=3))
        logs.start("a", 10)
        (logs.checkpoint / SINKS).unlink()
        logs.start("a", 40)
    assert not caplog.records


def test_a_file_that_the_file_system_does_not_give(logs: Logs) -> None:
    """Nothing could be compared: the start waits, and does not take it for a query without one."""
    text = (logs.checkpoint / SINKS).read_bytes()
    (logs.checkpoint / SINKS).unlink()
    (logs.checkpoint / SINKS).mkdir()
    with raised(Unavailable, logs.checkpoint / SINKS):
        logs.start("b", 10)
    (logs.checkpoint / SINKS).rmdir()
    (logs.checkpoint / SINKS).write_bytes(text)
    logs.start("b", 10)


def test_a_missing_batch_is_still_told(logs: Logs) -> None:
    """What is asked here must not keep a log from seeing that the batch at hand is gone from the
    middle: a later one is there.
    """
    decide(logs["a"], 10, 11)
    logs.lose("a", 10)
    with raised(InvariantBroken, "10"):
        logs.start("a", 10)


# ---- with Spark ----------------------------------------------------------------------------------


@pytest.mark.spark
def test_from_which_batch_on_is_noted(query: Any) -> None:
    query.give(1, batches=3)
    assert query.run(query.exactly_once()) is None
    known = read_known_sinks(query.checkpoint)
    assert known is not None and known.noted == Noted(first=0, decided=0)
    query.give(1)
    assert query.run(exactum.at_least_once(query.sink)) is None
    known = read_known_sinks(query.checkpoint)
    assert known is not None and known.noted == Noted(first=0, decided=0, undecided_from=3)
    query.give(1, batches=2)
    assert query.run(query.exactly_once()) is None
    known = read_known_sinks(query.checkpoint)
    assert known is not None and known.noted == Noted(first=4, decided=4)


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.deep
def test_decisions_and_rows_in_one_database_that_was_restored(
    query: Any, postgres: LocalPostgres
) -> None:
    """Both are of one older moment, as after a restore to a point in time: nothing in the database
    says that there was more. Accepted, the query goes on.
    """

    def run() -> str:
        sink = exactum.PostgresSink(postgres.url, table="restored")
        return query.run(query.exactly_once(sink, decision_log=postgres.url)) or ""

    def values() -> list[int]:
        return [v for (v,) in connection.execute("SELECT v FROM restored ORDER BY v")]

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS restored")
        connection.execute("CREATE TABLE restored (k text, v bigint)")
        for value in range(8):
            query.give(value)
        assert run() == ""
        assert values() == list(range(8))
        connection.execute("DELETE FROM exactum_decisions WHERE batch_id > 1")
        connection.execute("DELETE FROM exactum_ledger WHERE batch_id > 1")
        connection.execute("DELETE FROM restored WHERE v > 1")
        query.give(8)
        for _ in range(2):
            assert "the decision log ends with batch 1, and the checkpoint with batch 7" in run()
        assert values() == [0, 1]
        for value in range(2, 8):  # by hand, as docs/guarantees.md says
            connection.execute("INSERT INTO restored VALUES ('x', %s)", [value])
        sinks = given(exactum.PostgresSink(postgres.url, table="restored"))
        place = ["--decision-log", postgres.url, *sinks]
        assert "ends with batch 1" in accept(query.checkpoint, 8, *place)
        assert run() == ""
        query.give(9)
        assert run() == ""
        assert values() == list(range(10))


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
