"""Every stop that cut a batch is on record, whenever a run dies; one of a void attempt counts for
nothing.
"""

from __future__ import annotations

import ast
import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import exactum
from exactum.checkpoint.offset_log import folder_reader
from exactum.checkpoint.record_folder import FolderFiles
from exactum.errors import CheckpointRefused, EpochAborted, Fenced, SettingRefused
from exactum.protocol.model import SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.spark.epoch_listener import Batch
from exactum.spark.run import earlier_attempts
from exactum.spark.source import watched_source
from exactum.spark.source.bounded_run import BoundedRun
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.source_options import SourceOptions, Stop
from exactum.spark.source.stop_guard import StopGuard, kept_from, refuse_lost
from exactum.spark.source.stop_record import KeptStop, StopRecord
from tests.kit.waiting import WAIT_MAX_S, await_true

RECORDS = 10


@pytest.fixture
def dies(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, DataFrame], None]:
    """A run of a frame that ends right behind its first batch, which Spark never logs."""

    def death(*_: Any) -> None:
        raise RuntimeError("died behind the commit")

    def run(stream: Any, frame: DataFrame) -> None:
        with monkeypatch.context() as dying:
            dying.setattr(StopGuard, "done", death)
            assert "died behind" in str(stream.run(frame))

    return run


def broken(frame: DataFrame) -> DataFrame:
    """The frame with a row that cannot be computed: the attempt at its batch is void."""
    return frame.withColumn("offset", f.raise_error(f.lit("broken")).cast("long"))


