"""Control streams on a real broker and a real Spark: all tasks of an epoch see the same rules, and
one that is decided sees them again.
"""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

import exactum
from exactum import events
from exactum.checkpoint.savepoint.create import create
from exactum.checkpoint.savepoint.restore import Identity, restore
from exactum.errors import CheckpointRefused, FrameRefused, RowsRefused, SettingRefused, Unavailable
from exactum.local import LocalKafka
from exactum.protocol.model import Decision, DecisionRecord
from exactum.spark.control.stream import text_of
from exactum.testing import MemoryDecisionLog, MemoryStorage
from tests.kit.errors import check_error, check_query_error, raised
from tests.kit.kafka.broker import Broker
from tests.kit.spark import weighing
from tests.kit.spark.folder_sink import arm
from tests.kit.spark.torn_stream import configured, lose_version
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.broker, pytest.mark.spark]


class Rules:
    """A topic of rules, written by a plain producer."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic = broker.topic("rules", partitions=2)

    def write(self, **rules: int | None) -> None:
        for key, value in rules.items():
            self.put(key, None if value is None else str(value))

    def put(self, key: str | None, value: str | None, partition: int = -1) -> None:
        self.broker.produce(self.topic, value, key=key, partition=partition)

    def forget(self) -> None:
        """What retention does, at once: every record that is there is gone."""
        self.broker.empty(self.topic, partitions=2)

    def values(self, key: str) -> list[int]:
        """All that a key has had."""
        found = self.broker.read(self.topic)
        return [int(one.value or b"") for one in found if one.key == key.encode()]

    def stream(self, **arguments: Any) -> Any:
        return exactum.control_stream(
            self.topic,
            bootstrap_servers=self.broker.servers,
            **{"value": int, **arguments},
        )


@pytest.fixture
def rules(broker: Broker, spark: Any) -> Rules:
    cloudpickle.register_pickle_by_value(weighing)  # Spark's process for state has no files of ours
    return Rules(broker)


def weighed(stream: Any) -> Any:
    """v times the weight of its key, by a Python function in the tasks."""
    weigh = udf(lambda k, v: v * stream.current()[k], "long")

    def transform(frame: DataFrame) -> DataFrame:
        return frame.select("k", weigh("k", "v").alias("v"))

    return transform


def summed(stream: Any) -> Any:
    """Weighted sums by key, in Spark's state."""

    def transform(frame: DataFrame) -> DataFrame:
        return frame.groupBy("k").transformWithState(
            weighing.WeighedSum(stream),
            outputStructType="k string, v long",
            outputMode="Update",
            timeMode="None",
        )

    return transform


@pytest.mark.deep
def test_an_epoch_sees_what_stood_in_the_topic_when_it_began(query: Any, rules: Rules) -> None:
    """Weights written between two epochs hold from the second one on, in every task; a null
    removes a key.
    """
    rules.write(e=10, o=100, gone=1)
    stream = rules.stream()
    query.give(1, 2)
    assert query.run(query.exactly_once(control=stream), transform=weighed(stream)) is None
    assert query.values() == [20, 100]
    rules.write(e=1_000, gone=None)
    query.give(3, 4)
    assert query.run(query.exactly_once(control=stream), transform=weighed(stream)) is None
    assert query.values() == [20, 100, 300, 4_000]
    assert [event.keys for event in query.seen(events.ControlChanged)] == [3, 2]


def test_a_query_may_write_its_own_rules(query: Any, rules: Rules) -> None:
    """What an epoch writes holds from the next one on, and begins none by itself."""
    rules.write(e=10)
    stream = rules.stream()
    raised = udf(lambda k, v: str(stream.current()[k] + v))
    sink = rules.broker.sink(rules.topic)
    query.give(2, batches=3)
    assert (
        query.run(
            query.exactly_once(sink, control=stream),
            transform=lambda frame: frame.select(
                frame.k.alias("key"), raised("k", "v").alias("value")
            ),
        )
        is None
    )
    assert rules.values("e") == [10, 12, 14, 16]


def views(query: Any) -> list[Path]:
    """What is on record of the rules that epochs saw."""
    return sorted(query.checkpoint.glob("exactum/control/*/*"))


