"""Kafka protocol requests from the driver: the connections, and what is asked of the cluster and
its topics. Holds no protocol rules.

A request whose answer is lost is sent again, until nothing was answered for ``deadline_ms``: every
request here is idempotent.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.requests.client_internals import (
    DescribeConfigsRequest,
    MetadataRequest,
)
from exactum.kafka.requests.connection import connect
from exactum.kafka.requests.routing import Again, Router, error_name
from exactum.kafka.requests.transaction_requests import TransactionRequests
from exactum.kafka.settings.settings import Settings
from exactum.kafka.transaction import Partition

RIGHTS_VERSION_MIN = 8
"""The first Metadata request that can ask for the user's rights."""
WRITE = 4
"""``AclOperation.WRITE``, by the number with which a broker tells a user's rights on a topic."""
MISSING_TIMEOUT_S = 3.0
"""How long a partition has to be unknown to be no more: a broker may hear of a topic a moment
later.
"""


class BrokerRequests(TransactionRequests):
    """One connection to each node, for as long as a run of a query lasts. Safe to use from
    threads.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        settings: Settings,
        where: str,
        *,
        connect_timeout_ms: int = 15_000,
        request_timeout_ms: int = 10_000,
        deadline_ms: int = 60_000,
    ) -> None:
        """Connect.

        Raises:
            Unavailable: no bootstrap server answered within ``connect_timeout_ms``.
            SettingRefused: the broker refused the credentials, or its certificate is not trusted.
        """
        self._client = connect(
            bootstrap_servers, settings, where, connect_timeout_ms, request_timeout_ms
        )
        super().__init__(Router(self._client, bootstrap_servers, where, deadline_ms))

    def close(self) -> None:
        self._client.close()

    # ---- cluster and topics ------------------------------------------------------------------

    def cluster_id(self) -> str:
        metadata = self._router.retry(lambda: self._router.send(MetadataRequest(topics=[]), None))
        return str(metadata.cluster_id)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions by topic; a topic that does not exist (or may not be seen) is left
        out.
        """
        return {topic: len(indexes) for topic, indexes in self._router.partitions(topics).items()}

    def may_write(self, topic: str) -> bool:
        """Whether WRITE on the topic is granted; True of a broker that does not tell (before Kafka
        2.3).
        """
        if self._router.api_version(MetadataRequest) < RIGHTS_VERSION_MIN:
            return True
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            min_version=RIGHTS_VERSION_MIN,
        )
        (found,) = self._router.retry(lambda: self._router.send(asked, None)).topics
        granted = found.authorized_operations  # None where the broker has not told
        return granted is None or found.error_code != 0 or WRITE in granted

    def missing(
        self, partitions: Iterable[Partition], timeout_s: float = MISSING_TIMEOUT_S
    ) -> set[Partition]:
        """Which of them the cluster has not, and had not for ``timeout_s``.

        Raises:
            SettingRefused: DESCRIBE on a topic is not granted.
        """
        wanted = set(partitions)
        end_s = time.monotonic() + timeout_s
        while wanted:
            there = self._router.partitions({topic for topic, _ in wanted}, all_visible=True)
            wanted = {
                (topic, index) for topic, index in wanted if index not in there.get(topic, ())
            }
            if time.monotonic() > end_s:
                break
            if wanted:
                time.sleep(0.2)
        return wanted

    def configs(self, kind: str, name: str, keys: Sequence[str]) -> dict[str, str]:
        """Settings of a ``topic`` or of a ``broker`` (any, when the name is empty), in one request.

        What the broker does not have is left out, and all of them where the user lacks
        DESCRIBE_CONFIGS: that is not an error here.
        """

        async def ask() -> dict[str, str]:
            nodes = self._router.nodes
            node_id = int(name) if kind == "broker" and name else nodes[0]
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4 if kind == "broker" else 2,
                resource_name=str(node_id) if kind == "broker" else name,
                configuration_keys=list(keys),
            )
            answer = await self._router.send(DescribeConfigsRequest(resources=[resource]), node_id)
            (result,) = answer.results
            if failure_of(result.error_code) is KafkaFailure.BUSY:
                raise Again(error_name(result.error_code))
            if result.error_code:
                return {}
            return {c.name: str(c.value) for c in result.configs if c.name in keys}

        return self._router.retry(ask)
