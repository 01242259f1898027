"""What is concluded from a look at a topic, for the batch that was planned before, without a
cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from exactum.checkpoint.query_record import KnownTopic, record_of
from exactum.errors import CheckpointRefused
from exactum.kafka.requests import EARLIEST, TopicSeen
from exactum.spark.live import RunningSource, SourceRange
from exactum.spark.source import watched_source
from exactum.spark.source.watched_source import WatchedSource
from exactum.storage.folder import Folder
from tests.kit.errors import raised
from tests.kit.query_record import note
from tests.kit.waiting import WAIT_MAX_S

SOURCE = RunningSource(0, 0, "kafkatable", {"subscribe": "t"}, "sources/0")
QUERY: Any = "query q"


class Cluster:
    """Its answers about the topic ``t``, one after another; the last one holds."""

    def __init__(self, *answers: TopicSeen | None) -> None:
        self.answers = list(answers)

    def topics(self, names: list[str], **_: bool) -> dict[str, TopicSeen]:
        now = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {} if now is None else dict.fromkeys(names, now)

    def offsets(self, partitions: Any, at: str, **_: Any) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0 if at == EARLIEST else 100)


def planned(begins: dict[int, int], ends: dict[int, int]) -> SourceRange:
    return SourceRange(
        {("t", p): o for p, o in begins.items()}, {("t", p): o for p, o in ends.items()}
    )


def watched(
    folder: Path, cluster: Cluster, known: TopicSeen | None, of: RunningSource = SOURCE
) -> WatchedSource:
    if known is not None:
        note(folder, "q", topics={"0": {"t": KnownTopic(known.topic_id, known.partitions)}})
    requests: Any = cluster
    return WatchedSource(QUERY, of, requests, record_of(Folder(folder), "q"))


GROWS = planned({0: 5}, {0: 5, 1: 1})


@pytest.mark.parametrize(
    ("known", "now", "refused"),
    [
        (("a", 1), [("a", 2)], None),
        (("a", 1), [("a", 1)], None),  # the broker that answers has not heard of it yet
        (("a", 1), [("b", 2)], ("TOPIC_CHANGED", "'t'", "a", "b")),
        (("a", 1), [None], ("TOPIC_GONE", "'t'")),
        (("a", 1), [None, ("a", 2)], None),
        ((None, 1), [(None, 2)], None),
        ((None, 1), [(None, 1)], ("TOPIC_CHANGED", "'t'", 1, 1)),
        ((None, 1), [(None, 1), (None, 2)], None),
        (None, [("a", 1)], ("TOPIC_CHANGED", "'t'", 1, 1)),
        (None, [("a", 1), ("a", 2)], None),
    ],
)
def test_a_partition_that_is_new(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    known: Any,
    now: list[Any],
    refused: tuple[object, ...] | None,
) -> None:
    """More partitions of the topic with the same id are more partitions, whatever a broker says that
    hears of them late.
    """
    monkeypatch.setattr(watched_source, "SURE_AFTER_S", WAIT_MAX_S if len(now) > 1 else 0.0)
    monkeypatch.setattr(watched_source, "SURE_PAUSE_S", 0.01)
    cluster = Cluster(*(None if own is None else TopicSeen(*own) for own in now))
    source = watched(tmp_path, cluster, None if known is None else TopicSeen(*known))
    if refused is None:
        source.check(GROWS)
        assert source.differs(GROWS)
        assert not source.differs(GROWS.rest())
    else:
        with raised(CheckpointRefused, *refused):
            source.check(GROWS)


def test_what_spark_goes_on_without(tmp_path: Path) -> None:
    """Where losses are accepted, a query goes on without a topic that it does not see. One that
    comes back is read again if it is the one that it was.
    """
    options = {"subscribe": "t,u", "failOnDataLoss": "false"}
    accepts = RunningSource(0, 0, "kafkatable", options, "sources/0")
    other = ("u", 0)
    both, without = {("t", 0): 5, other: 1}, {other: 1}
    source = watched(tmp_path, Cluster(TopicSeen("a", 1)), TopicSeen("a", 1), accepts)
    source.check(SourceRange(both, both))
    source.check(SourceRange(both, without))
    source.check(SourceRange(without, both))
    source = watched(tmp_path, Cluster(TopicSeen("c", 1)), None, accepts)
    with raised(CheckpointRefused, "TOPIC_CHANGED", "'t'", "a", "c"):
        source.check(SourceRange(without, both))
