"""A small topic read whole and in steps: up to offsets that the caller names, no further."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.kafka.listed_offsets import listed_offsets
from exactum.kafka.settings import Settings

_client_log = logging.getLogger("exactum.kafka")

TIMEOUT_S = 30.0
"""How long the broker may take for one step."""
PARTITIONS_EVERY_S = 10.0
"""How often new partitions are looked for."""
OWNED = ("bootstrap.servers", "group.id", "isolation.level", "enable.auto.commit", "auto.offset.reset")


@dataclass(frozen=True)
class TopicRecord:
    """One committed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class TopicReader:
    """Reads ``topic`` with isolation level read_committed, from ``positions`` (partition -> next offset) on.

    Partitions that are not named begin at offset 0, or where the topic begins. It is used from one thread at a time.

    Raises:
        SettingRefused: a setting is not known to librdkafka, or is one of ``OWNED``.
    """

    def __init__(
        self, topic: str, bootstrap_servers: str, settings: Settings, positions: Mapping[int, int] | None = None
    ) -> None:
        self._topic = topic
        self._where = f"the topic {topic!r} at {bootstrap_servers}"
        self._positions = dict(positions or {})
        self._ahead: dict[int, deque[TopicRecord]] = {}
        self._at_end: dict[int, int] = {}
        self._partitions: tuple[int, ...] = ()
        self._looked_s = 0.0
        common = {"bootstrap.servers": bootstrap_servers, **dict(settings)}
        reading = {
            "group.id": "exactum-control",  # librdkafka demands one; nothing is ever committed to it
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
        try:
            self._admin: AdminClient | None = AdminClient(common, logger=_client_log)
            self._consumer = Consumer({**common, **reading}, logger=_client_log)
        except KafkaException as error:
            raise SettingRefused(f"{self._where}: librdkafka refuses its settings: {error.args[0].str()}") from error

    def end_offsets(self) -> dict[int, int]:
        """The end of what is committed in each partition, now.

        Raises:
            SettingRefused: the topic does not exist.
            Unavailable: the broker did not answer.
        """
        self._refresh_partitions()
        return self._offsets(self._partitions, OffsetSpec.latest(), "did not tell its end offsets")

    def read_to(self, ends: Mapping[int, int]) -> list[TopicRecord]:
        """The records from the last step up to ``ends``, which must be end offsets; by partition, then offset.

        Raises:
            CheckpointRefused: the topic begins later, or ends earlier, than where the last step ended.
            Unavailable: the broker did not answer.
        """
        behind = {p: end for p, end in ends.items() if self._position(p) < end}
        for partition, end in ends.items():
            if end < self._positions.get(partition, 0):
                raise CheckpointRefused(
                    f"{self._where} ends at offset {end} of partition {partition}, before offset "
                    f"{self._positions[partition]}, which this query has read already: the topic was deleted and made "
                    "anew. Write what it held into it again and start the query with a new checkpoint. Nothing was "
                    "written."
                )
        self._follow()
        deadline_s = time.monotonic() + TIMEOUT_S
        while any(not self._reached(partition, end) for partition, end in behind.items()):
            if time.monotonic() > deadline_s:
                raise self._unavailable(f"could not be read to its end within {TIMEOUT_S:.0f} s", None)
            self._take(self._consumer.poll(0.1))
        records: list[TopicRecord] = []
        for partition, end in sorted(behind.items()):
            ahead = self._ahead[partition]
            while ahead and ahead[0].offset < end:
                records.append(ahead.popleft())
            self._positions[partition] = end
        return records

    def close(self) -> None:
        """Idempotent. Nothing can be read any more."""
        self._consumer.close()
        self._admin = None  # it has no end of its own: it ends with its last reference

    # ---- how it is done ------------------------------------------------------------------------

    def _position(self, partition: int) -> int:
        return self._positions.setdefault(partition, 0)

    def _reached(self, partition: int, end: int) -> bool:
        ahead = self._ahead[partition]
        return bool(ahead and ahead[-1].offset >= end - 1) or self._at_end.get(partition, -1) >= end

    def _take(self, message: Any) -> None:
        if message is None:
            return
        error = message.error()
        if error is None:
            record = TopicRecord(message.partition(), message.offset(), message.key(), message.value())
            self._ahead[record.partition].append(record)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._at_end[message.partition()] = message.offset()
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise CheckpointRefused(
                f"{self._where} no longer has what follows the offset that this query has read to ({error.str()}): "
                "retention removed it before it was read. Give the topic cleanup.policy=compact, or a longer "
                "retention, and start the query with a new checkpoint. Nothing was written."
            )
        elif error.fatal() or not error.retriable():
            raise self._unavailable("could not be read", KafkaException(error))

    def _follow(self) -> None:
        """Have the consumer follow every partition that it does not follow yet, from our position."""
        new = [p for p in self._positions if p not in self._ahead]
        if not new:
            return
        begin = self._offsets(new, OffsetSpec.earliest(), "did not tell its first offsets")
        starts = [TopicPartition(self._topic, p, max(self._positions[p], begin[p])) for p in new]
        for start in starts:
            if 0 < self._positions[start.partition] < start.offset:
                self._take_gone(start)
            self._ahead[start.partition] = deque()
        try:
            self._consumer.incremental_assign(starts)
        except KafkaException as error:
            raise self._unavailable("could not be read", error) from error

    def _take_gone(self, start: TopicPartition) -> None:
        raise CheckpointRefused(
            f"{self._where} begins at offset {start.offset} of partition {start.partition}, after offset "
            f"{self._positions[start.partition]}, up to which this query has read it: retention removed records before "
            "they were read. Give the topic cleanup.policy=compact, or a longer retention, and start the query with a "
            "new checkpoint. Nothing was written."
        )

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec, trouble: str) -> dict[int, int]:
        admin = self._admin
        if admin is None:
            raise self._unavailable("is read no more: its reader is closed", None)
        specs = {(self._topic, p): spec for p in partitions}
        found: dict[int, int] = {}
        for (_, p), answer in listed_offsets(admin, specs, TIMEOUT_S, read_committed=True).items():
            if isinstance(answer, KafkaError):
                raise self._unavailable(trouble, KafkaException(answer))
            found[p] = answer
        return found

    def _refresh_partitions(self) -> None:
        if self._partitions and time.monotonic() - self._looked_s < PARTITIONS_EVERY_S:
            return
        try:
            found = self._consumer.list_topics(self._topic, TIMEOUT_S).topics[self._topic]
        except KafkaException as error:
            raise self._unavailable("did not answer", error) from error
        if found.error is not None:
            raise SettingRefused(
                f"{self._where} cannot be read: {found.error.str()}. Create it first, with cleanup.policy=compact, "
                "or grant READ and DESCRIBE on it. Nothing was written."
            )
        self._partitions = tuple(sorted(found.partitions))
        self._looked_s = time.monotonic()

    def _unavailable(self, what: str, error: BaseException | None) -> Unavailable:
        why = f": {error}" if error is not None and str(error) else ""
        return Unavailable(f"{self._where} {what}{why}. Is the broker up? Start the query again when it is.")


def checked(settings: Mapping[str, object], where: str) -> Settings:
    """librdkafka settings of a reader as text pairs.

    Raises:
        SettingRefused: one of them is given elsewhere or is what the promise rests on.
    """
    for name in settings:
        if name in OWNED:
            raise SettingRefused(f"{where}: the setting {name!r} cannot be given here; exactum sets it.")
    return tuple(sorted((n, str(v).lower() if isinstance(v, bool) else str(v)) for n, v in settings.items()))
