"""What the driver asks a cluster about the topics that a query reads, and tells it: offsets, topic
ids, groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from exactum.kafka.requests import log_requests
from exactum.kafka.requests.broker_requests import BrokerRequests
from exactum.kafka.settings import client_settings
from exactum.kafka.settings.connection_settings import admin_settings, security_settings
from exactum.kafka.transaction import Partition

TIMEOUT_MS = 10_000
EARLIEST, LATEST = "earliest", "latest"
_TIMES = {EARLIEST: log_requests.EARLIEST, LATEST: log_requests.LATEST}


@dataclass(frozen=True)
class TopicSeen:
    """What a query keeps on record of a topic; see ``DescribedTopic``."""

    topic_id: str | None
    partitions: int
    internal: bool = False


class TopicRequests(BrokerRequests):
    """Connects with the first request, each of which is bounded by ``timeout_ms``."""

    def __init__(
        self, settings: Mapping[str, str], where: str, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``.

        Raises:
            SettingRefused: a setting, or its value, is not known.
        """
        client_settings.check(settings, where)
        admin_settings(settings, where)
        self.servers = settings.get("bootstrap.servers", "")
        super().__init__(
            self.servers,
            security_settings(settings),
            where,
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            deadline_ms=timeout_ms,
            acls="docs/source.md",
            is_lazy=True,
        )

    def topic_names(self) -> list[str]:
        """All topics that this user may see, internal ones too.

        Raises:
            Unavailable: no answer in time.
        """
        return sorted(self._router.call(lambda admin: admin.list_topics()))

    def describe(self, topics: Iterable[str]) -> dict[str, TopicSeen]:
        """The topics by name; one that does not exist is left out.

        Raises:
            Unavailable: no answer in time.
            SettingRefused: DESCRIBE on a topic is not granted.
        """
        names = sorted(set(topics))
        found = self.topics(names, all_visible=True) if names else {}
        return {
            name: TopicSeen(topic.topic_id, len(topic.partitions), topic.internal)
            for name, topic in found.items()
        }

    def offsets(
        self, partitions: Iterable[Partition], at: str | int, *, read_committed: bool
    ) -> dict[Partition, int]:
        """The first offset (``EARLIEST``), the end (``LATEST``), or the first record at or after a
        time in ms.

        The end is the last stable offset (``read_committed``) or the high watermark. A partition
        that has no record at or after the time is left out; so is one that does not exist.

        Raises:
            Unavailable, SettingRefused: as ``describe``.
        """
        wanted = set(partitions)
        there = wanted - self.missing(p for p in wanted if not self._router.has_leader(p))
        time_ms = _TIMES[at] if isinstance(at, str) else at
        found = self.list_offsets(there, time_ms, read_committed=read_committed)
        return {partition: offset for partition, offset in found.items() if offset >= 0}
