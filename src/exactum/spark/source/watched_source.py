"""One Kafka source of a running query, and what the cluster says about its topics now."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from msgspec.structs import replace

from exactum.checkpoint.offset_log import name_of
from exactum.checkpoint.query_record import KnownTopic, QueryRecord, RecordFile
from exactum.errors import CheckpointRefused
from exactum.kafka.requests import EARLIEST, LATEST, BrokerRequests, TopicSeen
from exactum.spark.live import RunningSource, SourceRange
from exactum.spark.query import Run
from exactum.spark.source.lag import SourceLag, StallTracker, TopicState
from exactum.spark.source.options import SourceOptions

logger = logging.getLogger("exactum")

SURE_AFTER_S = 4.0
"""How long a topic that was read must be away, or another one, before it is taken for gone."""
SURE_PAUSE_S = 0.4

_NEW = (
    "Start a new query with a checkpoint location of its own; there start= says where it begins. "
    "Nothing more was written."
)


class WatchedSource:
    """Compares what is read with what was read: the same topics, with the records that come next
    still there. A topic stays on ``record`` while it seems to be deleted, or is hidden from this
    user: the id tells, when it is there again.
    """

    def __init__(
        self, run: Run, source: RunningSource, requests: BrokerRequests, record: RecordFile
    ) -> None:
        self.source = source
        self.chosen = SourceOptions.of(source.options)
        self.requests = requests
        self.lag = SourceLag(self.chosen.read_committed, self.chosen.stop)
        self.stalls = StallTracker()
        self._run = run
        self._record = record
        self._number = "" if source.metadata is None else source.metadata.rpartition("/")[2]
        self._known = dict(record.content.topics.get(self._number, {}))
        self._subscribed = self.chosen.subscription
        self._losses_refused = source.refuses("failOnDataLoss")
        self._losses_reported: set[str] = set()
        self._checking = threading.Lock()

    def differs(self, planned: SourceRange) -> bool:
        """Whether the batch reads other partitions than the one before, or a topic that nobody has
        seen yet.
        """
        return planned.ends.keys() != planned.begins.keys() or any(
            topic not in self._known for topic, _ in planned.ends
        )

    def check(self, planned: SourceRange) -> TopicState:
        """Ask the cluster about the topics, and compare what it says with a batch: that is planned
        by now, so no answer is older than it. Topics that are read for the first time are put on
        record.

        Raises:
            CheckpointRefused: a topic is another one, has fewer partitions, or records that come
                next are gone and ``failOnDataLoss`` is not false.
            Unavailable, SettingRefused: see ``BrokerRequests``.
        """
        with self._checking:  # a topic that another thread puts on record may be newer than ours
            state = self._seen(planned)
            self._compare(planned, state)
        return state

    def refuse_others(self, planned: SourceRange) -> None:
        """Ask whether the topics are those on record, before a batch is planned behind this
        range: a query that finds nothing new has none.

        Raises:
            CheckpointRefused: a topic is another one, gone, or has fewer partitions.
            Unavailable, SettingRefused: see ``BrokerRequests``.
        """
        if not self._known:
            return
        changed = self._changed(planned, self._sure_topics(planned))
        if changed is not None:
            raise changed

    def _sure_topics(self, planned: SourceRange) -> dict[str, TopicSeen]:
        """What would stop the query for good is asked again for some seconds: a broker that has
        just started, or hears of a change late, calls a topic unknown that is there.
        """
        topics = self._subscribed.seen(self.requests)
        deadline_s = time.monotonic() + SURE_AFTER_S  # the first answer may take longer than that
        while self._in_doubt(planned, topics) and time.monotonic() < deadline_s:
            time.sleep(SURE_PAUSE_S)
            topics = self._subscribed.seen(self.requests)
        return topics

    def _seen(self, planned: SourceRange) -> TopicState:
        topics = self._sure_topics(planned)
        partitions = [
            p for p in self._subscribed.partitions(topics) if p[1] < topics[p[0]].partitions
        ]
        beginnings = self.requests.offsets(partitions, EARLIEST, read_committed=False)
        # Before the last stable offsets: what is appended in between is not behind a transaction.
        marks = self.requests.offsets(partitions, LATEST, read_committed=False)
        stable = (
            self.requests.offsets(partitions, LATEST, read_committed=True)
            if self.chosen.read_committed
            else {}
        )
        return TopicState(topics, beginnings, stable, marks)

    def _compare(self, planned: SourceRange, state: TopicState) -> None:
        changed = self._changed(planned, state.topics)
        if changed is not None:
            raise changed
        for topic in {
            topic for topic, _ in planned.ends
        } & state.topics.keys() - self._known.keys():
            seen = state.topics[topic]
            self._known[topic] = KnownTopic(seen.topic_id, seen.partitions)
        self._put_on_record()
        for partition, offset in sorted(planned.begins.items()):
            beginning = state.beginnings.get(partition, 0)
            if beginning > offset:
                self._lost(
                    f"{name_of(partition)} begins at {beginning} now, but the next offset to read "
                    f"is {offset}: the {beginning - offset} offsets between were deleted, by "
                    "retention or by an operator"
                )

    def _put_on_record(self) -> None:
        """What is read for the first time, before it is read.

        Raises:
            ExactumError: as ``RecordFile.change``.
        """
        if not self._number:
            return
        known = dict(self._known)

        def changed(record: QueryRecord) -> QueryRecord:
            topics = {**record.topics.get(self._number, {}), **known}
            return replace(record, topics={**record.topics, self._number: topics})

        self._record.change(changed)

    def _in_doubt(self, planned: SourceRange, topics: Mapping[str, TopicSeen]) -> bool:
        """Whether a topic that was read is not among these, or is another one."""
        return self._changed(planned, topics) is not None or any(
            name not in topics and self._subscribed.reads(name) and not self._may_go
            for name, _ in planned.ends
        )

    def _changed(
        self, planned: SourceRange, topics: Mapping[str, TopicSeen]
    ) -> CheckpointRefused | None:
        """Why these topics are not those that the query has read; None: they are."""
        for name, known in sorted(self._known.items()):
            now = topics.get(name)
            if now is None and self._subscribed.reads(name) and not self._may_go:
                return CheckpointRefused(
                    "TOPIC_GONE",
                    f"{self._run}: the topic {name!r}, which it has read, does not exist any "
                    "more (or the user lacks DESCRIBE on it). Restore the topic or the right. Or: "
                    f"{_NEW}",
                )
            if now is not None and _is_another(known, now):
                return CheckpointRefused(
                    "TOPIC_CHANGED",
                    f"{self._run}: the topic {name!r} was deleted and made anew since the "
                    "checkpoint began to read it, or this is another cluster (topic id "
                    f"{known.topic_id} then, {now.topic_id} now). The checkpoint's offsets belong "
                    "to the old one; to go on with them would leave out records of the new one. "
                    f"{_NEW}",
                )
        for (name, index), now in ((p, topics.get(p[0])) for p in sorted(planned.ends)):
            # One with the same id has as many or more: a broker that names fewer is behind.
            if now is not None and index >= now.partitions and not self._is_known(name, now):
                return CheckpointRefused(
                    "TOPIC_CHANGED",
                    f"{self._run}: the topic {name!r} has {now.partitions} partitions now, "
                    f"but the checkpoint has read partition {index}: it is not the topic that it "
                    f"was. {_NEW}",
                )
        return None

    def _is_known(self, name: str, now: TopicSeen) -> bool:
        """Whether it is for sure the topic that was read."""
        known = self._known.get(name)
        return known is not None and known.topic_id is not None and known.topic_id == now.topic_id

    @property
    def _may_go(self) -> bool:
        """Whether the query can go on without a topic: it was found by a pattern, and losses are
        accepted.
        """
        return self._subscribed.pattern is not None and not self._losses_refused

    def _lost(self, what: str) -> None:
        if self._losses_refused:
            raise CheckpointRefused(
                "RECORDS_LOST",
                f"{self._run}: {what}. To go on without them, say failOnDataLoss=False in "
                "read_kafka; and give the topic a longer retention. Nothing more was written.",
            )
        if what not in self._losses_reported:
            self._losses_reported.add(what)
            logger.warning(
                "%s: %s; failOnDataLoss=false, so the query goes on without them",
                self._run,
                what,
            )


def _is_another(known: KnownTopic, now: TopicSeen) -> bool:
    """Whether it is for sure another topic of the same name."""
    return None not in (known.topic_id, now.topic_id) and known.topic_id != now.topic_id
