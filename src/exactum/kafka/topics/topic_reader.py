"""A small topic read whole and in steps: up to offsets that the caller names, no further."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from exactum.errors import CheckpointRefused, SettingRefused, Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of, login_refused
from exactum.kafka.requests.listed_offsets import listed_offsets
from exactum.kafka.requests.topic_requests import NO_TOPIC_ID
from exactum.kafka.settings.listener import mismatch
from exactum.kafka.settings.settings import Settings
from exactum.kafka.topics.topic_identity import TopicIdentity

_client_log = logging.getLogger("exactum.kafka")

TIMEOUT_S = 30.0
"""How long the broker may take for one step."""
SURE_AFTER_S = 4.0
"""How long a topic must be unknown before it is taken for missing: a broker that has just
started may not know it.
"""
SURE_PAUSE_S = 0.4
PARTITIONS_EVERY_S = 10.0
"""How often new partitions are looked for, and whether it is still the same topic where nothing is
new in it."""
STEP_S = 1.0
"""How long one look at the topic waits, between which it is asked whether the broker refuses us
for good.
"""
TOLD_MAX = 8
"""How many of librdkafka's own errors are kept, to tell a refusal from a broker that is away."""
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
        self._ahead: dict[int, deque[TopicRecord]] = {}
        self._at_end: dict[int, int] = {}
        self._partitions: tuple[int, ...] = ()
        self._looked_s = 0.0
        # Not a method of self: a client that is part of a cycle would be ended whenever the garbage
        # is collected.
        self._told = told = deque[KafkaError](maxlen=TOLD_MAX)
        self._settings = {"bootstrap.servers": bootstrap_servers, **dict(settings)}
        common = {**self._settings, "error_cb": told.append}
        reading = {
            # librdkafka demands one; nothing is ever committed to it
            "group.id": "exactum-control",
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
            raise SettingRefused(
                f"{self.where}: librdkafka refuses its settings: {error.args[0].str()}"
            ) from error

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
        ends = self._offsets(self._partitions, OffsetSpec.latest(), "did not tell its end offsets")
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
        behind = {p: end for p, end in ends.items() if self._position(p) < end}
        for partition, end in ends.items():
            was = max(self._positions.get(partition, 0), self._read_before.get(partition, 0))
            if end < was:
                raise CheckpointRefused(
                    f"{self.where} ends at offset {end} of partition {partition}, before offset "
                    f"{was}, which this query has read already: the topic was deleted and made "
                    "anew. Write what it held into it again and start the query with a new "
                    "checkpoint. Nothing was written."
                )
        self._follow()
        self._told.clear()
        deadline_s = time.monotonic() + TIMEOUT_S
        while any(not self._reached(partition, end) for partition, end in behind.items()):
            self._refuse_lasting()
            if time.monotonic() > deadline_s:
                raise self._unavailable(
                    f"could not be read to its end within {TIMEOUT_S:.0f} s", None
                )
            if self._take(self._consumer.poll(0.1)):
                deadline_s = (
                    time.monotonic() + TIMEOUT_S
                )  # a long topic may take its time as long as it comes
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

    def _take(self, message: Any) -> bool:
        """Whether it was a record."""
        if message is None:
            return False
        error = message.error()
        if error is None:
            record = TopicRecord(
                message.partition(), message.offset(), message.key(), message.value()
            )
            self._ahead[record.partition].append(record)
            return True
        failure = failure_of(error.code())
        if failure is KafkaFailure.END:
            self._at_end[message.partition()] = message.offset()
        elif failure is KafkaFailure.OUTSIDE:
            raise CheckpointRefused(
                f"{self.where} no longer has what follows the offset that this query has read to "
                f"({error.str()}): retention removed it before it was read. Give the topic "
                "cleanup.policy=compact, or a longer retention, and start the query with a new "
                "checkpoint. Nothing was written."
            )
        elif failure is KafkaFailure.GROUP_DENIED:
            pass  # of the group that librdkafka wants named: nothing is asked of it
        elif failure is KafkaFailure.DENIED:
            raise self._denied("READ")
        elif error.fatal() or not error.retriable():
            raise self._unavailable("could not be read", KafkaException(error))
        return False

    def _follow(self) -> None:
        """Have the consumer follow every partition that it does not follow yet, from our
        position.
        """
        new = [p for p in self._positions if p not in self._ahead]
        if not new:
            return
        begin = self._offsets(new, OffsetSpec.earliest(), "did not tell its first offsets")
        starts = [TopicPartition(self._topic, p, max(self._positions[p], begin[p])) for p in new]
        for start in starts:
            if 0 < self._read_before.get(start.partition, 0) < start.offset:
                self._take_gone(start)
            self._ahead[start.partition] = deque()
        try:
            self._consumer.incremental_assign(starts)
        except KafkaException as error:
            raise self._unavailable("could not be read", error) from error

    def _take_gone(self, start: TopicPartition) -> None:
        raise CheckpointRefused(
            f"{self.where} begins at offset {start.offset} of partition {start.partition}, after "
            f"offset {self._read_before[start.partition]}, up to which this query has read it: "
            "retention removed records before they were read. Give the topic "
            "cleanup.policy=compact, or a longer retention, and start the query with a new "
            "checkpoint. Nothing was written."
        )

    def _offsets(self, partitions: Iterable[int], spec: OffsetSpec, trouble: str) -> dict[int, int]:
        admin = self._admin
        if admin is None:
            raise self._unavailable("is read no more: its reader is closed", None)
        specs = {(self._topic, p): spec for p in partitions}
        found: dict[int, int] = {}
        for (_, p), answer in listed_offsets(admin, specs, TIMEOUT_S, read_committed=True).items():
            if isinstance(answer, KafkaError):
                if failure_of(answer.code()) is KafkaFailure.DENIED:
                    raise self._denied("DESCRIBE")
                raise self._unavailable(trouble, KafkaException(answer))
            found[p] = answer
        return found

    def _look(self) -> None:
        """Which topic it is, and which partitions it has."""
        deadline_s = time.monotonic() + SURE_AFTER_S
        while (found := self._found())[0].error is not None:
            if (
                failure_of(found[0].error.code()) is not KafkaFailure.MISSING
                or time.monotonic() > deadline_s
            ):
                raise SettingRefused(
                    f"{self.where} cannot be read: {found[0].error.str()}. Create it first, with "
                    "cleanup.policy=compact, or grant READ and DESCRIBE on it. Nothing was written."
                )
            time.sleep(SURE_PAUSE_S)
        self._recognise(TopicIdentity(self._topic_id(), found[1]))
        self._partitions = tuple(sorted(found[0].partitions))
        self._looked_s = time.monotonic()

    def _found(self) -> tuple[Any, str | None]:
        """The topic's metadata, and the cluster's id."""
        self._told.clear()
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            try:
                answer = self._consumer.list_topics(self._topic, STEP_S)
                break
            except KafkaException as error:
                if message := self._consumer.poll(
                    0
                ):  # which hands out what is told of the connection, too
                    self._take(message)
                self._refuse_lasting()
                if time.monotonic() > deadline_s:
                    raise self._unavailable("did not answer", error) from error
        return answer.topics[self._topic], answer.cluster_id or None

    def _topic_id(self) -> str | None:
        admin = self._admin
        if admin is None:
            raise self._unavailable("is read no more: its reader is closed", None)
        asked = admin.describe_topics(TopicCollection([self._topic]), request_timeout=TIMEOUT_S)
        try:
            topic_id = str(asked[self._topic].result(TIMEOUT_S + 1).topic_id)
        except (KafkaException, FutureTimeoutError) as error:
            code = error.args[0].code() if isinstance(error, KafkaException) else None
            if failure_of(code) is KafkaFailure.DENIED:
                raise self._denied("DESCRIBE") from error
            raise self._unavailable("did not tell its id", error) from error
        return topic_id if topic_id != NO_TOPIC_ID else None

    def _recognise(self, now: TopicIdentity) -> None:
        was = self._identity
        if was is not None and now.is_another(was):
            raise CheckpointRefused(another(self.where, was, now))
        self._identity = now

    def _refuse_lasting(self) -> None:
        """
        Raises:
            SettingRefused: the connection fails by what no other try mends.
        """
        for error in list(self._told):
            if login_refused(error.code(), error.str()):
                raise SettingRefused(
                    f"{self.where} cannot be read: the broker refused the credentials, or no TLS "
                    f"connection came about ({error.str()}). Look at sasl.mechanism, "
                    "sasl.username, sasl.password and ssl.ca.location in consumer=, and at the "
                    "host that the certificate names. Nothing was written."
                )

    def _denied(self, right: str) -> SettingRefused:
        return SettingRefused(
            f"{self.where} cannot be read: the user lacks {right} on it. Grant READ, which brings "
            "DESCRIBE along, and start the query again. Nothing was written."
        )

    def _unavailable(self, what: str, error: BaseException | None) -> Unavailable | SettingRefused:
        why = f": {error}" if error is not None and str(error) else ""
        return mismatch(self._settings, self.where) or Unavailable(
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
        SettingRefused: one of them is given elsewhere or is what the promise rests on.
    """
    for name in settings:
        if name in OWNED:
            raise SettingRefused(
                f"{where}: the setting {name!r} cannot be given here; exactum sets it."
            )
    return tuple(
        sorted((n, str(v).lower() if isinstance(v, bool) else str(v)) for n, v in settings.items())
    )
