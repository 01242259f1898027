"""Counts for itself what is in a topic, with plain clients. Never uses the code under test."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient

from tests.kit.waiting import WAIT_MAX_S

TIMEOUT_S = WAIT_MAX_S
REQUEST_TIMEOUT_S = WAIT_MAX_S
SHOWN_MAX = 5
Record = tuple[str, str]
"""(key, value)"""


@dataclass(frozen=True)
class Witness:
    """A producer and reader of the test's own."""

    servers: str

    def produce(self, topic: str, records: Collection[Record]) -> None:
        producer = Producer({**self._client(), "enable.idempotence": True})
        for key, value in records:
            producer.produce(topic, value, key)
        assert producer.flush(TIMEOUT_S) == 0, (
            f"{topic} did not take the input within {TIMEOUT_S:.0f} s"
        )

    def open_transactions(self, part: str) -> list[str]:
        """Transactional ids that contain ``part`` and have an open transaction."""
        admin = KafkaAdminClient(bootstrap_servers=self.servers)
        try:
            listed = admin.list_transactions(state_filters=["Ongoing"])
        finally:
            admin.close()
        return sorted(
            t.transactional_id
            for each in listed.values()
            for t in each
            if part in t.transactional_id
        )

    def check_at_rest(self, topic: str, part: str) -> None:
        """Nothing is open and nothing hidden: every last stable offset is the high watermark.

        Waits, for what a late task has left open is swept some seconds after the epoch.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            stable, high = self._ends(topic, committed=True), self._ends(topic, committed=False)
            opened = self.open_transactions(part)
            if stable == high and not opened:
                return
            assert time.monotonic() < deadline, (
                f"not at rest after {TIMEOUT_S:.0f} s: open {opened}, last stable offsets "
                f"{stable}, ends {high}"
            )
            time.sleep(0.2)

    def check_exact(self, topic: str, expected: Collection[Record]) -> None:
        """A read_committed reader sees exactly the expected records, each once, each key's in
        order.
        """
        seen = self.read(topic)
        twice = sorted(record for record, n in Counter(seen).items() if n > 1)
        lost, foreign = sorted(set(expected) - set(seen)), sorted(set(seen) - set(expected))
        assert not (twice or lost or foreign), (
            f"of {len(expected)} records: {len(twice)} doubled {twice[:SHOWN_MAX]}, {len(lost)} "
            f"lost {lost[:SHOWN_MAX]}, {len(foreign)} that nobody wrote {foreign[:SHOWN_MAX]}"
        )
        for key in {key for key, _ in expected}:
            assert [r for r in seen if r[0] == key] == [r for r in expected if r[0] == key], (
                f"{key} is out of order"
            )

    def read(self, topic: str) -> list[Record]:
        """What a read_committed reader sees, from the beginning to the last stable offset."""
        ends = {p: end for p, end in self._ends(topic, committed=True).items() if end > 0}
        consumer = Consumer(
            {
                **self._client(),
                "group.id": "witness",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        found: list[Record] = []
        deadline = time.monotonic() + TIMEOUT_S
        try:
            consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in ends])
            while ends:
                assert time.monotonic() < deadline, (
                    f"{topic}: {ends} not read within {TIMEOUT_S:.0f} s"
                )
                message = consumer.poll(0.2)
                if message is None:
                    continue
                error = message.error()
                if error is None:
                    found.append((message.key().decode(), message.value().decode()))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise AssertionError(f"{topic} cannot be read: {error}")
                elif message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
        finally:
            consumer.close()
        return found

    def _ends(self, topic: str, *, committed: bool) -> dict[int, int]:
        """The last stable offset (``committed``) or the high watermark of every partition."""
        admin = AdminClient(self._client())
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        partitions = admin.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic].partitions
        asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}
        answers = admin.list_offsets(
            asked, isolation_level=level, request_timeout=REQUEST_TIMEOUT_S
        )
        return {
            at.partition: future.result(REQUEST_TIMEOUT_S).offset for at, future in answers.items()
        }

    def _client(self) -> dict[str, object]:
        return {"bootstrap.servers": self.servers, "log_level": 0}