def not_by_the_watcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused is refused in a batch, and not ended before, as read up to the new stop."""
    monkeypatch.setattr(BoundedRun, "end_if_read", lambda *_: None)


def kept(given: str, offset: int) -> KeptStop:
    offsets = {("orders", 0): offset}
    return KeptStop(Stop(given, offsets), offsets)


def names(stream: Any) -> list[str]:
    return sorted(path.name for path in stream.checkpoint.glob("exactum/source/0/stops/*.json"))


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("again", ["latest", None])
def test_a_run_that_dies_in_its_first_batch(
    stream: Any, topics: Any, topic: Callable[..., str], dies: Callable[..., None], again: Any
) -> None:
    """The batch read past the stop, and stands: no other stop may go on behind it."""
    name = topic("dies", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, stop="latest")
    topics.give(name, 5)  # the topic goes on; the first batch reads, and filters, these
    dies(stream, frame)
    assert len(stream.rows()) == 20
    topics.give(name, 1)
    error = stream.run(stream.read(name, stop=again))
    assert error is not None
    assert "CheckpointRefused" in error
    assert f"{name}-0 from 10 to 15" in error
    assert stream.run(stream.read(name, stop={name: {0: 10, 1: 10}})) is None
    assert len(stream.rows()) == 20


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_stop_that_is_raised_by_a_run_that_dies(
    stream: Any, topics: Any, topic: Callable[..., str], dies: Callable[..., None]
) -> None:
    """The rows up to the second stop stand, so they are not said to be left out at the first."""
    name = topic("raised", partitions=2)
    topics.give(name, RECORDS)
    assert stream.run(stream.read(name, stop={name: {0: 10, 1: 10}})) is None
    topics.give(name, 5)
    stop = {name: {0: 15, 1: 15}}
    dies(stream, stream.read(name, stop=stop))
    assert len(stream.rows()) == 30
    assert stream.run(stream.read(name, stop=stop)) is None
    assert len(stream.rows()) == 30


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_stop_of_a_void_attempt(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """It has cut nothing that stands: neither it nor a later one keeps the next run from reading
    on.
    """
    name = topic("void", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, stop="latest")
    topics.give(name, 5)
    assert "broken" in str(stream.run(broken(frame)))
    assert names(stream) == ["0.json"], "it was on record before anything was written"
    assert stream.run(stream.read(name)) is None
    assert len(stream.rows()) == 30
    topics.give(name, 5)
    frame = stream.read(name, stop={name: {0: 16, 1: 16}})
    assert "broken" in str(stream.run(broken(frame)))
    assert stream.run(stream.read(name, stop="latest")) is None
    assert len(stream.rows()) == 40
    topics.give(name, 1)
    error = stream.run(stream.read(name, stop={name: {0: 19, 1: 20}}))
    assert error is None, "nothing lies past the stop on record"


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_record_of_exactum_0_1_0(stream: Any, topics: Any, topic: Callable[..., str]) -> None:
    """It has no batch, and was written when the batch stood."""
    name = topic("older", partitions=2)
    topics.give(name, RECORDS)
    assert stream.run(stream.read(name, stop={name: {0: 5, 1: 8}})) is None
    (path,) = stream.checkpoint.glob("exactum/source/0/stops/*.json")
    value = json.loads(path.read_text())
    assert (value.pop("batch_id"), value.pop("attempt")) == (0, 1)
    path.write_text(json.dumps(value))
    topics.give(name, 1)
    error = stream.run(stream.read(name, stop="latest"))
    assert error is not None
    assert f"give stop={{'{name}': {{0: 5, 1: 8}}}}" in error
    assert stream.run(stream.read(name, stop={name: {0: 5, 1: 8}})) is None
    assert len(stream.rows()) == 13


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_the_same_stop_in_the_middle(
    stream: Any, topics: Any, topic: Callable[..., str], dies: Callable[..., None]
) -> None:
    """A partition that is past the stop when the same stop is given again has left rows out all the
    same: no other stop may go on behind them, and the advice reads each row once.
    """
    name = topic("middle", partitions=2)
    topics.give(name, 20, partitions=1)
    stop = {name: {0: 10, 1: 20}}
    assert stream.run(stream.read(name, stop=stop)) is None
    topics.give(name, 20)
    dies(stream, stream.read(name, stop=stop, maxOffsetsPerTrigger=4))
    assert len(stream.rows()) == 12, "partition 0 is at 22, partition 1 at 2"
    error = str(stream.run(stream.read(name)))
    assert f"{name}-0 from 10 to 22" in error
    assert f"start={{'{name}': {{0: 10, 1: 2}}}}" in error
    assert stream.run(stream.read(name, stop=stop), processingTime="0 seconds") is None
    assert len(stream.rows()) == 30
    topics.give(name, 1)  # a query that finds nothing is over before anybody looks
    assert f"{name}-0 from 10 to 40" in str(stream.run(stream.read(name)))


def advised(told: str, argument: str) -> Any:
    """What a message says to give, read as Python."""
    found = re.search(rf"{argument}=({{.*?}}}})", told)
    assert found is not None, told
    return ast.literal_eval(found[1])


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_the_advice_where_a_partition_was_added(
    stream: Any, topics: Any, topic: Callable[..., str]
) -> None:
    """read_kafka takes the stop that the refusal names, and the query ends where it was to end."""
    name = topic("added", partitions=2)
    topics.give(name, 20, partitions=1)
    stop = {name: {0: 10, 1: 20}}
    assert stream.run(stream.read(name, stop=stop)) is None
    (added,) = topics.admin.create_partitions([NewPartitions(name, 3)]).values()
    added.result(WAIT_MAX_S)
    topics.give(name, 25, partitions=3)
    assert advised(str(stream.run(stream.read(name))), "give stop") == stop
    with pytest.raises(SettingRefused) as asked:
        stream.read(name, stop=stop)
    assert f"with the stop 0 nothing is read: {{'{name}': {{2: 0}}}}." in str(asked.value)
    told = str(stream.run(stream.read(name, stop="latest")))
    assert advised(told, "give stop") == {name: {0: 10, 1: 20, 2: 0}}
    assert stream.run(stream.read(name, stop=advised(told, "give stop"))) is None
    rows = [(name, p, o) for p, end in ((0, 10), (1, 20)) for o in range(end)]
    assert stream.rows() == rows
    topics.give(name, 1, partitions=3)
    told = str(stream.run(stream.read(name, stop="latest")))
    assert advised(told, "start") == {name: {0: 10, 1: 20, 2: 0}}
    assert stream.rows() == rows


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_the_advice_where_a_topic_is_gone(
    stream: Any, topics: Any, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likewise: it does not name what is not read any more."""
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 0.5)
    here, gone = topic("stop-here", partitions=2), topic("stop-gone", partitions=1)
    pattern = re.compile(f"{re.escape(here)}|{re.escape(gone)}")
    topics.give(here, 5, partitions=1)
    topics.give(gone, 5, partitions=1)

    def run(stop: Any) -> str | None:
        error: str | None = stream.run(stream.read(pattern, stop=stop, failOnDataLoss=False))
        return error

    assert run({here: {0: 3, 1: 4}, gone: {0: 4}}) is None
    topics.kafka.delete_topic(gone)
    topics.give(here, 6)
    told = str(run("latest"))
    assert f"{here}-0 from 3 to 5" in told
    assert advised(told, "give stop") == {here: {0: 3, 1: 4}}
    assert run(advised(told, "give stop")) is None
    of_gone = [(gone, 0, o) for o in range(4)]
    of_here = [(here, 0, o) for o in range(3)] + [(here, 1, o) for o in range(4)]
    assert stream.rows() == sorted(of_gone + of_here)