@pytest.mark.variants(1)
@pytest.mark.parametrize("make", [exactum.exactly_once, exactum.at_most_once])
@pytest.mark.parametrize(
    "keeps_state", [pytest.param(True, id="state", marks=pytest.mark.deep), False]
)
def test_a_decided_epoch_advances_the_state_by_the_rules_it_had(
    query: Any, rules: Rules, make: Any, keeps_state: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Decided, then crashed before Spark's commit log; meanwhile the topic lost the old rules and
    got others: the state advances by the old ones, as the rows that are visible did. Also where it
    is lost, and computed again."""
    caplog.set_level("INFO", "exactum")
    rules.write(e=2, o=2)
    stream = rules.stream()

    def run() -> str | None:
        batch = make(query.sink, control=stream, on_event=query.events.append)
        return query.run(batch, transform=summed(stream), mode="update")

    query.give(1, 2)
    assert run() is None
    assert query.values() == [2, 4]
    query.forget_last_commit()
    if not keeps_state:
        lose_version(query.checkpoint, 1)
    rules.forget()
    rules.write(e=100, o=100)
    query.give(1, 2)
    assert run() is None
    assert query.values() == [2, 4, 102, 204], "2 + 1 * 100 and 4 + 2 * 100"
    again = "gives the rows that stand" in caplog.text
    assert again == (make is exactum.exactly_once and not keeps_state)
    assert len(query.seen(events.EpochRedelivered)) == (make is exactum.exactly_once)


def test_an_undecided_epoch_is_run_again_with_the_rules_of_now(query: Any, rules: Rules) -> None:
    """One start is refused while the topic is still empty, one run fails within the epoch: nothing of it
    is visible, and nothing on record.
    """
    stream = rules.stream()
    query.give(1, 2)
    lacks_value = rules.broker.sink("out")
    refused = query.run(query.exactly_once(lacks_value, control=stream), transform=weighed(stream))
    check_query_error(refused, FrameRefused, "KAFKA_COLUMNS", "value")
    rules.write(e=2, o=2)
    broken = udf(lambda k: 1 // 0 if stream.current()["e"] == 2 else 0, "long")
    batch = query.exactly_once(control=stream)
    assert "division" in (
        query.run(batch, transform=lambda f: f.select("k", broken("k").alias("v"))) or ""
    )
    assert (query.values(), views(query)) == ([], [])
    rules.write(e=7, o=7)
    assert query.run(query.exactly_once(control=stream), transform=weighed(stream)) is None
    assert query.values() == [7, 14]


class Log(MemoryDecisionLog):
    """While ``is_down`` no epoch can be decided."""

    is_down = False

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        if self.is_down and record.decision is Decision.COMMIT:
            raise Unavailable("the log is down")
        return super().decide(record)


@pytest.mark.deep
def test_a_decision_names_the_rules_of_its_own_attempt(
    query: Any, rules: Rules, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that fails at its decision has put its rules on record. The next one sees newer
    ones; and so does the epoch where it is computed once more, by yet other rules of now."""
    caplog.set_level("INFO", "exactum")
    stream, query_id = rules.stream(), str(uuid.uuid4())
    query.checkpoint.mkdir()
    (query.checkpoint / "metadata").write_text(json.dumps({"id": query_id}))  # as Spark makes it
    log = Log(MemoryStorage(), query_id)

    def run() -> str | None:
        batch = query.exactly_once(control=stream, decision_log=log)
        return query.run(batch, transform=summed(stream), mode="update")

    query.give(1, 2)
    log.is_down = True
    rules.write(e=2, o=2)
    check_query_error(run(), Unavailable, "the log is down")
    assert (query.values(), len(views(query))) == ([], 1)
    log.is_down = False
    rules.write(e=7, o=7)
    assert run() is None
    assert (query.values(), len(views(query))) == ([7, 14], 2)
    query.forget_last_commit()
    lose_version(query.checkpoint, 1)
    rules.write(e=100, o=100)
    query.give(1, 2)
    assert run() is None
    assert query.values() == [7, 14, 107, 214]
    assert "epoch 0 gives the rows that stand" in caplog.text


def test_a_repeated_batch_sees_newer_rules_at_least_once(query: Any, rules: Rules) -> None:
    """It is written twice, each time by the rules of then."""
    stream = rules.stream()
    query.give(1, 2)
    for weight in (2, 7):
        rules.write(e=weight, o=weight)
        batch = exactum.at_least_once(query.sink, control=stream)
        assert query.run(batch, transform=weighed(stream)) is None
        query.forget_last_commit()
    assert set(query.values()) == {2, 4, 7, 14}


@pytest.mark.variants(1)
@pytest.mark.parametrize("make", [exactum.exactly_once, exactum.at_least_once])
def test_rules_that_were_lost_before_they_were_read(
    query: Any, rules: Rules, make: Any, tmp_path: Path
) -> None:
    """Refused: a decided epoch has read less far than the topic now begins. How far that is goes along
    with a query that moves.
    """
    rules.write(e=1, o=1)
    query.give(1)
    assert query.run(make(query.sink, control=rules.stream())) is None
    create(str(query.checkpoint), tmp_path / "savepoint")
    query.checkpoint = tmp_path / "moved"
    restore(tmp_path / "savepoint", str(query.checkpoint), Identity.SAME)
    rules.write(e=2, o=2)
    rules.forget()
    query.give(2)
    batch = make(query.sink, control=rules.stream())
    check_query_error(query.run(batch), CheckpointRefused, "CONTROL_RETENTION", rules.topic)
    assert isinstance(query.error, CheckpointRefused)
    assert query.values() == [1]


def test_stages_that_spark_runs_ahead_have_no_rules(query: Any, rules: Rules, spark: Any) -> None:
    """Those before a shuffle, from Spark 4.1 on, by the time exactum is called. They would have the
    rules of the micro-batch before, also within one run. The error says what helps.
    """
    rules.write(e=2, o=2)
    stream = rules.stream()

    def shuffled(frame: DataFrame) -> DataFrame:
        return weighed(stream)(frame.where("v > 1")).repartition(2, "k")

    query.give(1)  # of which no row is left
    query.give(2, 3)
    error = query.run(query.exactly_once(control=stream), transform=shuffled) or ""
    option = "spark.sql.adaptive.streaming.stateless.enabled=false"
    check_query_error(error, SettingRefused, "CONTROL_OUTSIDE", option)
    assert len(query.seen(events.EpochCompleted)) == 1
    assert query.values() == []
    with configured(spark, {"spark.sql.adaptive.streaming.stateless.enabled": "false"}):
        assert query.run(query.exactly_once(control=stream), transform=shuffled) is None
    assert query.values() == [4, 6]


@pytest.mark.deep
def test_records_of_long_past_epochs_are_forgotten(query: Any, rules: Rules, spark: Any) -> None:
    """A view is on record once, as long as rules do not change, and while Spark may ask for an
    epoch that saw it."""
    rules.write(e=1, o=1)
    stream = rules.stream()
    changed = []

    def changing(batch: DataFrame) -> DataFrame:
        if len(changed) < 19:
            changed.append(rules.write(e=len(changed)))
        return batch

    with configured(spark, {"spark.sql.streaming.minBatchesToRetain": "2"}):
        query.give(1, batches=19)
        sink = replace(query.sink, rows=changing)
        assert query.run(query.exactly_once(sink, control=stream)) is None
        assert len(views(query)) == 19
        query.give(1, batches=25)
        assert query.run(query.exactly_once(control=stream)) is None
    (view,) = views(query)
    assert view.name.startswith(f"{18:020d}-")
    assert json.loads(view.read_text())["pairs"] == text_of({b"e": b"18", b"o": b"1"})


def test_a_rule_that_cannot_be_read_stops_the_query_once_and_clearly(
    query: Any, rules: Rules
) -> None:
    """An undecodable rule, one without a key, and too many of them: one error on the driver,
    nothing written.
    """
    query.give(1)
    for stream, write, facts in (
        (rules.stream(max_bytes=3), ("e", "1000"), ("CONTROL_SIZE", "max_bytes=3")),
        (rules.stream(value=lambda value: {}[value]), ("e", "1"), ("CONTROL_RULE", "KeyError")),
        (rules.stream(), (None, "1"), ("CONTROL_RULE", "b'1'", "partition")),
    ):
        rules.put(*write)
        batch = query.exactly_once(control=stream)
        check_query_error(query.run(batch), RowsRefused, *facts)
        check_error(query.error, RowsRefused, *facts)
    assert query.values() == []


def test_a_record_without_a_key_can_be_taken_back(query: Any, rules: Rules) -> None:
    """By one without key and value in its partition, as the error says. It never is a rule."""
    query.give(1)
    rules.write(e=2, o=2)
    stream = rules.stream()

    def run() -> str | None:
        return query.run(query.exactly_once(control=stream), transform=weighed(stream))

    for partition in (0, 1):
        rules.put(None, "3", partition)
    for partition in (0, 1):
        check_query_error(run(), RowsRefused, "CONTROL_RULE", f"partition {partition}")
        rules.put(None, None, partition)
    assert run() is None
    assert query.values() == [2]


def test_a_topic_made_anew_is_noticed_though_it_holds_as_much(
    query: Any, rules: Rules, kafka: LocalKafka
) -> None:
    """A topic that is missing is refused, for no rules is not the same as empty rules; what is
    decided is committed all the same. So is another one of the same name, with as many records and
    more, or another cluster behind the address.
    """
    rules.write(e=1, o=1)
    query.give(1)
    arm(query.out, "commit", kind="unavailable")
    assert query.run(query.exactly_once(control=rules.stream())) is not None
    assert (query.values(), query.values("staged")) == ([], [1])
    kafka.delete_topic(rules.topic)
    query.give(2)
    assert query.run(query.exactly_once(control=rules.stream())) is not None
    check_error(query.error, SettingRefused, "CONTROL_ACCESS", rules.topic)
    assert query.values() == [1]
    kafka.create_topic(rules.topic, partitions=2)
    rules.broker = Broker(kafka)  # with a producer that does not know the old one
    rules.write(e=2, o=2, more=3, and_more=4)
    batch = query.exactly_once(control=rules.stream())
    assert query.run(batch) is not None
    check_error(query.error, CheckpointRefused, "CONTROL_RECREATED", rules.topic)
    (path,) = views(query)
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "topic_id": None, "cluster_id": "another"})
    )
    batch = query.exactly_once(control=rules.stream())
    assert query.run(batch) is not None
    check_error(query.error, CheckpointRefused, "CONTROL_RECREATED", "another")
    assert query.values() == [1]


