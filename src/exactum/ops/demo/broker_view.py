"""What the broker says of itself: ends of topics, and transactions open."""

from __future__ import annotations

from exactum.kafka.requests import BrokerRequests


class BrokerView:
    """Asks one broker. Threads may share it."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        self._partitions = partitions
        self._requests = BrokerRequests(bootstrap_servers, (), "exactum demo")

    def end(self, topic: str) -> int:
        """The topic's high watermark, summed over its partitions."""
        return self._end(topic, read_committed=False)

    def hidden(self, topic: str) -> int:
        """High watermark minus last stable offset: how many offsets open transactions hide."""
        stable = self._end(topic, read_committed=True)
        return max(0, self.end(topic) - stable)

    def open_transactions(self) -> int:
        """How many transactions are open, whoever opened them."""
        return len(self._requests.list_ongoing(None))

    def close(self) -> None:
        """Let go of the connections."""
        self._requests.close()

    def _end(self, topic: str, *, read_committed: bool) -> int:
        partitions = [(topic, number) for number in range(self._partitions)]
        ends = self._requests.end_offsets(partitions, read_committed=read_committed)
        return sum(ends.values())
