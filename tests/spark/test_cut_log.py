"""A start whose decision log has lost its newest records, or is another one that the query had:
folders, and what is on file of it.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

import exactum
from exactum.checkpoint.guarantee_record import Stretches
from exactum.checkpoint.known_sinks import IN_CHECKPOINT, DecidedNote, read_known_sinks
from exactum.checkpoint.layout import DECISIONS, SINKS
from exactum.errors import CheckpointRefused, Unavailable
from exactum.files.decision_log import FileDecisionLog
from exactum.files.slot_log import slot_name
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.spark.run.cut_log import end_of, refuse_cut_log
from exactum.spark.run.moved_log import refuse_moved_log
from exactum.testing import MemoryDecisionLog, MemoryParticipant, MemoryStorage, MemoryTarget
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.spark.run_begin import note, run_at, without

QUERY = "query"


def decide(log: DecisionLog, *batches: int) -> None:
    """As runs that each fence, and commit one batch."""
    for batch_id in batches:
        who = Incarnation(f"run{batch_id}")
        epoch = Epoch(QUERY, batch_id)
        attempt = len(log.read(batch_id))
        log.decide(DecisionRecord(epoch, attempt, Decision.ABORT, who))
        log.decide(DecisionRecord(epoch, attempt + 1, Decision.COMMIT, who))


def start(checkpoint: Path, log: DecisionLog, place: str, begins: int) -> None:
    """As ``opening`` asks, of a query with a sink that cannot tell what it has."""
    context = run_at(checkpoint, QUERY, begins)
    refuse_moved_log(context, log, place)
    cannot_tell = MemoryParticipant(MemoryTarget("own"), context.run)
    refuse_cut_log(context, log, place, [cannot_tell], Stretches())


class Logs:
    """Two folders for one query's decisions, given in turn. Each start is a new object."""

    def __init__(self, tmp_path: Path) -> None:
        self.checkpoint = tmp_path / "check point"
        self.place = {"a": str(tmp_path / "a"), "b": str(tmp_path / "b")}

    def __getitem__(self, name: str) -> FileDecisionLog:
        return FileDecisionLog(Path(self.place[name]) / QUERY, QUERY)

    def start(self, name: str, begins: int) -> None:
        start(self.checkpoint, self[name], self.place[name], begins)

    def note(self, name: str, decided: int | None) -> None:
        note(self.checkpoint, QUERY, self.place[name], decided)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    found = Logs(tmp_path)
    decide(found["a"], *range(10))
    found.note("a", 9)
    return found


def test_back_to_the_log_of_before_after_one_batch(logs: Logs) -> None:
    """A deployment gives another log and is rolled back. The former one has an ABORT of the batch
    from the move itself, and the COMMIT of the batch before: the batch is decided elsewhere.
    """
    logs.start("b", 10)
    decide(logs["b"], 10)
    logs.note("b", 10)
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=f"batch 10 is decided in {logs.place['b']}"):
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
    note(logs.checkpoint, QUERY, DATABASES[0], 9)
    if copied:
        decide(new, *range(10))
        start(logs.checkpoint, new, DATABASES[1], 10)
    note(logs.checkpoint, QUERY, DATABASES[1], None)
    start(logs.checkpoint, former, DATABASES[0], 10)
    note(logs.checkpoint, QUERY, DATABASES[1], None, since=10)
    decide(new, 10)
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=f"batch 10 may be decided in {DATABASES[1]}"):
            start(logs.checkpoint, former, DATABASES[0], 10)
    start(logs.checkpoint, new, DATABASES[1], 10)
    without("decision_log", logs.checkpoint / SINKS)
    start(logs.checkpoint, former, DATABASES[0], 10)
    note(logs.checkpoint, QUERY, DATABASES[1], None, since=10)
    decide(former, 10)  # the records of the new one were moved back
    start(logs.checkpoint, former, DATABASES[0], 10)
    start(logs.checkpoint, former, DATABASES[0], 11)


def test_records_that_came_along_count_once(logs: Logs, tmp_path: Path) -> None:
    """Moved or copied. A copy that was made too early lacks what was decided since."""
    shutil.copytree(logs.place["a"], logs.place["b"])
    logs.start("b", 10)
    decide(logs["a"], 10)
    with pytest.raises(CheckpointRefused, match="batch 10 is decided in"):
        logs.start("b", 10)
    shutil.rmtree(logs.place["b"])
    Path(logs.place["a"]).rename(logs.place["b"])
    logs.start("b", 10)
    logs.start("b", 11)