def test_a_rule_of_which_the_topic_has_no_trace_is_gone(query: Any, rules: Rules) -> None:
    """What an earlier run had seen is no rule any more where the topic does not have it: its
    removal was compacted.
    """
    stream, shown = rules.stream(), []
    sink = replace(query.sink, rows=lambda batch: (shown.append(set(stream.current())), batch)[1])
    rules.write(bob=1)
    query.give(1)
    assert query.run(query.exactly_once(sink, control=stream)) is None
    (newest,) = views(query)
    pairs = text_of({b"bob": b"1", b"alice": b"1"})
    newest.write_text(json.dumps({**json.loads(newest.read_text()), "pairs": pairs}))
    query.give(2)
    assert query.run(query.exactly_once(sink, control=stream)) is None
    assert shown[-1] == {"bob"}


def test_one_stream_in_two_queries(query: Any, rules: Rules, spark: Any, tmp_path: Path) -> None:
    """Each query's rows=, which runs on the driver, sees what its own epoch sees, though the other began
    later and saw other rules.
    """
    (tmp_path / "other").mkdir()
    other, stream = type(query)(spark, tmp_path / "other"), rules.stream()
    began, may_go_on = threading.Event(), threading.Event()
    shown: dict[str, int] = {}

    def slow(batch: DataFrame) -> DataFrame:
        if "slow" in shown:  # the first call is the start's, for the columns
            began.set()
            assert may_go_on.wait(WAIT_MAX_S)
        shown["slow"] = stream.current()["limit"]
        return batch

    def quick(batch: DataFrame) -> DataFrame:
        shown["quick"] = stream.current()["limit"]
        return batch

    rules.write(limit=1)
    query.give(1)
    other.give(2)
    first = query.start(query.exactly_once(replace(query.sink, rows=slow), control=stream))
    assert began.wait(WAIT_MAX_S)
    rules.write(limit=2)
    assert other.run(other.exactly_once(replace(other.sink, rows=quick), control=stream)) is None
    may_go_on.set()
    assert first.awaitTermination(WAIT_MAX_S)
    assert shown == {"slow": 1, "quick": 2}


