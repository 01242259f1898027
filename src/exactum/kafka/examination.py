"""What a cluster tells of itself beyond what a query asks: versions, replicas, rights, its clock.

For ``exactum doctor``. Nothing here changes anything: the one request that could (EndTxn) names a
transaction that nobody has, and is refused.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exactum._version import __version__
from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import DENIALS, KafkaFailure, failure_of
from exactum.kafka.requests.broker_requests import END_TXN_VERSION_MAX, BrokerRequests
from exactum.kafka.requests.client_internals import (
    ApiVersionsRequest,
    BrokerVersionData,
    DescribeGroupsRequest,
    DescribeQuorumRequest,
    EndTxnRequest,
)
from exactum.kafka.requests.routing import check

ACL_READ = 3
"""``AclOperation.READ``, by the number with which a broker tells a user's rights on a group."""
NOBODY = 2**62
"""A producer id that no broker has given out."""
QUORUM_LOG = "__cluster_metadata"
CONNECT_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class NodeExamined:
    """A node as the cluster's metadata name it. ``version`` is "4.1", by the requests that it
    knows; empty where it did not answer, and then ``trouble`` says why.
    """

    node_id: int
    address: str
    version: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class GroupExamined:
    """``state`` is Kafka's: Empty and Dead have no members."""

    state: str
    members: int
    may_read: bool


class ClusterExamination(BrokerRequests):
    """The connections of one examination."""

    def nodes(self) -> list[NodeExamined]:
        """Every node that the cluster has named, each asked at the address that it advertises:
        without any other answer, so that one that nobody can reach is named.
        """
        places = sorted(self._router.connection().addresses().items())
        return [self._node(node_id, host, port) for node_id, (host, port) in places]

    def _node(self, node_id: int, host: str, port: int) -> NodeExamined:
        address = f"{host}:{port}"
        request = ApiVersionsRequest(
            client_software_name="exactum", client_software_version=__version__, min_version=0
        )
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            answer = self._router.send(request, node_id)
        except (OSError, Unavailable) as error:
            return NodeExamined(node_id, address, trouble=str(error))
        versions = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        return NodeExamined(
            node_id, address, BrokerVersionData(api_versions=versions).broker_version_str
        )

    def is_missing(self, topic: str) -> bool:
        """Whether there is no such topic; False also where the user may not know."""
        (found,) = self._router.call(lambda admin: admin.describe_topics([topic]))
        return failure_of(found["error_code"]) is KafkaFailure.MISSING

    def group(self, group_id: str) -> GroupExamined | None:
        """The consumer group; None where the user has no right on it at all."""

        def ask(node_id: int) -> GroupExamined:
            request = DescribeGroupsRequest(
                groups=[group_id], include_authorized_operations=True, min_version=3, max_version=5
            )
            (found,) = self._router.connection().ask(request, node_id).groups
            check(found.error_code)
            rights = found.authorized_operations
            return GroupExamined(
                found.group_state, len(found.members), rights is None or ACL_READ in rights
            )

        try:
            return self.of_group(group_id, ask)
        except SettingRefused:
            return None

    def may_end(self, transactional_id: str) -> bool:
        """Whether WRITE on the transactional id is granted: by asking to abort a transaction that
        nobody has, which is refused either way, for one reason or the other.
        """

        def request(ids: Sequence[str]) -> Any:
            return EndTxnRequest(
                transactional_id=ids[0],
                producer_id=NOBODY,
                producer_epoch=0,
                committed=False,
                max_version=END_TXN_VERSION_MAX,
            )

        code = self._one_each([transactional_id], request)[transactional_id]
        return failure_of(code) not in DENIALS

    def controller_clock(self) -> tuple[float, float] | None:
        """By how many seconds the active controller's is ahead of ours, give or take how many; None
        where the user lacks DESCRIBE on the cluster, or the cluster has no such request (before
        Kafka 3.3, and with ZooKeeper).
        """
        if self._router.api_version(DescribeQuorumRequest) < 1:
            return None
        topic = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                topic(topic_name=QUORUM_LOG, partitions=[topic.PartitionData(partition_index=0)])
            ],
            min_version=1,
        )
        before_s = time.time()
        answer = self._router.send(request, None)
        after_s = time.time()
        if answer.error_code or not answer.topics:
            return None
        (partition,) = answer.topics[0].partitions
        stamps = [
            voter.last_caught_up_timestamp
            for voter in partition.current_voters
            if voter.replica_id == partition.leader_id
        ]
        if partition.error_code or not stamps or stamps[0] <= 0:
            return None
        middle_s = (before_s + after_s) / 2
        return stamps[0] / 1000 - middle_s, (after_s - before_s) / 2 + 0.001
