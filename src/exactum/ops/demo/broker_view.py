"""What the broker says of itself: ends of topics, and transactions open. By clients of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as KafkaProtocolError

from exactum.errors import Unavailable

REQUEST_TIMEOUT_S = 10.0
TIMEOUT_S = 60.0
PAUSE_S = 0.1

T = TypeVar("T")


class BrokerView:
    """Asks one broker. Threads may share it."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._partitions = partitions
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        # Only this client lists transactions.
        self._transactions = _retried(lambda: KafkaAdminClient(bootstrap_servers=bootstrap_servers))
        self._lock = threading.Lock()

    def end(self, topic: str) -> int:
        """The topic's high watermark, summed over its partitions."""
        return self._ends(topic, IsolationLevel.READ_UNCOMMITTED)

    def hidden(self, topic: str) -> int:
        """High watermark minus last stable offset: how many offsets open transactions hide."""
        stable = self._ends(topic, IsolationLevel.READ_COMMITTED)
        return max(0, self.end(topic) - stable)

    def open_transactions(self) -> int:
        """How many transactions are open, whoever opened them."""
        with self._lock:
            listed = _retried(
                lambda: self._transactions.list_transactions(state_filters=["Ongoing"])
            )
        return sum(len(of_broker) for of_broker in listed.values())

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            self._transactions.close()
            del self._admin

    def _ends(self, topic: str, isolation: IsolationLevel) -> int:
        asked = {
            TopicPartition(topic, number): OffsetSpec.latest() for number in range(self._partitions)
        }

        def ask() -> int:
            futures = self._admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S
            )
            return sum(int(future.result(REQUEST_TIMEOUT_S).offset) for future in futures.values())

        return _retried(ask)


def _retried(ask: Callable[[], T]) -> T:
    """Ask again while the broker says that it cannot answer just now: on a busy machine it elects
    its leaders anew.

    Raises:
        Unavailable: it has not answered for ``TIMEOUT_S``.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except (KafkaException, KafkaProtocolError, FutureTimeoutError) as error:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the demo's broker has not answered for {TIMEOUT_S:.0f} s: {error}"
                ) from error
        time.sleep(PAUSE_S)