def test_a_log_that_cannot_be_looked_at(logs: Logs) -> None:
    """Lost with its machine: refused as often as it is tried, and the way out holds."""
    shutil.rmtree(logs.place["a"])
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match="cannot be looked at from here. If it is lost"):
            logs.start("b", 10)
    without("decision_log", logs.checkpoint / SINKS)
    logs.start("b", 10)


@pytest.mark.parametrize("last", [8, 0])
def test_a_folder_that_was_restored_from_an_older_copy(logs: Logs, last: int) -> None:
    """The sink cannot tell, so the batch at hand may be there."""
    for batch_id in range(last + 1, 10):
        for attempt in (0, 1):
            (Path(logs.place["a"]) / QUERY / slot_name(batch_id, attempt)).unlink()
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=f"ends with batch {last}.*cannot tell") as e:
            logs.start("a", 10)
    gone = "batch 9 is gone" if last == 8 else "batches 1 to 9 are gone"
    assert gone in str(e.value)
    without("decided", logs.checkpoint / SINKS)
    logs.start("a", 10)


@pytest.mark.parametrize(("begins", "decided"), [(0, 0), (10, 10), (10, 12)])
def test_the_newest_decision_alone_is_gone(logs: Logs, begins: int, decided: int) -> None:
    """Of a batch that was finished and that Spark had not logged: a standby took over without it,
    or it is a copy of the checkpoint whose note is newer. The sink cannot tell, and would take it
    once more.
    """
    logs.note("a", decided)
    decide(logs["a"], 10)
    logs.start("a", 10)
    for slot in sorted((b, a) for b in range(begins, 11) for a in (0, 1))[1:]:  # the fence stays
        (Path(logs.place["a"]) / QUERY / slot_name(*slot)).unlink()
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=f"batch {begins} was decided and fin.*'own'"):
            logs.start("a", begins)
    without("decided", logs.checkpoint / SINKS)
    logs.start("a", begins)


def test_a_run_that_lives_decides_the_batch_while_another_one_starts(logs: Logs) -> None:
    """Its note is there, and the decision that was not when the start looked first."""

    class Decided(FileDecisionLog):
        looks = 0

        def read(self, batch_id: int) -> Sequence[DecisionRecord]:
            found = super().read(batch_id)
            self.looks += batch_id == 10
            if self.looks == 1:
                decide(logs["a"], 10)
            return found

    logs.note("a", 10)
    log = Decided(Path(logs.place["a"]) / QUERY, QUERY)
    start(logs.checkpoint, log, logs.place["a"], 10)
    assert log.looks == 2


def test_a_file_of_an_older_exactum(logs: Logs, caplog: pytest.LogCaptureFixture) -> None:
    """It notes no batch, or the first one of the run; or it does not say where the log is."""
    with caplog.at_level(logging.WARNING):
        logs.note("a", None)
        logs.start("a", 10)
        logs.note("a", 3)
        logs.start("a", 10)
        without("decision_log", logs.checkpoint / SINKS)
        logs.start("a", 10)
    assert not caplog.records


def test_a_file_that_the_file_system_does_not_give(logs: Logs) -> None:
    """Nothing could be compared: the start waits, and does not take it for a query without one."""
    decide(logs["b"], 10)
    text = (logs.checkpoint / SINKS).read_bytes()
    (logs.checkpoint / SINKS).unlink()
    (logs.checkpoint / SINKS).mkdir()
    with pytest.raises(Unavailable, match="exactum/sinks.json .*, a record that this query needs"):
        logs.start("b", 10)
    (logs.checkpoint / SINKS).rmdir()
    (logs.checkpoint / SINKS).write_bytes(text)
    logs.start("b", 10)


def test_a_missing_batch_is_still_told(logs: Logs) -> None:
    """What is asked here must not keep a log from seeing that the batch at hand is gone from the
    middle: a later one is there.
    """
    decide(logs["a"], 10, 11)
    for attempt in (0, 1):
        (Path(logs.place["a"]) / QUERY / slot_name(10, attempt)).unlink()
    log = logs["a"]
    start(logs.checkpoint, log, logs.place["a"], 10)
    with pytest.raises(Exception, match="it is missing"):
        log.read(10)


@pytest.mark.parametrize("batches", [[], [0], range(1), range(5), range(61), range(7, 40)])
def test_where_a_log_ends_that_can_only_be_read(batches: Sequence[int]) -> None:
    log = MemoryDecisionLog(MemoryStorage(), QUERY)
    decide(log, *batches)
    for begins in (0, 1, 3, 40, 62, 90):
        below = [b for b in batches if b <= begins]
        assert end_of(log, begins) in (max(below, default=None), begins)


