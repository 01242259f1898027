"""What the driver asks a Kafka cluster and tells it: topics, logs, groups, transactions. Holds no
protocol rules.

By kafka-python's public calls; and by requests of our own where it has none (EndTxn,
InitProducerId, Fetch), or where its calls go one after another and raise at the first id that is
wrong. A request whose answer is lost is sent again, until nothing was answered for ``deadline_ms``:
every request here is idempotent.

EndTxn is capped at version 4: version 5 moves the producer epoch (KIP-890), after which the outcome
of a repeated commit cannot be told; the coordinator picks its rules by the request's version, so
this holds on brokers of transaction.version 2 as well (docs/adr/0004).
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import kafka.errors as kafka_errors
from kafka.admin import ConfigResource, KafkaAdminClient

from exactum.errors import SettingRefused
from exactum.kafka import log_requests
from exactum.kafka.client import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    connect,
)
from exactum.kafka.connection_settings import admin_settings
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.log_requests import LogRequests
from exactum.kafka.outcome import TransactionDescription
from exactum.kafka.routing import OF_GROUPS, Question, Router, by_topic, check, error_name
from exactum.kafka.settings import check_settings
from exactum.kafka.transaction import Partition
from kafka import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

OFFSET_FETCH_VERSION = 7
"""The first that waits for the end of a transaction which commits offsets, and the last of one
group."""
END_TXN_VERSION_MAX = 4
INIT_PRODUCER_VERSION_MAX = 4
FENCE_TIMEOUT_MS = 1_000
"""Transaction timeout of an id that was fenced, until its owner initialises it again: any broker
allows it.
"""
ONGOING = ("Ongoing",)
COMMITTED = ("PrepareCommit", "CompleteCommit")
TRANSACTION_LOG = "__transaction_state"
MISSING_TIMEOUT_S = 3.0
"""How long a partition has to be unknown to be no more: a broker may hear of a topic a moment
later.
"""
EARLIEST, LATEST = "earliest", "latest"
_TIMES = {EARLIEST: log_requests.EARLIEST, LATEST: log_requests.LATEST}


@dataclass(frozen=True)
class Patience:
    """How long is waited, in ms: for a bootstrap server, for one answer, and until all is given up
    because nothing was achieved.
    """

    connect_ms: int = 15_000
    answer_ms: int = 10_000
    deadline_ms: int = 60_000

    @staticmethod
    def within(ms: int) -> Patience:
        """All of them so long."""
        return Patience(ms, ms, ms)


OF_A_RUN = Patience()
OF_A_READER = Patience.within(10_000)
"""A reader asks again with its next look; a run that gives up ends."""


@dataclass(frozen=True)
class DescribedPartition:
    """``leader`` is negative where it has none."""

    index: int
    leader: int
    replicas: int
    in_sync: int


@dataclass(frozen=True)
class TopicSeen:
    """``topic_id`` is in base64 as librdkafka writes it, with + and /; None on brokers before Kafka
    2.8. ``rights``: as Kafka calls them; None of a broker that does not tell. ``each``: of its
    partitions, by index.
    """

    topic_id: str | None
    partitions: int
    internal: bool = False
    rights: frozenset[str] | None = None
    each: tuple[DescribedPartition, ...] = ()

    def may(self, right: str) -> bool:
        return self.rights is None or right in self.rights


@dataclass(frozen=True)
class Holder:
    """Who holds readers back. ``transactional_id`` is None where the user may not see it."""

    producer_id: int
    transactional_id: str | None


class BrokerRequests(LogRequests):
    """One connection to each node, made with the first request, for as long as a run of a query
    lasts. Safe to use from threads.

    Every method that asks raises Unavailable where no bootstrap server answers, or nothing is
    answered in time, and SettingRefused where the broker refuses the credentials, or its
    certificate is not trusted.
    """

    def __init__(
        self, settings: Mapping[str, str], where: str, patience: Patience = OF_A_RUN
    ) -> None:
        """``settings`` are librdkafka's, with ``bootstrap.servers``.

        Raises:
            SettingRefused: a setting, or its value, is not known.
        """
        check_settings(settings, where)
        admin_settings(settings, where)
        times = patience.connect_ms, patience.answer_ms
        servers = settings.get("bootstrap.servers", "")
        router = Router(
            lambda: connect(settings, where, *times), servers, where, patience.deadline_ms
        )
        super().__init__(router)

    def close(self) -> None:
        """Idempotent. Who waits for an answer hears that the connections are closed."""
        self._router.close()

    # ---- cluster and topics ------------------------------------------------------------------

    def cluster_id(self) -> str:
        return str(self._router.call(lambda admin: admin.describe_cluster())["cluster_id"])

    def topic_names(self) -> list[str]:
        """All topics that this user may see, internal ones too."""
        return sorted(self._router.call(lambda admin: admin.list_topics()))

    def topics(self, names: Iterable[str], *, all_visible: bool = False) -> dict[str, TopicSeen]:
        """By name; one that does not exist, or may not be seen, is left out.

        Raises:
            SettingRefused: ``all_visible``, and DESCRIBE on one of them is not granted.
        """
        wanted, ask = list(dict.fromkeys(names)), self._router.topics
        if not wanted:  # kafka-python takes that for all
            return {}
        found = self._router.retry(lambda: ask(wanted, all_visible=all_visible))
        return {name: _seen(topic) for name, topic in found.items()}

    def offsets(
        self, partitions: Iterable[Partition], at: str | int, *, read_committed: bool
    ) -> dict[Partition, int]:
        """The first offset (``EARLIEST``), the end (``LATEST``), or the first record at or after a
        time in ms.

        The end is the last stable offset (``read_committed``) or the high watermark. A partition
        that has no record at or after the time is left out; so is one that does not exist.

        Raises:
            SettingRefused: DESCRIBE on a topic is not granted.
        """
        wanted = set(partitions)
        there = wanted - self.missing(p for p in wanted if not self._router.has_leader(p))
        time_ms = _TIMES[at] if isinstance(at, str) else at
        found = self.list_offsets(there, time_ms, read_committed=read_committed)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

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
            found = self.topics({topic for topic, _ in wanted}, all_visible=True)
            wanted -= {(name, p.index) for name, topic in found.items() for p in topic.each}
            if time.monotonic() > end_s:
                break
            if wanted:
                time.sleep(0.2)
        return wanted

    def configs(self, kind: str, name: str, keys: Sequence[str]) -> dict[str, str]:
        """Settings of a ``topic`` or of a ``broker`` (any, when the name is empty).

        What the broker does not have is left out, and all of them where the user lacks
        DESCRIBE_CONFIGS: that is not an error here.
        """

        def ask(admin: KafkaAdminClient) -> Mapping[str, Any]:
            whose = name or str(min(self._router.connection().addresses()))
            resource = ConfigResource(kind, whose, list(keys))
            answer = admin.describe_configs([resource], config_filter="all")
            of_resource: Mapping[str, Any] = answer.get(kind, {}).get(whose, {})
            return of_resource

        found = self._router.call(ask)
        return {key: str(found[key]["value"]) for key in keys if key in found}

    # ---- groups ------------------------------------------------------------------------------

    def group_offsets(self, group_id: str, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """What the consumer group has committed; partitions without an offset are left out.

        Raises:
            SettingRefused: READ on the group, or DESCRIBE on a topic, is not granted.
            Unavailable: no answer in time; also while a transaction is open that commits some.
        """
        topic = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [topic(name=t, partition_indexes=i) for t, i in by_topic(partitions).items()]

        def ask(node_id: int) -> dict[Partition, int]:
            request = OffsetFetchRequest(
                group_id=group_id,
                topics=topics,
                require_stable=True,
                min_version=OFFSET_FETCH_VERSION,
                max_version=OFFSET_FETCH_VERSION,
            )
            answer = self._router.connection().ask(request, node_id)
            check(answer.error_code)
            found: dict[Partition, int] = {}
            for each in answer.topics:
                for p in each.partitions:
                    check(p.error_code)
                    if p.committed_offset >= 0:
                        found[each.name, p.partition_index] = p.committed_offset
            return found

        return self.of_group(group_id, ask)

    def commit_group(self, group_id: str, offsets: Mapping[Partition, int]) -> None:
        """Set the group's offsets. The group must have no active members.

        Raises:
            SettingRefused: the coordinator does not take them: the group has members, or READ on it
                is not granted.
            Unavailable: no answer in time.
        """
        given = {
            TopicPartition(*partition): OffsetAndMetadata(offset)
            for partition, offset in offsets.items()
        }

        def ask(node_id: int) -> None:
            admin = self._router.connection().admin
            answers = admin.alter_group_offsets(group_id, given, group_coordinator_id=node_id)
            for error in answers.values():
                check(error.errno)

        self.of_group(group_id, ask)

    def of_group(self, group_id: str, ask: Callable[[int], T]) -> T:
        """What the group's coordinator answers, asked again while it is not ready."""

        def step() -> T:
            try:
                return ask(self._coordinator_of(group_id))
            except kafka_errors.BrokerResponseError as error:
                failure = failure_of(error.errno)
                if failure is KafkaFailure.MEMBERS:
                    raise SettingRefused(
                        "KAFKA_GROUP_MEMBERS",
                        f"{self._router.where}: the group {group_id!r} has members, who alone may "
                        f"set its offsets ({error_name(error.errno)}). Stop them, or give the "
                        "query another group_id.",
                    ) from error
                if failure is KafkaFailure.DENIED:
                    right = "READ on the group, and on the topics that it commits"
                    raise self._router.denied(right, group_id, error.errno) from error
                raise

        return self._router.retry(step)

    def _coordinator_of(self, group_id: str) -> int:
        ((_, found),) = self._router.coordinators([group_id], OF_GROUPS)
        check(found.error_code)
        return int(found.node_id)

    # ---- transactions ------------------------------------------------------------------------

    def has_transaction_tools(self) -> bool:
        """Whether the broker answers DescribeTransactions, ListTransactions and
        DescribeProducers.
        """
        tools = (DescribeTransactionsRequest, ListTransactionsRequest, DescribeProducersRequest)
        return all(self._router.connection().api_version(tool) >= 0 for tool in tools)

    def ids_of_producers(self, producer_ids: Collection[int]) -> dict[int, str]:
        """The transactional id of each producer id that a coordinator knows, in whatever state."""
        found = self._transactions((), None, producer_ids) if producer_ids else {}
        return {producer_id: name for name, producer_id in found.items()}

    def holders(self, last_stable_offsets: Mapping[Partition, int]) -> dict[Partition, Holder]:
        """By partition the producer whose open transaction begins at the last stable offset; left
        out where nobody's does.

        Raises:
            SettingRefused: READ on a topic is not granted.
        """
        found: dict[Partition, int] = {}
        for partition, producers in self.describe_producers(last_stable_offsets).items():
            starts = {
                p.transaction_start_offset: i
                for i, p in producers.items()
                if p.transaction_start_offset >= 0
            }
            if starts and min(starts) <= last_stable_offsets[partition]:
                found[partition] = starts[min(starts)]
        names = self.ids_of_producers(set(found.values()))
        return {
            partition: Holder(producer_id, names.get(producer_id))
            for partition, producer_id in found.items()
        }

    def knows_patterns(self) -> bool:
        """Whether it can list ids by a pattern (Kafka 4.1, KIP-1152), or else everybody's."""
        return self._router.connection().api_version(ListTransactionsRequest) >= 2

    def list_transactions(self, states: Sequence[str], pattern: str | None = None) -> list[str]:
        """Transactional ids in these states, on any node; filtered by ``pattern`` where the broker
        can.
        """
        return list(self._transactions(states, pattern))

    def _transactions(
        self, states: Sequence[str], pattern: str | None, producer_ids: Collection[int] = ()
    ) -> dict[str, int]:
        """The producer ids, by transactional id; no states, no ids: of any."""
        listed = self._router.call(
            lambda admin: admin.list_transactions(
                producer_id_filters=sorted(producer_ids),
                state_filters=states,
                transactional_id_pattern=pattern if self.knows_patterns() else None,
            )
        )
        return {t.transactional_id: t.producer_id for of_node in listed.values() for t in of_node}

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription | None]:
        """What the coordinators know of each id; None for an id that they do not know.

        Raises:
            SettingRefused: DESCRIBE on the ids is not granted.
        """

        def request(ids: Sequence[str]) -> Any:
            return DescribeTransactionsRequest(transactional_ids=list(ids))

        def read(answer: Any, _: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
            for t in answer.transaction_states:
                yield t.transactional_id, t.error_code, t

        result: dict[str, TransactionDescription | None] = {}
        answers = self._router.by_coordinator(transactional_ids, Question(request, read))
        for name, (error, t) in answers.items():
            if failure_of(error) is KafkaFailure.NO_TRANSACTION:
                result[name] = None
            elif error:
                raise self._router.denied("DESCRIBE on the transactional id", name, error)
            else:
                result[name] = TransactionDescription(
                    state=t.transaction_state,
                    producer_id=t.producer_id,
                    producer_epoch=t.producer_epoch,
                    timeout_ms=t.transaction_timeout_ms,
                    start_time_ms=t.transaction_start_time_ms,
                    partitions=tuple((p.topic, i) for p in t.topics for i in p.partitions),
                )
        return result

    def commit_transactions(self, transactions: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """EndTxn(commit) for each id with its (producer id, epoch). Returns the error's code, 0 for
        done.

        CONCURRENT_TRANSACTIONS says only that markers are being written, so it is asked again.
        """

        def request(ids: Sequence[str]) -> Any:
            (name,) = ids
            producer_id, epoch = transactions[name]
            return EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=True,
                max_version=END_TXN_VERSION_MAX,
            )

        return self._one_each(transactions, request, also_retriable=[KafkaFailure.CONCURRENT])

    def fence_producers(self, transactions: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """InitProducerId for each id whose transaction is open, with its (producer id, epoch): the
        coordinator raises the epoch and aborts the transaction. Returns the error's code, 0 where
        none was open.

        ConcurrentTransactionsError is the answer to an abort that has begun, and to one that has
        not: ask what is open.
        """

        def request(ids: Sequence[str]) -> Any:
            (name,) = ids
            producer_id, epoch = transactions[name]
            return InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=FENCE_TIMEOUT_MS,
                producer_id=producer_id,
                producer_epoch=epoch,
                min_version=3,
                max_version=INIT_PRODUCER_VERSION_MAX,
            )

        return self._one_each(transactions, request)

    def _one_each(
        self,
        ids: Iterable[str],
        request: Callable[[Sequence[str]], Any],
        also_retriable: Iterable[KafkaFailure] = (),
    ) -> dict[str, int]:
        """Send a request for each id to its coordinator. Returns the error's code, or 0."""

        def read(answer: Any, asked: Sequence[str]) -> Iterable[tuple[str, int, Any]]:
            yield asked[0], answer.error_code, None

        question = Question(request, read, each_max=1, also_retriable=frozenset(also_retriable))
        answers = self._router.by_coordinator(ids, question)
        return {name: error for name, (error, _) in answers.items()}


def _seen(topic: Mapping[str, Any]) -> TopicSeen:
    topic_id, rights = UUID(topic["topic_id"]), topic.get("authorized_operations")
    return TopicSeen(
        base64.b64encode(topic_id.bytes).decode().rstrip("=") if topic_id.int else None,
        len(topic["partitions"]),
        bool(topic["is_internal"]),
        None if rights is None else frozenset(rights),
        tuple(
            DescribedPartition(
                p["partition_index"], p["leader_id"], len(p["replica_nodes"]), len(p["isr_nodes"])
            )
            for p in sorted(topic["partitions"], key=lambda each: each["partition_index"])
        ),
    )
