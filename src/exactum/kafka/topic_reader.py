"""What readers see of a topic: a range of a partition, a small topic read whole and in steps (up to
offsets that the caller names, no further), and a topic's dead letters.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.requests import EARLIEST, LATEST, TopicRequests
from exactum.kafka.settings import Settings, as_texts
from exactum.kafka.topic import TopicIdentity
from exactum.kafka.transaction import Partition
from exactum.protocol.dead_letter import DeadLetter, number

# ---- a range of a partition ------------------------------------------------------------------


_client_log = logging.getLogger("exactum.kafka")

READ_TIMEOUT_S = 30.0
POLL_S = 0.1
MESSAGES_MAX = 10_000
"""Taken at once of those that have come already."""
END_WAIT_MS = 10
"""How long the broker keeps the answer that there is nothing more."""


class NotReadable(Exception):
    """The brokers refuse to give a range. The message is their reason, ``failure`` its kind."""

    def __init__(self, reason: str, failure: KafkaFailure) -> None:
        super().__init__(reason)
        self.failure = failure


class RangeGone(NotReadable):
    """Nothing is at its begin: retention took it, or the topic was made anew or deleted."""


class CommittedRecords:
    """Of one cluster: records of committed transactions, and of none. No offsets of a group are
    kept. One thread, one range at a time; closed by its owner.
    """

    def __init__(self, settings: Mapping[str, str], group: str, where: str) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``. ``group``: librdkafka demands
        one, and asks for its coordinator.

        Raises:
            SettingRefused: librdkafka does not take the settings.
        """
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": END_WAIT_MS,
        }
        try:
            self._consumer = Consumer({**settings, **own}, logger=_client_log)
        except KafkaException as error:
            raise SettingRefused(
                "KAFKA_SETTING",
                f"{where}: librdkafka refuses its settings: {error.args[0].str()}",
            ) from error

    def close(self) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> list[Partition]:
        """
        Raises:
            Unavailable: the brokers did not answer for 30 s, or do not name them.
        """
        try:
            found = self._consumer.list_topics(topic, timeout=READ_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise Unavailable(f"The topic {topic!r}: {error.args[0].str()}.") from error
        if found.error is not None:
            raise Unavailable(f"The topic {topic!r}: {found.error.str()}.")
        return [(topic, index) for index in sorted(found.partitions)]

    def read(
        self, partition: Partition, since: int = OFFSET_BEGINNING, until: int | None = None
    ) -> Iterator[Message]:
        """Those from ``since`` to before ``until``, which is waited for; None: to the end that the
        partition has.

        Raises:
            NotReadable: also in the midst of it.
            Unavailable: nothing came for 30 s.
        """
        topic, index = partition
        self._consumer.assign([TopicPartition(topic, index, since)])
        try:
            yield from self._read(partition, since, until)
        finally:
            self._consumer.unassign()  # it would ask for more, a hundred times a second

    def _read(self, partition: Partition, since: int, until: int | None) -> Iterator[Message]:
        position = since
        while until is None or position < until:
            for message in self._some(partition, position):
                error = message.error()
                if error is None:
                    position = message.offset() + 1
                    if until is None or position <= until:
                        yield message
                    continue
                failure = failure_of(error.code())
                if failure is KafkaFailure.END:
                    if until is None:
                        return
                    position = max(position, message.offset())
                elif failure in (KafkaFailure.OUTSIDE, KafkaFailure.MISSING):
                    raise RangeGone(error.str(), failure)
                elif failure is not KafkaFailure.GROUP_DENIED and not error.retriable():
                    # nothing is asked of the group
                    raise NotReadable(error.str(), failure)

    def _some(self, partition: Partition, position: int) -> list[Message]:
        """The next one, and what came with it."""
        waited_s = 0.0
        while (first := self._consumer.poll(POLL_S)) is None:
            waited_s += POLL_S
            if waited_s >= READ_TIMEOUT_S:
                where = "its begin" if position == OFFSET_BEGINNING else f"offset {position}"
                raise Unavailable(
                    f"{partition[0]}-{partition[1]} gave nothing from {where} for {waited_s:.0f} s."
                )
        return [first, *self._consumer.consume(MESSAGES_MAX, 0)]


# ---- a topic, step by step -------------------------------------------------------------------


GROUP = "exactum-control"
ANSWER_S = 10.0
"""How long the broker may take for one answer; that it refuses us for good is known after that."""
PARTITIONS_EVERY_S = 10.0
"""How often new partitions are looked for, and whether it is still the same topic where nothing is
new in it."""
OWNED = (
    "bootstrap.servers",
    "group.id",
    "isolation.level",
    "enable.auto.commit",
    "auto.offset.reset",
)


@dataclass(frozen=True)
class TopicRecord:
    """One committed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TopicReader:
    """Reads ``topic`` with isolation level read_committed, from where it begins.

    ``read_before`` (partition -> next offset) is how far an earlier reader was: what is gone behind
    it was not read. It is used from one thread at a time.

    Raises:
        SettingRefused: a setting is not known to librdkafka, or is one of ``OWNED``.
    """

    def __init__(
        self,
        topic: str,
        bootstrap_servers: str,
        settings: Settings,
        read_before: Mapping[int, int] | None = None,
    ) -> None:
        self._topic = topic
        self.where = f"the topic {topic!r} at {bootstrap_servers}"
        self._read_before = dict(read_before or {})
        self._positions: dict[int, int] = {}
        self._identity: TopicIdentity | None = None
        self._partitions: tuple[int, ...] = ()
        self._looked_s = 0.0
        own = {"bootstrap.servers": bootstrap_servers, **dict(settings)}
        self._requests = TopicRequests(own, self.where, int(ANSWER_S * 1000))
        self._records = CommittedRecords(own, GROUP, self.where)

    def end_offsets(self) -> dict[int, int]:
        """The end of what is committed in each partition, now.

        Raises:
            CheckpointRefused: it is another topic than it was at the last call.
            SettingRefused: the topic does not exist, or the broker refuses this user.
            Unavailable: the broker did not answer.
        """
        began_s = time.monotonic()
        if not self._partitions or began_s - self._looked_s >= PARTITIONS_EVERY_S:
            self._look()
        ends = self._offsets(self._partitions, LATEST)
        if self._looked_s < began_s and any(ends[p] != self._position(p) for p in ends):
            self._look()  # there are new records: are they of the topic that was read so far?
        return ends

    def identity(self) -> TopicIdentity:
        """Which topic ``end_offsets`` found last."""
        return self._identity or TopicIdentity(None, None)

    def read_to(self, ends: Mapping[int, int]) -> list[TopicRecord]:
        """The records from the last step up to ``ends``, which must be end offsets; by partition,
        then offset.

        Raises:
            CheckpointRefused: the topic begins later, or ends earlier, than where the last step
                ended.
            SettingRefused: the broker refuses this user.
            Unavailable: the broker did not answer.
        """
        for partition, end in ends.items():
            was = self._was(partition)
            if end < was:
                raise CheckpointRefused(
                    "CONTROL_RECREATED",
                    f"{self.where} ends at offset {end} of partition {partition}, before offset "
                    f"{was}, which this query has read already: the topic was deleted and made "
                    "anew. Write what it held into it again and start the query with a new "
                    "checkpoint. Nothing was written.",
                )
        behind = sorted(p for p, end in ends.items() if self._position(p) < end)
        begins = self._offsets(behind, EARLIEST)
        records = [r for p in behind for r in self._read(p, begins[p], ends[p])]
        self._positions.update({p: ends[p] for p in behind})
        return records

    def close(self) -> None:
        """Idempotent. Nothing can be read any more."""
        self._records.close()
        self._requests.close()

    # ---- how it is done ------------------------------------------------------------------------

    def _position(self, partition: int) -> int:
        return self._positions.get(partition, 0)

    def _was(self, partition: int) -> int:
        """Up to which it was read, by this reader or an earlier one."""
        return max(self._position(partition), self._read_before.get(partition, 0))

    def _read(self, partition: int, begin: int, end: int) -> list[TopicRecord]:
        if begin > self._was(partition) > 0:
            raise self._gone(f"begins at offset {begin} of partition {partition}", partition)
        since = max(begin, self._position(partition))
        try:
            found = list(self._records.read((self._topic, partition), since, end))
        except NotReadable as error:
            if error.failure is KafkaFailure.OUTSIDE:
                raise self._gone(f"lacks offset {since} ({error})", partition) from error
            if error.failure is KafkaFailure.DENIED:
                raise SettingRefused(
                    "CONTROL_ACCESS",
                    f"{self.where} cannot be read: the user lacks READ on it. Grant it, which "
                    "brings DESCRIBE along, and start the query again. Nothing was written.",
                ) from error
            raise self._unavailable("could not be read", error) from error
        return [TopicRecord(partition, m.offset(), m.key(), m.value()) for m in found]

    def _gone(self, what: str, partition: int) -> CheckpointRefused:
        return CheckpointRefused(
            "CONTROL_RETENTION",
            f"{self.where} {what}, after offset {self._was(partition)}, up to which this query has "
            "read it: retention removed records before they were read. Give the topic "
            "cleanup.policy=compact, or a longer retention, and start the query with a new "
            "checkpoint. Nothing was written.",
        )

    def _offsets(self, partitions: Iterable[int], at: str) -> dict[int, int]:
        wanted = {(self._topic, p) for p in partitions}
        found = self._requests.offsets(wanted, at, read_committed=True)
        if missing := sorted(wanted - found.keys()):
            raise self._unavailable(f"has no partition {missing[0][1]} any more", None)
        return {p: offset for (_, p), offset in found.items()}

    def _look(self) -> None:
        """Which topic it is, and which partitions it has."""
        seen = self._requests.describe([self._topic]).get(self._topic)
        if seen is None and not self._requests.missing({(self._topic, 0)}):  # known by now
            seen = self._requests.describe([self._topic]).get(self._topic)
        if seen is None:
            raise SettingRefused(
                "CONTROL_ACCESS",
                f"{self.where} does not exist. Create it first, with cleanup.policy=compact. "
                "Nothing was written.",
            )
        self._recognise(TopicIdentity(seen.topic_id, self._requests.cluster_id()))
        self._partitions = tuple(range(seen.partitions))
        self._looked_s = time.monotonic()

    def _recognise(self, now: TopicIdentity) -> None:
        was = self._identity
        if was is not None and now.is_another(was):
            raise CheckpointRefused("CONTROL_RECREATED", another(self.where, was, now))
        self._identity = now

    def _unavailable(self, what: str, error: BaseException | None) -> Unavailable:
        why = f": {error}" if error is not None and str(error) else ""
        return Unavailable(
            f"{self.where} {what}{why}. Is the broker up? Start the query again when it is."
        )


def another(where: str, was: TopicIdentity, now: TopicIdentity) -> str:
    """Why a topic is not the one that it was."""
    return (
        f"{where} was deleted and made anew since this query first read it, or this is another "
        f"cluster ({was} then; {now} now): the rules that are on record are not this topic's. "
        "Restore the topic or the address. Or start a query with a new checkpoint. Nothing was "
        "written."
    )


def checked(settings: Mapping[str, object], where: str) -> Settings:
    """librdkafka settings of a reader as text pairs.

    Raises:
        SettingRefused: as ``as_texts``.
    """
    return as_texts(settings, dict.fromkeys(OWNED, "exactum sets it"), where)


# ---- dead letters ----------------------------------------------------------------------------


DEAD_LETTERS_GROUP = "exactum-dead-letters"
"""The group whose name stands in the brokers' logs; it has no offsets."""
HEADER_PREFIX = "exactum."
"""Of the headers."""


def dead_letters_in(topic: str, settings: Mapping[str, str], where: str) -> Iterator[DeadLetter]:
    """``settings``: librdkafka's, with ``bootstrap.servers``.

    Raises:
        Unavailable: the topic cannot be read.
    """
    records = CommittedRecords(settings, DEAD_LETTERS_GROUP, where)
    try:
        for partition in records.partitions(topic):
            for message in records.read(partition):
                yield _of_message(message)
    except NotReadable as error:
        raise Unavailable(f"The topic {topic!r} cannot be read: {error}.") from error
    finally:
        records.close()


def _of_message(message: Any) -> DeadLetter:
    fields = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in message.headers() or ()
        if name.startswith(HEADER_PREFIX)
    }
    return DeadLetter(
        f"{message.topic()}-{message.partition()}@{message.offset()}",
        message.key(),
        message.value(),
        fields.get("sink", ""),
        fields.get("error", ""),
        fields.get("source_topic"),
        number(fields.get("source_partition")),
        number(fields.get("source_offset")),
        fields.get("source_timestamp"),
        fields.get("row_json"),
        message.timestamp()[1],
    )
