"""Looks at topics for itself, where a node may die meanwhile. Never uses the code under test."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.kit.crash import oracle
from tests.kit.waiting import WAIT_MAX_S

READ_TIMEOUT_S = WAIT_MAX_S
REST_TIMEOUT_S = WAIT_MAX_S
REQUEST_TIMEOUT_S = WAIT_MAX_S
SHOWN_MAX = 5
Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Onlooker:
    """A reader and producer of the test's own."""

    servers: str

    def produce(
        self, topic: str, values: Collection[str], *, at_once: bool = False, partition: int = -1
    ) -> None:
        """Append the values, or make them readable all at once (one transaction)."""
        given = {"linger.ms": 20, "enable.idempotence": True}
        producer = Producer(
            self._client(**given, **({"transactional.id": f"test-{topic}"} if at_once else {}))
        )
        if at_once:
            producer.init_transactions(REQUEST_TIMEOUT_S)
            producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, f"k{number % 10}", partition=partition)
        assert producer.flush(READ_TIMEOUT_S) == 0, (
            f"{topic} did not take the input within {READ_TIMEOUT_S:.0f} s"
        )
        if at_once:
            producer.commit_transaction(REQUEST_TIMEOUT_S)

    def values(self, *topics: str) -> list[str]:
        """Every value that a read_committed reader sees, from the beginning to the last stable
        offset.
        """
        ends = self.end_offsets(*topics, committed=True)
        consumer = Consumer(
            self._client(
                **{
                    "group.id": "onlooker",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                }
            )
        )
        found: list[str] = []
        waiting = {place for place, end in ends.items() if end > 0}
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            consumer.assign([TopicPartition(*place, 0) for place in waiting])
            while waiting:
                assert time.monotonic() < deadline, (
                    f"could not read {waiting} within {READ_TIMEOUT_S:.0f} s"
                )
                message = consumer.poll(0.2)
                if message is None:
                    continue
                if message.error() is None:
                    found.append(message.value().decode())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    place = message.topic(), message.partition()
                    waiting -= {place} if message.offset() >= ends[place] else set()
        finally:
            consumer.close()
        return found

    def end_offsets(self, *topics: str, committed: bool) -> Offsets:
        """The last stable offset (``committed``) or the high watermark of every partition."""
        return oracle.end_offsets(self.servers, topics, committed=committed)

    def check_exact(self, expected: Collection[str], *topics: str) -> None:
        """A reader sees exactly the expected values, each once."""
        seen = self.values(*topics)
        twice = sorted(value for value, n in Counter(seen).items() if n > 1)
        lost, foreign = sorted(set(expected) - set(seen)), sorted(set(seen) - set(expected))
        wrong = [*twice, *lost, *foreign]
        assert not wrong, (
            f"of {len(expected)} values: {len(twice)} doubled {twice[:SHOWN_MAX]}, {len(lost)} "
            f"lost {lost[:SHOWN_MAX]}, {len(foreign)} that nobody wrote {foreign[:SHOWN_MAX]}"
        )

    def check_at_rest(self, *topics: str) -> None:
        """Nothing is open or hidden: every last stable offset reaches the high watermark.

        Waits, for the broker writes its markers a moment after it has answered.
        """
        deadline = time.monotonic() + REST_TIMEOUT_S
        while True:
            stable, high = (
                self.end_offsets(*topics, committed=True),
                self.end_offsets(*topics, committed=False),
            )
            gaps = {
                place: (stable[place], high[place])
                for place in high
                if stable[place] != high[place]
            }
            if not gaps:
                return
            assert time.monotonic() < deadline, (
                f"still open after {REST_TIMEOUT_S:.0f} s, (stable, high): {gaps}"
            )
            time.sleep(0.1)

    def _client(self, **more: object) -> dict[str, object]:
        own = {"bootstrap.servers": self.servers, "reconnect.backoff.max.ms": 500, "log_level": 0}
        return {**own, **more}