def test_a_pruned_log_has_had_records() -> None:
    log = MemoryDecisionLog(MemoryStorage(floor=50), QUERY)
    assert end_of(log, 120) == 49


# ---- the note ------------------------------------------------------------------------------------


def test_the_last_batch_is_noted_in_place(tmp_path: Path) -> None:
    """Read by whoever reads the file; a run that came later has another file."""
    note(tmp_path, QUERY, IN_CHECKPOINT, 7)
    before = (tmp_path / SINKS).read_bytes()
    noting = DecidedNote(tmp_path)
    for batch_id in (8, 99, 100, 2**63 - 1, 9):
        noting.put(batch_id)
        known = read_known_sinks(tmp_path)
        assert known is not None and (known.query_id, known.decided) == (QUERY, batch_id)
    noting.put(7)
    assert (tmp_path / SINKS).read_bytes() == before
    note(tmp_path, QUERY, str(tmp_path), 20)
    noting.put(8)
    noting.close()
    noting.close()
    known = read_known_sinks(tmp_path)
    assert known is not None and known.decided == 20


def test_a_file_that_was_edited_is_left_alone(tmp_path: Path) -> None:
    note(tmp_path, QUERY, IN_CHECKPOINT, 7)
    noting = DecidedNote(tmp_path)
    text = json.dumps({"query_id": QUERY, "sinks": []})
    (tmp_path / SINKS).write_text(text)
    with pytest.raises(ValueError, match="edited"):
        noting.put(8)
    noting.close()
    assert (tmp_path / SINKS).read_text() == text
    with pytest.raises(ValueError, match="not found"):
        DecidedNote(tmp_path)


# ---- with Spark ----------------------------------------------------------------------------------


@pytest.mark.spark
def test_each_batch_is_noted(query: Any) -> None:
    query.give(1, batches=3)
    assert query.run(query.exactly_once()) is None
    known = read_known_sinks(query.checkpoint)
    assert known is not None and known.decided == 2
    query.give(1, batches=2)
    assert query.run(query.exactly_once()) is None
    known = read_known_sinks(query.checkpoint)
    assert known is not None and known.decided == 4


@pytest.mark.spark
def test_a_query_whose_log_was_cut(query: Any) -> None:
    """From the error to a query that goes on, by its own words."""
    query.give(1)
    query.give(2)
    query.give(3)
    assert query.run(query.exactly_once()) is None
    for batch_id in (1, 2):
        for record in (query.checkpoint / DECISIONS).glob(f"{batch_id:020d}-*"):
            record.unlink()
    query.give(4)
    for _ in range(2):
        text = query.run(query.exactly_once()) or ""
        assert "ends with batch 0, and it had that of batch 2" in text
        assert "batches 1 to 2 are gone" in text
        assert query.values() == [1, 2, 3]
    without("decided", query.checkpoint / SINKS)
    assert query.run(query.exactly_once()) is None
    query.give(5)
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2, 3, 4, 5]


@pytest.mark.spark
@pytest.mark.postgres
@pytest.mark.deep
def test_decisions_and_rows_in_one_database_that_was_restored(
    query: Any, postgres: LocalPostgres
) -> None:
    """Both are of one older moment, as after a restore to a point in time: nothing in the database
    says that there was more.
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
            text = run()
            assert "ends with batch 1, and it had that of batch 7" in text
            assert "Sink 'postgres:restored' ends with batch 1." in text
            assert "batches 2 to 7 are gone" in text
        assert values() == [0, 1]
        for value in range(2, 8):  # by hand, as it says
            connection.execute("INSERT INTO restored VALUES ('x', %s)", [value])
        without("decided", query.checkpoint / SINKS)
        assert run() == ""
        query.give(9)
        assert run() == ""
        assert values() == list(range(10))


@pytest.mark.spark
def test_a_function_that_passes_over_batches(query: Any) -> None:
    """The last ones of a run have no decision, and nothing is wrong: a start goes on."""
    write = query.exactly_once()

    def some(frame: Any, batch_id: int) -> None:
        if batch_id % 3 == 0:
            write(frame, batch_id)

    query.give(1)
    query.give(2)
    query.give(3)
    for _ in range(2):
        assert query.run(some) is None
        query.give(4)
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 4, 4]