def test_stops_are_compared_by_partition() -> None:
    """One that a stop does not name is not read: that is 0. What was left out is not forgotten,
    though the partition is away.
    """
    a, b, c = ("a", 0), ("a", 1), ("b", 0)
    was = KeptStop(Stop("latest", {a: 10, b: 20, c: 5}), {a: 10, b: 20, c: 5})
    positions = {a: 15, b: 4, c: 8}

    def refused(offsets: dict[tuple[str, int], int] | None) -> bool:
        stop = None if offsets is None else Stop("latest", offsets)
        source = RunningSource(0, 0, "kafkatable", SourceOptions(stop=stop).options(), None)
        try:
            refuse_lost("query q", source, was, positions)
        except CheckpointRefused:
            return True
        return False

    new = ("a", 2)
    assert refused(None)
    assert refused({a: 11, b: 20, c: 5})
    assert refused({a: 10, b: 20, c: 8})
    assert refused({a: 0, b: 20, c: 5})
    assert not refused({a: 10, b: 20, c: 5, new: 0})
    assert not refused({a: 10, b: 30, c: 5, new: 7}), "nothing of these was left out yet"
    assert not refused({a: 10, b: 20}), "c is gone"
    less = kept_from(Stop("latest", {a: 10, b: 30}), was, positions)
    assert less.left_out_from == {a: 10, b: 30, c: 5}
    lower = kept_from(Stop("latest", {a: 10}), was, positions)
    assert lower.left_out_from == {a: 10, b: 4, c: 5}
    assert kept_from(Stop("latest", {a: 10, new: 7}), was, positions).left_out_from[new] == 7
    seen = {a: 15, b: 4}  # Spark has forgotten c, which is away
    assert kept_from(Stop("latest", {a: 10, b: 30}), was, seen).left_out_from[c] == 5


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_refused_start_under_at_most_once_loses_nothing(
    stream: Any, topics: Any, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is on record as begun is never written again, so a start that may not go on is
    refused before it is: with the stop that the refusal names all is written.
    """
    not_by_the_watcher(monkeypatch)
    stream.guarantee = exactum.at_most_once
    name = topic("begun", partitions=2)
    topics.give(name, 20, partitions=1)
    stop = {name: {0: 10, 1: 20}}
    assert stream.run(stream.read(name, stop=stop)) is None
    topics.give(name, 20)
    begin = StopGuard.begin

    def dies_behind_one(guard: StopGuard, batch: Batch) -> None:
        if not batch.first:
            raise RuntimeError("died behind the first batch")
        begin(guard, batch)

    with monkeypatch.context() as dying:
        dying.setattr(StopGuard, "begin", dies_behind_one)
        error = stream.run(stream.read(name, stop=stop, maxOffsetsPerTrigger=4))
    assert "died behind" in str(error)
    assert len(stream.rows()) == 12, "partition 0 is at 22, partition 1 at 2"
    for _ in range(2):
        assert f"give stop={{'{name}': {{0: 10, 1: 20}}}}" in str(stream.run(stream.read(name)))
    assert stream.run(stream.read(name, stop=stop)) is None
    assert len(stream.rows()) == 30


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_refused_start_has_computed_nothing(
    stream: Any, topics: Any, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster the state of a batch that an earlier run has computed may come back, and a start
    in the same application is refused. One that was refused itself has left no state.
    """
    monkeypatch.setattr(earlier_attempts, "is_one_process", lambda master: False)
    not_by_the_watcher(monkeypatch)
    name = topic("state", partitions=2)
    topics.give(name, RECORDS)

    def run(offset: int) -> str | None:
        frame = stream.read(name, stop={name: {0: offset, 1: 8}})
        error: str | None = stream.run(frame.dropDuplicates(["topic", "partition", "offset"]))
        return error

    assert run(5) is None
    topics.give(name, 1)
    assert "CheckpointRefused" in str(run(9))
    assert run(5) is None
    assert len(stream.rows()) == 13


@pytest.mark.broker
@pytest.mark.spark
def test_batches_that_exactum_does_not_write(
    stream: Any, topics: Any, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is on record of a query that goes elsewhere: it says what it left out, and how to
    read on.
    """
    name = topic("elsewhere", partitions=2)
    topics.give(name, RECORDS)
    frame = stream.read(name, stop="latest")
    topics.give(name, 5)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(stream.checkpoint))
    assert stream.end(writer.start()) is None
    told = f"read past its stop ({name}-0, {name}-1)"
    await_true(lambda: told in caplog.text, "what was left out is told")
    assert f"start={{'{name}': {{0: 10, 1: 10}}}}" in caplog.text


@pytest.mark.broker
@pytest.mark.spark
def test_what_stands_is_not_said_to_be_left_out(
    stream: Any, topics: Any, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Who followed that would write it twice: a query that is given a stop where it is beyond it
    already, and one that goes elsewhere from there on.
    """
    name = topic("stands", partitions=2)
    topics.give(name, RECORDS)
    assert stream.run(stream.read(name)) is None
    behind = stream.read(name, stop={name: {0: 5, 1: 10}})
    assert stream.run(behind, processingTime="0 seconds") is None
    topics.give(name, 3)
    frame = stream.read(name, stop={name: {0: 5, 1: 12}})
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(stream.checkpoint))
    assert stream.end(writer.start()) is None
    await_true(lambda: "left out" in caplog.text, "what was left out is told")
    assert caplog.text.count("left out") == 1
    assert f"start={{'{name}': {{0: 10, 1: 12}}}}" in caplog.text


@pytest.mark.in_turn
@pytest.mark.broker
@pytest.mark.spark
def test_a_stop_behind_which_the_query_is_already(
    stream: Any, topics: Any, topic: Callable[..., str]
) -> None:
    """What stands already is none of what it leaves out: the advice does not double it."""
    name = topic("behind", partitions=2)
    topics.give(name, RECORDS)
    assert stream.run(stream.read(name)) is None
    topics.give(name, 3)
    behind = stream.read(name, stop={name: {0: 5, 1: 12}})
    assert stream.run(behind, processingTime="0 seconds") is None
    assert len(stream.rows()) == 22
    topics.give(name, 1)  # a query that finds nothing is over before anybody looks
    refused = str(stream.run(stream.read(name, stop={name: {0: 12, 1: 12}})))
    assert f"start={{'{name}': {{0: 10, 1: 12}}}}" in refused
    assert len(stream.rows()) == 22


@pytest.mark.in_turn
def test_where_only_hadoop_knows(
    stream: Any, topics: Any, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The record of a checkpoint that lies in no folder is written by the JVM: the same script,
    run again each night, is refused before it leaves rows out.
    """
    mounted = f"stops{secrets.token_hex(4)}"  # Hadoop remembers what it has mounted
    configuration = stream.spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{mounted}.linkFallback", tmp_path.as_uri())
    stream.place = f"viewfs://{mounted}/checkpoint"
    stream.decision_log = tmp_path / "decisions"
    stream.checkpoint = tmp_path / "checkpoint"
    name = topic("hadoop", partitions=2)

    def night(more: int) -> str | None:
        frame = stream.read(name, stop="latest")
        topics.give(name, more)  # the topic goes on
        error: str | None = stream.run(frame)
        return error

    topics.give(name, RECORDS)
    assert night(5) is None
    assert len(stream.rows()) == 20
    assert names(stream) == ["0.json"]
    for _ in range(2):
        error = night(5)
        assert error is not None
        assert "CheckpointRefused" in error
        assert f"{name}-0 from 10 to 15" in error
    again = stream.read(name, stop={name: {0: 10, 1: 10}})
    assert stream.run(again, processingTime="0 seconds") is None
    idle = stream.run(stream.read(name, stop={name: {0: 12, 1: 10}}), processingTime="1 hour")
    assert idle is not None
    assert "CheckpointRefused" in idle
    assert len(stream.rows()) == 20
    # Of Spark's own files one may be left, where the query was stopped while Spark wrote it.
    assert [path.name for path in tmp_path.rglob("stops/*.tmp*")] == []


def test_a_run_that_wakes_up_late(tmp_path: Path) -> None:
    """A run that was fenced before it wrote its stop never comes behind the one that fenced it,
    whichever of them writes first.
    """
    ours, theirs = (kept("offsets", offset) for offset in (5, 9))
    record = StopRecord(FolderFiles(tmp_path / "late"))
    old = record.next_number()
    new = record.next_number()
    record.add(new, ours, batch_id=3, attempt=3)
    with pytest.raises(Fenced, match="attempt 3"):
        record.add(old, theirs, batch_id=3, attempt=1)
    assert record.stop(3) == ours
    record = StopRecord(FolderFiles(tmp_path / "early"))
    old = record.next_number()
    new = record.next_number()
    record.add(old, theirs, batch_id=3, attempt=1)
    record.add(new, ours, batch_id=3, attempt=3)
    assert record.stop(3) == ours
    assert record.stop(2) is None


def test_a_run_that_wakes_up_late_where_nothing_fences(tmp_path: Path) -> None:
    """Under at_least_once: its stop would say that rows were left out which a later run has written;
    or that of the later run would be forgotten.
    """
    record = StopRecord(FolderFiles(tmp_path / "stops"))

    def guard(stop: Stop | None) -> StopGuard:
        options = SourceOptions(stop=stop).options()
        run = QueryRun("q", new_incarnation(), Guarantee.AT_LEAST_ONCE)
        context: Any = SimpleNamespace(query="query q", run=run, read=folder_reader(tmp_path))
        return StopGuard(context, [(RunningSource(0, 0, "kafkatable", options, None), record)])

    def begun(given: StopGuard, batch_id: int) -> Callable[[], None]:
        ends = json.dumps({"orders": {"0": 20}})
        batch = Batch(batch_id, SourceOffsets((ends,), (ends,)), first=True)
        order = WriteOrder(
            QueryRun("q", new_incarnation(), Guarantee.AT_LEAST_ONCE), batch_id, 0, 1
        )
        given.begin(batch)
        return lambda: given.writing(batch, order)

    late, later = begun(guard(kept("latest", 30).stop), 7), begun(guard(None), 7)
    later()
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "7").touch()
    with pytest.raises(Fenced, match="beyond batch 7"):
        late()
    assert record.stop(9) is None
    late, later = begun(guard(None), 8), begun(guard(kept("latest", 30).stop), 8)
    later()
    with pytest.raises(EpochAborted, match="with a stop of its own"):
        late()
    assert record.stop(9) == kept("latest", 30)


def test_a_run_that_wakes_up_behind_one_without_a_stop(tmp_path: Path) -> None:
    """Likewise: the later attempt reads on, so nothing was left out."""
    theirs = kept("latest", 9)
    record = StopRecord(FolderFiles(tmp_path / "late"))
    old = record.next_number()
    record.add(record.next_number(), None, batch_id=7, attempt=2)
    with pytest.raises(Fenced, match="attempt 2"):
        record.add(old, theirs, batch_id=7, attempt=1)
    assert record.stop(7) is None
    record = StopRecord(FolderFiles(tmp_path / "early"))
    old = new = record.next_number()
    record.add(old, theirs, batch_id=7, attempt=1)
    record.add(new, None, batch_id=7, attempt=2)
    assert record.stop(7) is None


def test_no_stop_any_more(tmp_path: Path) -> None:
    """A query that never had a stop has no file; one that has none any more has one, and more runs
    add none.
    """
    record = StopRecord(FolderFiles(tmp_path))
    record.add(record.next_number(), None, batch_id=0, attempt=1)
    assert list(tmp_path.iterdir()) == []
    stop = kept("latest", 5)
    record.add(record.next_number(), stop, batch_id=1, attempt=1)
    for batch_id in (2, 3, 4):
        record.add(record.next_number(), None, batch_id=batch_id, attempt=1)
    assert record.stop(1) == stop
    assert record.stop(4) is None
    assert len(list(tmp_path.iterdir())) == 2
