"""What is concluded from the offsets of batches about topics and partitions that were away, without
a cluster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactum.errors import CheckpointRefused, Unavailable
from exactum.kafka.requests.topic_requests import TopicSeen
from exactum.protocol.model import SourceOffsets
from exactum.spark.epoch_listener import Batch
from exactum.spark.source import watched_source
from exactum.spark.source.partition_guard import PartitionGuard
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.watched_source import SourceRange, WatchedSource

OPTIONS = {"subscribePattern": "t.*", "failOnDataLoss": "false"}
SOURCE = RunningSource(0, 0, "kafkatable", OPTIONS, "sources/0")
QUERY: Any = "query q"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would stop a query for good is not asked again for some seconds."""
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", 0.0)


def batch(batch_id: int, begins: dict[str, Any], ends: dict[str, Any]) -> Batch:
    offsets = SourceOffsets((json.dumps(begins),), (json.dumps(ends),))
    return Batch(batch_id, offsets, first=batch_id == 0)


FIRST = batch(0, {"t1": {"0": 1}, "t2": {"0": 4}}, {"t1": {"0": 3}, "t2": {"0": 7}})
WITHOUT = batch(1, {"t1": {"0": 3}, "t2": {"0": 7}}, {"t1": {"0": 5}})
AND_ON = batch(2, {"t1": {"0": 5}}, {"t1": {"0": 6}})
BACK = batch(3, {"t1": {"0": 6}}, {"t1": {"0": 8}, "t2": {"0": 9}})


class Query:
    """Both that look after one source, each batch by a run of its own. ``seen`` is what the cluster
    says of t2 to this user.
    """

    def __init__(self, folder: Path, seen: TopicSeen | None) -> None:
        self.record = SourceRecord(folder / "0")
        self.seen = seen
        self.gone: list[str] = []

    def describe(self, names: list[str]) -> dict[str, TopicSeen]:
        there = {"t1": TopicSeen("one", 1), "t2": self.seen}
        return {name: its for name in names if (its := there[name]) is not None}

    def topic_names(self) -> list[str]:
        return ["t1", "t2"]

    def offsets(self, *_: Any, **__: Any) -> dict[Any, int]:
        return {}

    def run(self, planned: Batch, look: bool = True) -> None:
        requests: Any = self
        watched = WatchedSource(QUERY, SOURCE, requests, self.record)
        its = SourceRange.of(planned.offsets, 0)
        if look:
            self.gone += watched.newly_gone(watched.look(its).topics)
        watched.take_up(its)
        PartitionGuard(QUERY, [(SOURCE, self.record)]).begin(
            Batch(planned.batch_id, planned.offsets, first=True)
        )


def that_went_on_without(folder: Path, topic_id: str | None) -> Query:
    """It has read t2, of this id, then two batches in which nobody saw that."""
    query = Query(folder, TopicSeen(topic_id, 1))
    query.run(FIRST)
    query.seen = None
    query.run(WITHOUT)
    query.run(AND_ON)
    return query


def test_a_topic_that_is_away_for_one_batch(tmp_path: Path) -> None:
    """A broker leaves a topic of a pattern out of its list once: Spark forgets how far it was, and
    would read it from its first record in the next batch. Nobody asked the cluster in between.
    """
    guard = PartitionGuard(QUERY, [(SOURCE, SourceRecord(tmp_path / "0"))])
    guard.begin(FIRST)
    guard.begin(WITHOUT)
    with pytest.raises(CheckpointRefused, match="it has read t2-0 up to 7, then went on without"):
        guard.begin(batch(2, {"t1": {"0": 5}}, {"t1": {"0": 6}, "t2": {"0": 9}}))


@pytest.mark.parametrize(("was", "now"), [("two", "two"), (None, "two"), ("two", None)])
def test_a_topic_that_was_hidden_is_not_a_new_one(
    tmp_path: Path, was: str | None, now: str | None
) -> None:
    """Its user lost DESCRIBE for a night, and has it again. Kafka hides such a topic as if it were
    deleted.
    """
    query = that_went_on_without(tmp_path, was)
    assert query.gone == ["t2"]
    query.run(batch(3, {"t1": {"0": 6}}, {"t1": {"0": 6}}))
    assert query.gone == ["t2"], "told once"
    query.seen = TopicSeen(now, 1)
    for _ in range(2):
        with pytest.raises(CheckpointRefused, match=r"it has read t2-0 up to 7, .*\{'t2': \{0: 7"):
            query.run(BACK)


def test_a_topic_that_is_read_again_and_is_not_seen(tmp_path: Path) -> None:
    """Nobody can tell which topic it is, and so not which offsets are to be named."""
    query = that_went_on_without(tmp_path, "two")
    with pytest.raises(Unavailable, match="whether it is the one that was read"):
        query.run(BACK)
    query.seen = TopicSeen("another", 1)
    query.run(BACK)
    assert query.record.topics()["t2"] == TopicSeen("another", 1)


@pytest.mark.parametrize("looked", [True, False], ids=["looked", "nobody looked"])
def test_a_topic_made_anew_after_one_batch_without_it(tmp_path: Path, looked: bool) -> None:
    """It is read from its first record, whether or not somebody asked the cluster in that batch."""
    query = Query(tmp_path, TopicSeen("two", 1))
    query.run(FIRST)
    if looked:
        query.seen = None
        query.run(WITHOUT)
    else:
        query.run(WITHOUT, look=False)
    assert query.record.left_out_topics() == {"t2"}
    assert query.record.left_out_partitions() == {("t2", 0): 7}
    query.seen = TopicSeen("another", 1)
    query.run(batch(2, {"t1": {"0": 5}}, {"t1": {"0": 6}, "t2": {"0": 9}}))
    assert query.record.topics()["t2"] == TopicSeen("another", 1)
    assert (query.record.left_out_topics(), query.record.left_out_partitions()) == (set(), {})


def test_a_topic_of_the_name_of_a_deleted_one(tmp_path: Path) -> None:
    """Another id: it is read from its first record, and is the known one from there on."""
    query = that_went_on_without(tmp_path, "two")
    query.seen = TopicSeen("another", 1)
    query.run(BACK)
    assert query.record.topics()["t2"] == TopicSeen("another", 1)
    assert (query.record.left_out_topics(), query.record.left_out_partitions()) == (set(), {})
    query.seen = None
    query.run(batch(4, {"t1": {"0": 8}, "t2": {"0": 9}}, {"t1": {"0": 9}}))
    query.seen = TopicSeen("another", 1)
    with pytest.raises(CheckpointRefused, match="it has read t2-0 up to 9, then went on without"):
        query.run(batch(5, {"t1": {"0": 9}}, {"t1": {"0": 9}, "t2": {"0": 9}}))


def test_a_batch_without_a_topic_that_was_never_written(tmp_path: Path) -> None:
    """Its planned batch was removed, and the next one goes on with the topic: it is watched as
    before.
    """
    query = Query(tmp_path, TopicSeen("two", 1))
    query.run(FIRST)
    query.run(WITHOUT)
    assert query.record.left_out_topics() == {"t2"}
    query.run(batch(1, {"t1": {"0": 3}, "t2": {"0": 7}}, {"t1": {"0": 5}, "t2": {"0": 8}}))
    assert (query.record.left_out_topics(), query.record.left_out_partitions()) == (set(), {})
    query.seen = TopicSeen("another", 1)
    with pytest.raises(CheckpointRefused, match="made anew"):
        query.run(batch(2, {"t1": {"0": 5}, "t2": {"0": 8}}, {"t1": {"0": 5}, "t2": {"0": 9}}))
