"""A start whose decision log is another one than the query had, or lacks its end: refused, and taken
where a person says so.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import exactum
from exactum.checkpoint.layout import DECISIONS
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.files.slot_log import LOG_ID, SlotLog
from exactum.protocol.ends import Noted
from exactum.protocol.model import Decision, DecisionRecord, Epoch, Incarnation
from exactum.spark.settings import PROVIDER, ROCKSDB
from exactum.storage.folder import Folder
from exactum.testing import MemoryDecisionLog, MemoryStorage
from tests.kit.errors import check_query_error, raised
from tests.kit.query_record import note, on_file
from tests.kit.spark.files import mounted
from tests.kit.spark.query import summed
from tests.kit.spark.torn_stream import of_format_2
from tests.kit.transactions.given import given
from tests.kit.transactions.operator import accept

pytestmark = pytest.mark.spark


def run(query: Any, log: Any) -> str:
    return query.run(query.exactly_once(decision_log=log)) or ""


def check_other(text: str, *facts: object) -> None:
    check_query_error(text, CheckpointRefused, "DECISION_LOG_OTHER", *facts)


def id_of(log: Path) -> str:
    """Of the one query that has its decisions there."""
    (file,) = log.glob(f"*/{LOG_ID}")
    return file.read_text().strip()


@pytest.mark.parametrize("other", ["not mounted", "of another time", "copied by hand"])
def test_another_log(query: Any, tmp_path: Path, other: str) -> None:
    """Refused as often as it is given, and both are named; no command takes it either: nothing is
    called undecided, or aborted, by it. The former goes on.
    """
    former, found = tmp_path / "former", "empty"
    query.give(1)
    assert run(query, former) == ""
    assert not (query.checkpoint / DECISIONS).exists()
    query_id = on_file(query.checkpoint).query_id
    place = tmp_path / "place" / query_id
    if other == "copied by hand":  # without its id: nobody can tell whether these are all records
        shutil.copytree(former / query_id, place, ignore=shutil.ignore_patterns(LOG_ID))
    else:
        place.mkdir(parents=True)
    if other == "of another time":
        log = SlotLog(Folder(place), query_id)
        for batch_id in range(3):
            who = Incarnation("another")
            log.decide(DecisionRecord(Epoch(query_id, batch_id), 0, Decision.COMMIT, who))
        found = id_of(place.parent)
    query.give(2)
    for _ in range(2):
        facts = id_of(former), former, found, place.parent, "exactum accept"
        check_other(run(query, place.parent), *facts)
    QueryPlace.of(query.checkpoint, str(former)).open_log().close()
    with raised(CheckpointRefused, "DECISION_LOG_OTHER", id_of(former)):
        QueryPlace.of(query.checkpoint, str(place.parent)).open_log()
    assert run(query, former) == ""
    assert query.values() == [1, 2]


def test_a_log_that_lies_elsewhere_now(query: Any, tmp_path: Path) -> None:
    """A folder that was renamed, or copied whole: it is the same log, and may be too old."""
    first, moved, old = (tmp_path / name for name in ("first", "moved", "old"))
    query.give(1)
    assert run(query, first) == ""
    for copy in (moved, old):
        shutil.copytree(first, copy)
    query.give(2)
    assert run(query, moved) == ""
    shutil.rmtree(first)
    query.give(3)
    assert run(query, moved) == ""
    query.give(4)
    facts = "ENDS_DIFFER", "decision log", "batch 0", "checkpoint", "batch 2"
    check_query_error(run(query, old), CheckpointRefused, *facts)
    assert query.values() == [1, 2, 3]


class Own:
    """A log of a user's, which has no id, and forgets that there may be several queries."""

    def __init__(self) -> None:
        self.records: dict[tuple[int, int], DecisionRecord] = {}

    def read(self, batch_id: int) -> list[DecisionRecord]:
        return [self.records[slot] for slot in sorted(self.records) if slot[0] == batch_id]

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        return self.records.setdefault((record.epoch.batch_id, record.attempt), record)

    def prune(self, below_batch_id: int) -> int:
        return 0

    def close(self) -> None:
        """Nothing is held."""


def test_a_log_of_the_users_own(query: Any, tmp_path: Path) -> None:
    """It is known by its class: a folder is none. One that another query's records stand in is
    refused; no batch is taken for done.
    """
    own = Own()
    query.give(1)
    assert run(query, own) == ""
    query.give(2)
    check_other(run(query, tmp_path / "folder"), "Own", tmp_path / "folder")
    assert run(query, own) == ""
    query.checkpoint = tmp_path / "second"
    check_query_error(run(query, own), CheckpointRefused, "LOG_OTHER_QUERY")
    assert query.values() == [1, 2]


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


class DiesBehindTheDecision(MemoryDecisionLog):
    """In no folder. Its first COMMIT stands, and the run hears nothing of it."""

    has_died = False

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        stands = super().decide(record)
        if record.decision is Decision.COMMIT and not self.has_died:
            self.has_died = True
            raise Unavailable("the driver is gone")
        return stands


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


def test_rows_have_no_place_beside_a_checkpoint_that_lies_in_no_folder(
    query: Any, tmp_path: Path
) -> None:
    """Where a sink leaves them in files, the start says that it needs one, and takes one."""
    sent: list[int] = []
    sink = exactum.WriteAheadSink(lambda batch, key: sent.extend(batch["v"].to_pylist()))
    query.checkpoint = f"{mounted(query.spark, tmp_path)}/checkpoint"
    query.give(1)
    places = {"decision_log": tmp_path / "log"}
    error = query.run(query.exactly_once(sink, **places))
    check_query_error(error, SettingRefused, "STAGING_WANTED", "WriteAheadSink", "staging=")
    assert query.run(query.exactly_once(sink, staging=tmp_path / "rows", **places)) is None
    assert sent == [1]


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


@pytest.mark.usefixtures("settings_put_back")
def test_state_that_spark_has_repartitioned(query: Any, spark: SparkSession) -> None:
    """Spark logs a batch of its own then, which no decision names. Once that is accepted the query goes
    on, with its state, and with decisions that are compared as before.
    """
    assert pyspark.__version__ >= "4.2", "in which repartition came"
    spark.conf.set(PROVIDER, ROCKSDB)
    query.checkpoint = query.checkpoint.parent / "checkpoint"  # to repartition a blank is no path
    start = partial(query.run, query.exactly_once(), transform=summed, mode="update")
    query.give(1, 2)
    assert start() is None
    own: Any = of_format_2(spark)
    manager = own._streamingCheckpointManager
    manager.repartition(str(query.checkpoint), 3, enforce_exactly_once_sink=True)
    query.give(3)
    check_query_error(start(), CheckpointRefused, "ENDS_DIFFER", "exactum accept", "--batch 2")
    query.accept(2)
    for _ in range(2):
        assert start() is None
        query.give(5)
    assert query.values() == [1, 2, 4, 9]