@pytest.mark.deep
def test_the_highest_partition_counts_whenever_it_was_written(
    query: Any, rules: Rules, spark: Any, tmp_path: Path
) -> None:
    """A query that saw the partitions' values one after the other has the rules of one that
    begins later.
    """
    (tmp_path / "later").mkdir()
    later, stream = type(query)(spark, tmp_path / "later"), rules.stream()
    rules.put("e", "10", partition=1)
    rules.put("o", "10", partition=1)
    query.give(1)
    assert query.run(query.exactly_once(control=stream), transform=weighed(stream)) is None
    rules.put("o", "20", partition=0)
    query.give(3)
    later.give(3)
    for one in (query, later):
        assert one.run(one.exactly_once(control=stream), transform=weighed(stream)) is None
    assert (query.values(), later.values()) == ([10, 30], [30])


def test_what_cannot_be_is_refused(query: Any, rules: Rules) -> None:
    """Its arguments: tests/abuse/test_arguments.py."""
    with raised(SettingRefused, "CONTROL_OUTSIDE"):
        rules.stream().current()
    # What tasks are given goes by the topic's name, so one query has one stream of a name.
    with raised(SettingRefused, "CONTROL_ARGUMENT", "2 streams", f"'{rules.topic}'"):
        query.exactly_once(control=[rules.stream(), rules.stream()])
