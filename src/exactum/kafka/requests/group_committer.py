"""Sets the offsets of a consumer group from outside, as a consumer of it that never joins.

Not by librdkafka's admin client: that ends the whole process, by an assertion, where the group's
coordinator goes away in the middle of such a request (librdkafka pull request 5397; the fault
matrix saw it on a broker's SIGKILL).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from exactum.kafka.failure import DENIALS, KafkaFailure, failure_of

POLL_S = 0.01
LOOK_MS = 1_000
"""How long a commit waits for the group's coordinator to be found (rdkafka_cgrp.c,
rd_kafka_cgrp_defer_offset_commit: the session timeout), and then fails with ``_WAIT_COORD``. The
client's end waits for it, too."""


class GroupCommitter:
    """One client for one group. Safe to use from threads. Connects with the first commit."""

    def __init__(self, settings: Mapping[str, Any], group_id: str) -> None:
        """``settings``: librdkafka's, with ``bootstrap.servers``."""
        self._lock = threading.Lock()
        self._closed = False
        self._consumer: Consumer | None = None
        self._answers: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()
        answers = (
            self._answers
        )  # not self: a client in a cycle would be ended whenever the garbage is collected
        self._settings = {
            **settings,
            "group.id": group_id,
            "enable.auto.commit": False,
            "session.timeout.ms": LOOK_MS,
            "heartbeat.interval.ms": LOOK_MS // 3,
            "on_commit": lambda error, cells: answers.append((error, cells)),
        }

    def commit(self, cells: Sequence[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """The partitions as the coordinator answers, each with its error if it has one.

        Raises:
            KafkaException: the commit as a whole failed; ``_TIMED_OUT``: no answer in time, and it
                may still be done; ``_DESTROY``: closed.
        """
        with self._lock:
            try:
                return self._commit(list(cells), timeout_s)
            except BaseException:
                self._forget()  # an answer that comes late must not be taken for the next one's
                raise

    def close(self) -> None:
        """Let go of the client, after a commit that is under way. Idempotent."""
        with self._lock:
            self._closed = True
            self._forget()

    def _commit(self, cells: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        if self._closed:
            raise KafkaException(KafkaError(KafkaError._DESTROY))
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
        self._consumer.commit(offsets=cells, asynchronous=True)
        end_s = time.monotonic() + timeout_s
        while not self._answers:
            if time.monotonic() > end_s:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            event = self._consumer.poll(POLL_S)
            reason = None if event is None else event.error()
            failure = failure_of(None if reason is None else reason.code())
            if failure in DENIALS or failure is KafkaFailure.LOGIN:
                raise KafkaException(
                    reason
                )  # librdkafka goes on asking for the group's coordinator
        error, answered = self._answers.popleft()
        if error is not None:
            raise KafkaException(error)
        return answered

    def _forget(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
        self._answers.clear()
