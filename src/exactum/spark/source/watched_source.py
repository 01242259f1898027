"""One Kafka source of a running query, and what the cluster says about its topics now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from exactum.checkpoint.partition_offsets import Offsets, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.kafka.requests.topic_requests import EARLIEST, LATEST, TopicRequests, TopicSeen
from exactum.spark.query import RunningQuery
from exactum.spark.source.kafka_options import reads_committed
from exactum.spark.source.query_sources import RunningSource, losses_refused
from exactum.spark.source.record import SourceRecord
from exactum.spark.source.source_options import SourceOptions
from exactum.spark.source.subscription import Subscription

logger = logging.getLogger("exactum")

_NEW = (
    "Start a new query with a checkpoint location of its own; there start= says where it begins. "
    "Nothing of this batch was written."
)


@dataclass(frozen=True)
class Look:
    """What was seen at one moment: topics by name, where partitions begin, and their two ends (the
    last stable offset only where the source reads committed records).
    """

    topics: Mapping[str, TopicSeen]
    beginnings: Offsets
    last_stable_offsets: Offsets
    high_watermarks: Offsets


class WatchedSource:
    """Compares what is read with what was read: the same topics, with the records that come next
    still there.

    Raises:
        CheckpointRefused: what the checkpoint has on record about the source cannot be read.
    """

    def __init__(
        self,
        running: RunningQuery,
        source: RunningSource,
        requests: TopicRequests,
        record: SourceRecord | None,
    ) -> None:
        self.source = source
        self.chosen = SourceOptions.of(source.options)
        self.read_committed = reads_committed(source.options)
        self._requests = requests
        self._running = running
        self._record = record
        self._known: dict[str, TopicSeen] = {} if record is None else record.topics()
        self._subscribed = Subscription.of(source.options)
        self._losses_refused = losses_refused(source)
        self._losses_told: set[str] = set()
        self._gone: set[str] = set()

    def topics(self) -> dict[str, TopicSeen]:
        """The topics that are there now.

        Raises:
            Unavailable, SettingRefused: see ``TopicRequests``.
        """
        return self._subscribed.seen(self._requests)

    def look(self, topics: Mapping[str, TopicSeen]) -> Look:
        """Where the partitions of these topics begin and end.

        Raises:
            Unavailable, SettingRefused: see ``TopicRequests``.
        """
        partitions = [
            p for p in self._subscribed.partitions(topics) if p[1] < topics[p[0]].partitions
        ]
        beginnings = self._requests.offsets(partitions, EARLIEST, read_committed=False)
        # Before the last stable offsets: what is appended in between is not behind a transaction.
        marks = self._requests.offsets(partitions, LATEST, read_committed=False)
        stable = (
            self._requests.offsets(partitions, LATEST, read_committed=True)
            if self.read_committed
            else {}
        )
        return Look(topics, beginnings, stable, marks)

    def changed(self, topics: Mapping[str, TopicSeen]) -> str | None:
        """Why these topics are not those that the query has read; None: they are."""
        for name, known in sorted(self._known.items()):
            now = topics.get(name)
            if now is None and self._subscribed.reads(name) and not self._may_go(name):
                return (
                    f"{self._running}: the topic {name!r}, which it has read, does not exist any "
                    "more (or the user lacks DESCRIBE on it). Restore the topic or the right. Or: "
                    f"{_NEW}"
                )
            if (
                now is not None
                and None not in (known.topic_id, now.topic_id)
                and known.topic_id != now.topic_id
            ):
                return (
                    f"{self._running}: the topic {name!r} was deleted and made anew since the "
                    "checkpoint began to read it, or this is another cluster (topic id "
                    f"{known.topic_id} then, {now.topic_id} now). The checkpoint's offsets belong "
                    "to the old one; to go on with them would leave out records of the new one. "
                    f"{_NEW}"
                )
        return None

    def misses_any(self, topics: Mapping[str, TopicSeen]) -> bool:
        """Whether a topic that was read is not among these, or is another one."""
        return self.changed(topics) is not None or any(
            n not in topics and n not in self._gone and self._subscribed.reads(n)
            for n in self._known
        )

    def newly_gone(self, topics: Mapping[str, TopicSeen]) -> list[str]:
        """Topics that were read and do not exist any more, with which the user can do; each is told
        once a run.
        """
        gone = {
            n
            for n in self._known
            if n not in topics and self._subscribed.reads(n) and self._may_go(n)
        }
        new = sorted(gone - self._gone)
        self._gone |= gone
        return new

    def _may_go(self, name: str) -> bool:
        """Whether the query can go on without the topic: it was found by a pattern, and losses are
        accepted.
        """
        return self._subscribed.pattern is not None and not self._losses_refused

    def check(self, look: Look, start: str | None, end: str | None) -> None:
        """Refuse a batch (its offsets in Spark's JSON) that the topics do not have any more.

        Topics that are read for the first time are put on record, and those that are read no more.

        Raises:
            CheckpointRefused: a topic has fewer partitions, was read before and left out since, or
                records that come next are gone and ``failOnDataLoss`` is not false.
        """
        begins, ends = from_json(start), from_json(end)
        self._forget_gone({topic for topic, _ in (*begins, *ends)})
        self._refuse_left_out({topic for topic, _ in begins}, {topic for topic, _ in ends})
        for topic in sorted({topic for topic, _ in ends} & look.topics.keys()):
            highest, now = (
                max(index for name, index in ends if name == topic),
                look.topics[topic].partitions,
            )
            if highest >= now:
                raise CheckpointRefused(
                    f"{self._running}: the topic {topic!r} has {now} partitions now, but the "
                    f"checkpoint has read partition {highest}: it is not the topic that it was. "
                    f"{_NEW}"
                )
            if topic not in self._known:
                self._known[topic] = look.topics[topic]
                if self._record is not None:
                    self._record.add_topic(topic, look.topics[topic])
        for partition, offset in sorted(begins.items()):
            beginning = look.beginnings.get(partition, 0)
            if beginning > offset:
                self._lost(
                    f"{name_of(partition)} begins at {beginning} now, but the next offset to read "
                    f"is {offset}: the {beginning - offset} offsets between were deleted, by "
                    "retention or by an operator, before they were read"
                )

    def _refuse_left_out(self, begins: set[str], ends: set[str]) -> None:
        """Of a topic that it does not know from the batch before, Spark reads all, as of a new one.
        Without failOnDataLoss=False it refuses by itself to go on without a topic.
        """
        if self._record is None or not ends:
            return
        for name in sorted(self._known.keys() - self._gone):
            mark = self._record.left_out_file(name)
            if name not in ends:
                if not mark.exists():
                    self._record.leave_out(name)
            elif name not in begins and mark.exists():
                raise CheckpointRefused(
                    f"{self._running}: it has read the topic {name!r}, then went on without it, "
                    "and is to read it again. Spark has forgotten how far it was: it would begin "
                    "at the first record, and write each once more. Read "
                    f"{name!r} with a query and a checkpointLocation of its own, from where this "
                    "one was. To go on without it, remove the planned batch (docs/misuse.md: "
                    f"another topic). If nothing of it was ever written, remove {mark} and the "
                    f"files {name}+*.json beside it. Nothing of this batch was written."
                )

    def _forget_gone(self, named: set[str]) -> None:
        """Take gone topics off the record once Spark's offsets do not name them any more. Until
        then a topic that comes back under the name of one would be read from the old one's offsets,
        and is refused.
        """
        for name in sorted(self._gone - named):
            self._gone.discard(name)
            self._known.pop(name, None)
            if self._record is not None:
                self._record.forget_topic(name)

    def _lost(self, what: str) -> None:
        if self._losses_refused:
            raise CheckpointRefused(
                f"{self._running}: {what}. To go on without them, say failOnDataLoss=False in "
                "read_kafka; and give the topic a longer retention. Nothing of this batch was "
                "written."
            )
        if what not in self._losses_told:
            self._losses_told.add(what)
            logger.warning(
                "%s: %s; failOnDataLoss=false, so the query goes on without them",
                self._running,
                what,
            )
