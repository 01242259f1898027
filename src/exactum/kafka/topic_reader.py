"""A small topic read whole and in steps (up to offsets that the caller names, no further), and a
topic's dead letters: what readers see of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.kafka.readback import LoggedRecord, RangeGone, committed_records
from exactum.kafka.requests import EARLIEST, LATEST, OF_A_READER, BrokerRequests, TopicSeen
from exactum.kafka.settings import Settings, as_texts
from exactum.kafka.topic import TopicIdentity
from exactum.protocol.dead_letter import DeadLetter, number

# ---- a topic, step by step -------------------------------------------------------------------


PARTITIONS_EVERY_S = 10.0
"""How often new partitions are looked for, and whether it is still the same topic where nothing is
new in it."""


class TopicReader:
    """Reads ``topic`` with isolation level read_committed, from where it begins.

    ``read_before`` (partition -> next offset) is how far an earlier reader was: what is gone behind
    it was not read. It is used from one thread at a time.

    Raises:
        SettingRefused: a setting is not known to librdkafka.
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
        self._requests = BrokerRequests(own, self.where, OF_A_READER)

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

    def read_to(self, ends: Mapping[int, int]) -> list[LoggedRecord]:
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
        self._requests.close()

    # ---- how it is done ------------------------------------------------------------------------

    def _position(self, partition: int) -> int:
        return self._positions.get(partition, 0)

    def _was(self, partition: int) -> int:
        """Up to which it was read, by this reader or an earlier one."""
        return max(self._position(partition), self._read_before.get(partition, 0))

    def _read(self, partition: int, begin: int, end: int) -> list[LoggedRecord]:
        if begin > self._was(partition) > 0:
            raise self._gone(f"begins at offset {begin} of partition {partition}", partition)
        since = max(begin, self._position(partition))
        try:
            return list(committed_records(self._requests, (self._topic, partition), since, end))
        except RangeGone as error:
            raise self._gone(f"lacks offset {since} ({error})", partition) from error

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
            raise Unavailable(f"{self.where} has no partition {missing[0][1]} any more.")
        return {p: offset for (_, p), offset in found.items()}

    def _look(self) -> None:
        """Which topic it is, and which partitions it has."""
        seen = self._seen()
        if seen is None and not self._requests.missing({(self._topic, 0)}):  # known by now
            seen = self._seen()
        if seen is None:
            raise SettingRefused(
                "CONTROL_ACCESS",
                f"{self.where} does not exist. Create it first, with cleanup.policy=compact. "
                "Nothing was written.",
            )
        self._recognise(TopicIdentity(seen.topic_id, self._requests.cluster_id()))
        self._partitions = tuple(range(seen.partitions))
        self._looked_s = time.monotonic()

    def _seen(self) -> TopicSeen | None:
        return self._requests.topics([self._topic], all_visible=True).get(self._topic)

    def _recognise(self, now: TopicIdentity) -> None:
        was = self._identity
        if was is not None and now.is_another(was):
            raise CheckpointRefused("CONTROL_RECREATED", another(self.where, was, now))
        self._identity = now


def another(where: str, was: TopicIdentity, now: TopicIdentity) -> str:
    """Why a topic is not the one that it was."""
    return (
        f"{where} was deleted and made anew since this query first read it, or this is another "
        f"cluster ({was} then; {now} now): the rules that are on record are not this topic's. "
        "Restore the topic or the address. Or start a query with a new checkpoint. Nothing was "
        "written."
    )


def checked(settings: Mapping[str, object], where: str) -> Settings:
    """librdkafka settings of a reader as text pairs: of them those count by which it connects.

    Raises:
        SettingRefused: as ``as_texts``.
    """
    return as_texts(settings, {"bootstrap.servers": "it is an argument of its own"}, where)


# ---- dead letters ----------------------------------------------------------------------------


HEADER_PREFIX = "exactum."
"""Of the headers."""


def dead_letters_in(topic: str, settings: Mapping[str, str], where: str) -> Iterator[DeadLetter]:
    """``settings``: librdkafka's, with ``bootstrap.servers``.

    Raises:
        SettingRefused, Unavailable: the topic cannot be read.
    """
    with closing(BrokerRequests(settings, where, OF_A_READER)) as requests:
        seen = requests.topics([topic], all_visible=True).get(topic)
        wanted = [(topic, index) for index in range(seen.partitions if seen else 1)]
        begins = requests.offsets(wanted, EARLIEST, read_committed=True)
        try:
            for partition in wanted:
                for record in committed_records(requests, partition, begins.get(partition, 0)):
                    yield _letter(record)
        except RangeGone as error:
            raise Unavailable(f"The topic {topic!r} cannot be read: {error}.") from error


def _letter(record: LoggedRecord) -> DeadLetter:
    fields = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(HEADER_PREFIX)
    }
    return DeadLetter(
        f"{record.partition[0]}-{record.partition[1]}@{record.offset}",
        record.key,
        record.value,
        fields.get("sink", ""),
        fields.get("error", ""),
        fields.get("source_topic"),
        number(fields.get("source_partition")),
        number(fields.get("source_offset")),
        fields.get("source_timestamp"),
        fields.get("row_json"),
        record.timestamp_ms,
    )
