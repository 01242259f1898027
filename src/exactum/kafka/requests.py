"""Kafka protocol requests from the driver, in batches, to all nodes at once. Holds no protocol rules.

This module and ``connection`` use kafka-python's private connection manager: there is no public way to send
EndTxn for a transaction that another process opened. Hence the narrow version pin in pyproject.

A request whose answer is lost is sent again until ``deadline_ms`` has passed: every request here is
idempotent. EndTxn is capped at version 4: version 5 moves the producer epoch (KIP-890), after which the
outcome of a repeated commit cannot be told; the coordinator picks its rules by the request's version, so
this holds on brokers of transaction.version 2 as well (docs/adr/0004).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.protocol.admin.configs import DescribeConfigsRequest
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.transaction import EndTxnRequest

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.connection import connect, reason_of
from exactum.kafka.outcome import TransactionDescription
from exactum.kafka.settings import Settings
from exactum.kafka.transaction import Partition

T = TypeVar("T")
K = TypeVar("K")

END_TXN_VERSION_MAX = 4
LATEST, EARLIEST = -1, -2  # ListOffsets' special timestamps
FETCH_VERSION_MAX = 12  # version 13 names topics by id
COMMITTED_STATES = ("PrepareCommit", "CompleteCommit")
RETRIABLE = {
    "NotLeaderForPartitionError",
    "LeaderNotAvailableError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "NotCoordinatorError",
    "RequestTimedOutError",
    "NetworkExceptionError",
    "KafkaStorageError",
    "UnknownServerError",
    "FencedLeaderEpochError",
    "UnknownLeaderEpochError",
    "OffsetNotAvailableError",
    "ReplicaNotAvailableError",
}


@dataclass(frozen=True)
class ProducerState:
    """What a partition leader knows of one producer: its last sequence and its open transaction."""

    producer_epoch: int
    last_sequence: int
    transaction_start_offset: int


@dataclass(frozen=True)
class FetchedRecords:
    """Raw record batches of one partition, with the bounds of the log at that moment."""

    records: bytes
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    error: str


class BrokerRequests:
    """One connection to each node, for as long as a run of a query lasts. Safe to use from threads."""

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
        self._where = where
        self._servers = bootstrap_servers
        self._deadline_ms = deadline_ms
        self._leaders: dict[Partition, int] = {}
        self._coordinators: dict[str, int] = {}
        self._client = connect(bootstrap_servers, settings, where, connect_timeout_ms, request_timeout_ms)
        self._manager = self._client._manager

    def close(self) -> None:
        self._client.close()

    # ---- cluster and topics ------------------------------------------------------------------

    def cluster_id(self) -> str:
        metadata = self._retry(lambda: self._send(MetadataRequest(topics=[]), None))
        return str(metadata.cluster_id)

    def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions by topic; a topic that does not exist (or may not be seen) is left out."""
        return {t: len(p) for t, p in self._retry(lambda: self._metadata(topics)).items()}

    def api_version(self, request: type[Any]) -> int:
        """Highest version of a request that both sides know; -1 when the broker does not know it."""
        try:
            return int(self._manager.broker_version_data.api_version(request))
        except (kafka_errors.IncompatibleBrokerVersion, kafka_errors.UnsupportedVersionError):
            return -1

    def has_transaction_tools(self) -> bool:
        """Whether the broker answers DescribeTransactions, ListTransactions and DescribeProducers."""
        tools = (DescribeTransactionsRequest, ListTransactionsRequest, DescribeProducersRequest)
        return all(self.api_version(tool) >= 0 for tool in tools)

    def config(self, kind: str, name: str, key: str) -> str | None:
        """One setting of a ``topic`` or of a ``broker`` (any, when the name is empty); None: not allowed.

        The user may lack DESCRIBE_CONFIGS; that is not an error here.
        """

        async def ask() -> str | None:
            nodes = sorted(b.node_id for b in self._manager.cluster.brokers())
            node_id = int(name) if kind == "broker" and name else nodes[0]
            resource = DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=4 if kind == "broker" else 2,
                resource_name=str(node_id) if kind == "broker" else name,
                configuration_keys=[key],
            )
            answer = await self._send(DescribeConfigsRequest(resources=[resource]), node_id)
            (result,) = answer.results
            error = _error_name(result.error_code)
            if error in RETRIABLE:
                raise _Again(error)
            if error:
                return None
            return next((str(c.value) for c in result.configs if c.name == key), None)

        return self._retry(ask)

    # ---- transactions ------------------------------------------------------------------------

    def list_ongoing(self, pattern: str | None) -> list[str]:
        """Transactional ids that are Ongoing on any node, filtered by ``pattern`` where the broker can."""
        return self._list_transactions(["Ongoing"], pattern if self._knows_patterns() else None)

    def list_committed(self, pattern: str) -> list[str]:
        """Transactional ids like ``pattern`` whose last transaction was committed; none where the broker knows no
        patterns.
        """
        return self._list_transactions(COMMITTED_STATES, pattern) if self._knows_patterns() else []

    def _knows_patterns(self) -> bool:
        return self.api_version(ListTransactionsRequest) >= 2

    def _list_transactions(self, states: Sequence[str], pattern: str | None) -> list[str]:
        fields: dict[str, Any] = {"state_filters": list(states), "producer_id_filters": []}
        if pattern is not None:
            fields |= {"transactional_id_pattern": pattern, "min_version": 2}

        async def ask() -> list[str]:
            nodes = [b.node_id for b in self._manager.cluster.brokers()]
            sent = [self._send(ListTransactionsRequest(**fields), node) for node in nodes]
            found: list[str] = []
            for answer in [await s for s in sent]:
                if error := _error_name(answer.error_code):
                    raise _Again(error)
                found.extend(t.transactional_id for t in answer.transaction_states)
            return found

        return self._retry(ask)

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | None]:
        """What the coordinators know of each id; None for an id that they do not know.

        Raises:
            SettingRefused: DESCRIBE on the ids is not granted.
        """

        def request(ids: Sequence[str]) -> Any:
            return DescribeTransactionsRequest(transactional_ids=list(ids))

        def read(answer: Any, _: Sequence[str]) -> Iterable[tuple[str, str, Any]]:
            for t in answer.transaction_states:
                yield t.transactional_id, _error_name(t.error_code), t

        result: dict[str, TransactionDescription | None] = {}
        for name, (error, t) in self._by_coordinator(transactional_ids, request, read).items():
            if error in ("TransactionalIdNotFoundError", "TransactionalIdNotFound"):
                result[name] = None
            elif error:
                raise self._denied("DESCRIBE on the transactional id", name, error)
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

    def end_transactions(self, transactions: Mapping[str, tuple[int, int]], *, commit: bool) -> dict[str, str]:
        """EndTxn for each id with its (producer id, epoch). Returns the error's name, or "" for done.

        CONCURRENT_TRANSACTIONS says only that markers are being written, so it is asked again.
        """

        def request(ids: Sequence[str]) -> Any:
            (name,) = ids
            producer_id, epoch = transactions[name]
            return EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
                max_version=END_TXN_VERSION_MAX,
            )

        def read(answer: Any, ids: Sequence[str]) -> Iterable[tuple[str, str, Any]]:
            yield ids[0], _error_name(answer.error_code), None

        answers = self._by_coordinator(
            transactions, request, read, one_each=True, also_retriable={"ConcurrentTransactionsError"}
        )
        return {name: error for name, (error, _) in answers.items()}

    # ---- partitions --------------------------------------------------------------------------

    def describe_producers(self, partitions: Iterable[Partition]) -> dict[Partition, dict[int, ProducerState]]:
        """The producers that each partition's leader knows, by producer id.

        Raises:
            SettingRefused: READ on the topic is not granted.
        """

        def request(asked: Sequence[Partition]) -> Any:
            topic = DescribeProducersRequest.TopicRequest
            return DescribeProducersRequest(
                topics=[topic(name=t, partition_indexes=i) for t, i in _by_topic(asked).items()]
            )

        def read(answer: Any) -> Iterable[tuple[Partition, str, Any]]:
            for topic in answer.topics:
                for p in topic.partitions:
                    yield (topic.name, p.partition_index), _error_name(p.error_code), p

        result: dict[Partition, dict[int, ProducerState]] = {}
        for partition, (error, p) in self._by_leader(partitions, request, read).items():
            if error:
                raise self._denied("READ on the topic", partition[0], error)
            result[partition] = {
                a.producer_id: ProducerState(a.producer_epoch, a.last_sequence, a.current_txn_start_offset)
                for a in p.active_producers
            }
        return result

    def end_offsets(self, partitions: Iterable[Partition], *, read_committed: bool) -> dict[Partition, int]:
        """The last stable offset (``read_committed``) or the high watermark of each partition."""
        return self._list_offsets(partitions, LATEST, 1 if read_committed else 0)

    def log_start_offset(self, partition: Partition) -> int:
        """The first offset that retention and deletion have left."""
        return self._list_offsets([partition], EARLIEST, 0)[partition]

    def _list_offsets(
        self, partitions: Iterable[Partition], timestamp: int, isolation_level: int
    ) -> dict[Partition, int]:

        def request(asked: Sequence[Partition]) -> Any:
            topic = ListOffsetsRequest.ListOffsetsTopic
            cell = topic.ListOffsetsPartition
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=[
                    topic(name=t, partitions=[cell(partition_index=i, timestamp=timestamp) for i in indexes])
                    for t, indexes in _by_topic(asked).items()
                ],
                min_version=2,
            )

        def read(answer: Any) -> Iterable[tuple[Partition, str, Any]]:
            for topic in answer.topics:
                for p in topic.partitions:
                    yield (topic.name, p.partition_index), _error_name(p.error_code), p.offset

        result: dict[Partition, int] = {}
        for partition, (error, offset) in self._by_leader(partitions, request, read).items():
            if error:
                raise self._denied("DESCRIBE on the topic", partition[0], error)
            result[partition] = int(offset)
        return result

    def fetch(self, partition: Partition, offset: int, *, bytes_max: int = 8 * 1024 * 1024) -> FetchedRecords:
        """Raw batches from ``offset`` on, aborted and open transactions included (isolation level 0).

        Raises:
            SettingRefused: READ on the topic is not granted.
        """

        def request(_: Sequence[Partition]) -> Any:
            topic = FetchRequest.FetchTopic
            cell = topic.FetchPartition(
                partition=partition[1],
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=bytes_max,
            )
            return FetchRequest(
                replica_id=-1,
                max_wait_ms=50,
                min_bytes=1,
                max_bytes=bytes_max,
                isolation_level=0,
                session_id=0,
                session_epoch=-1,
                topics=[topic(topic=partition[0], partitions=[cell])],
                forgotten_topics_data=[],
                rack_id="",
                min_version=5,
                max_version=FETCH_VERSION_MAX,
            )

        def read(answer: Any) -> Iterable[tuple[Partition, str, Any]]:
            for topic in answer.responses:
                for p in topic.partitions:
                    yield (topic.topic, p.partition_index), _error_name(p.error_code), p

        error, p = self._by_leader([partition], request, read)[partition]
        if error == "TopicAuthorizationFailedError":
            raise self._denied("READ on the topic", partition[0], error)
        records = p.records
        return FetchedRecords(
            records=bytes(records) if records is not None else b"",
            log_start_offset=p.log_start_offset,
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            error=error,
        )

    # ---- routing and repetition --------------------------------------------------------------

    def _by_coordinator(
        self,
        ids: Iterable[str],
        request: Callable[[Sequence[str]], Any],
        read: Callable[[Any, Sequence[str]], Iterable[tuple[str, str, Any]]],
        *,
        one_each: bool = False,
        also_retriable: frozenset[str] | set[str] = frozenset(),
    ) -> dict[str, tuple[str, Any]]:
        """Send to each id's coordinator, all nodes at once, until every id has a final answer."""
        pending = set(ids)
        done: dict[str, tuple[str, Any]] = {}

        async def step() -> dict[str, tuple[str, Any]]:
            await self._find_coordinators(pending - self._coordinators.keys())
            groups: dict[int, list[str]] = defaultdict(list)
            for name in sorted(pending):
                groups[self._coordinators[name]].append(name)
            asks = [
                (node, part)
                for node, names in groups.items()
                for part in ([[n] for n in names] if one_each else [names])
            ]
            sent = [(part, self._send(request(part), node)) for node, part in asks]
            again: str | None = None
            for part, future in sent:
                try:
                    rows = list(read(await future, part))
                except kafka_errors.KafkaError as error:
                    again = again or reason_of(error)
                    self._forget_coordinators(part)
                    continue
                for name, error_name, value in rows:
                    if error_name in also_retriable:
                        again = again or error_name
                    elif error_name in RETRIABLE:
                        again = again or error_name
                        self._forget_coordinators([name])
                    else:
                        done[name] = (error_name, value)
                        pending.discard(name)
            if pending:
                raise _Again(again or "no answer")
            return done

        return self._retry(step) if pending else {}

    async def _find_coordinators(self, ids: set[str]) -> None:
        if not ids:
            return
        if self.api_version(FindCoordinatorRequest) >= 4:
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=sorted(ids), min_version=4)
            rows = [(c.key, c) for c in (await self._send(request, None)).coordinators]
        else:
            sent = [(i, self._send(FindCoordinatorRequest(key=i, key_type=1, max_version=3), None)) for i in ids]
            rows = [(i, await future) for i, future in sent]
        for name, row in rows:
            error = _error_name(row.error_code)
            if error in RETRIABLE:
                raise _Again(error)
            if error:
                raise self._denied("DESCRIBE on the transactional id", name, error)
            self._coordinators[name] = row.node_id

    def _forget_coordinators(self, ids: Iterable[str]) -> None:
        for name in ids:
            self._coordinators.pop(name, None)

    def _by_leader(
        self,
        partitions: Iterable[Partition],
        request: Callable[[Sequence[Partition]], Any],
        read: Callable[[Any], Iterable[tuple[Partition, str, Any]]],
    ) -> dict[Partition, tuple[str, Any]]:
        """Send to each partition's leader, all nodes at once, until every partition has an answer."""
        pending = set(partitions)
        done: dict[Partition, tuple[str, Any]] = {}

        async def step() -> dict[Partition, tuple[str, Any]]:
            unknown = {topic for topic, i in pending if (topic, i) not in self._leaders}
            if unknown:
                await self._metadata(unknown, all_visible=True)
            groups: dict[int, list[Partition]] = defaultdict(list)
            for partition in sorted(pending):
                if partition not in self._leaders:
                    raise _Again(f"no leader for {partition[0]}-{partition[1]}")
                groups[self._leaders[partition]].append(partition)
            sent = [(part, self._send(request(part), node)) for node, part in groups.items()]
            again: str | None = None
            for part, future in sent:
                try:
                    rows = list(read(await future))
                except kafka_errors.KafkaError as error:
                    again = again or reason_of(error)
                    for partition in part:
                        self._leaders.pop(partition, None)
                    continue
                for partition, error_name, value in rows:
                    if error_name in RETRIABLE:
                        again = again or error_name
                        self._leaders.pop(partition, None)
                    else:
                        done[partition] = (error_name, value)
                        pending.discard(partition)
            if pending:
                raise _Again(again or "no answer")
            return done

        return self._retry(step) if pending else {}

    async def _metadata(self, topics: Iterable[str], *, all_visible: bool = False) -> dict[str, list[int]]:
        """Ask for the topics' partitions and remember their leaders.

        Raises:
            SettingRefused: ``all_visible``, and DESCRIBE on one of them is not granted.
        """
        ask = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[ask(name=t) for t in topics], allow_auto_topic_creation=False)
        result: dict[str, list[int]] = {}
        for topic in (await self._send(request, None)).topics:
            error = _error_name(topic.error_code)
            if all_visible and error == "TopicAuthorizationFailedError":
                raise self._denied("DESCRIBE on the topic", topic.name, error)
            if error in ("UnknownTopicOrPartitionError", "TopicAuthorizationFailedError"):
                continue
            if error:
                raise _Again(error)
            result[topic.name] = sorted(p.partition_index for p in topic.partitions)
            for p in topic.partitions:
                if p.leader_id >= 0:
                    self._leaders[topic.name, p.partition_index] = p.leader_id
        return result

    def _send(self, request: Any, node_id: int | None) -> Awaitable[Any]:
        sent: Awaitable[Any]
        try:
            sent = self._manager.send(request, node_id)
        except kafka_errors.UnknownBrokerIdError as error:
            # Raised at once for a node that has died and left the metadata. As the answer of that one request
            # it makes the callers forget who sent them there, and the others' answers are not lost.
            sent = Future().failure(error)
        return sent

    def _retry(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run ``step`` on the client's loop until it succeeds, with growing pauses.

        Raises:
            Unavailable: ``deadline_ms`` passed; carries the last reason.
        """
        began_s = time.monotonic()
        pause_s = 0.002
        while True:
            try:
                return self._manager.run(step)  # type: ignore[no-any-return]
            except _Again as error:
                reason = str(error)
            except (kafka_errors.SaslAuthenticationFailedError, kafka_errors.AuthorizationError) as error:
                raise SettingRefused(f"{self._where}: {self._servers} refused: {reason_of(error)}.") from error
            except (kafka_errors.KafkaError, OSError) as error:
                reason = reason_of(error)
            if (time.monotonic() - began_s) * 1000 > self._deadline_ms:
                raise Unavailable(
                    f"{self._where}: the Kafka cluster at {self._servers} gave no final answer within "
                    f"{self._deadline_ms} ms; the last one was {reason}. Bring it back and start again."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def _denied(self, right: str, name: str, error: str) -> SettingRefused:
        return SettingRefused(
            f"{self._where}: the broker answered {error} for {name!r}. The user needs {right} "
            "(docs/kafka.md lists the ACLs)."
        )


class _Again(Exception):
    """The step has not come to an end; its message says why."""


def _error_name(code: int) -> str:
    return "" if code == 0 else str(kafka_errors.for_code(code).__name__)


def _by_topic(partitions: Sequence[Partition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        grouped[topic].append(index)
    return grouped
