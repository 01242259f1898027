"""Which node answers for what, and asking until it has: requests in batches, to all nodes at once.

How many are under way is bounded here, by ``LANES`` for each node. kafka-python only has a limit
above which it refuses every further request on a connection, everybody's. A deadline counts from
the last final answer, so that what takes long because it is much comes to its end; only who hears
nothing more gives up.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import kafka.errors as kafka_errors

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import KafkaFailure, failure_of
from exactum.kafka.requests.client_internals import (
    AdminConnection,
    FindCoordinatorRequest,
    MetadataRequest,
)
from exactum.kafka.requests.connection import is_denied, reason_of
from exactum.kafka.transaction import Partition

T = TypeVar("T")
K = TypeVar("K")

LANES = 16
"""Requests under way at each node, for one call. A broker takes up one request of a connection
at a time.
"""
IDS_MAX = 500
"""Most transactional ids in one request."""
PARTITIONS_MAX = 100
"""Most partitions in one request."""
OF_GROUPS, OF_TRANSACTIONS = 0, 1
"""``CoordinatorType``, by Kafka's numbers."""
Read = Callable[[Any, Sequence[K]], Iterable[tuple[K, int, Any]]]
"""What an answer says of each of those that were asked for: (which, the error's code or 0,
value).
"""


@dataclass(frozen=True)
class Question(Generic[K]):
    """What is asked of many nodes at once: the request for some of the keys (``each_max`` at
    most), what its answer says of each, and which failures besides those of a node that starts or
    moves are asked again.
    """

    request: Callable[[Sequence[K]], Any]
    read: Read[K]
    each_max: int = IDS_MAX
    also_retriable: frozenset[KafkaFailure] = frozenset()


class Again(Exception):
    """The step has not come to an end; its message says why."""


class Router:
    """Asks the nodes of one cluster. Safe to use from threads: all is done by the client's own."""

    def __init__(
        self, connection: AdminConnection, servers: str, where: str, deadline_ms: int
    ) -> None:
        self._connection = connection
        self._servers = servers
        self._where = where
        self._deadline_ms = deadline_ms
        self._coordinators = _Coordinators(self)
        self._leaders = _Leaders(self)

    @property
    def nodes(self) -> list[int]:
        """The ids of the nodes, as the cluster's metadata has them."""
        return self._connection.brokers()

    def api_version(self, request: type[Any]) -> int:
        """Highest version of a request that both sides know; -1 when the broker does not know
        it.
        """
        return self._connection.api_version(request)

    def send(self, request: Any, node_id: int | None) -> Awaitable[Any]:
        """For a step's use. Its answer may be a ``KafkaError``."""
        return self._connection.send(request, node_id)

    async def coordinators(self, keys: Sequence[str], kind: int) -> list[tuple[str, Any]]:
        """For a step's use: (key, answer) of each; ``kind``: ``OF_GROUPS``, or
        ``OF_TRANSACTIONS``.
        """
        if self.api_version(FindCoordinatorRequest) >= 4:
            many = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys), min_version=4)
            return [(c.key, c) for c in (await self.send(many, None)).coordinators]
        one = [FindCoordinatorRequest(key=key, key_type=kind, max_version=3) for key in keys]
        return [(each.key, await self.send(each, None)) for each in one]

    def partitions(
        self, topics: Iterable[str], *, all_visible: bool = False
    ) -> dict[str, list[int]]:
        """Indexes by topic; a topic that does not exist (or may not be seen) is left out.

        Raises:
            SettingRefused: ``all_visible``, and DESCRIBE on one of them is not granted.
        """
        return self.retry(lambda: self._leaders.learn(topics, all_visible=all_visible))

    def by_coordinator(
        self, ids: Iterable[str], question: Question[str]
    ) -> dict[str, tuple[int, Any]]:
        """Ask each id's coordinator until every id has a final answer: (the error's code or 0,
        value).

        Raises:
            Unavailable: for as long as the deadline there was none.
        """
        return self._ask(self._coordinators, ids, question)

    def by_leader(
        self,
        partitions: Iterable[Partition],
        request: Callable[[Sequence[Partition]], Any],
        read: Callable[[Any], Iterable[tuple[Partition, int, Any]]] | None = None,
    ) -> dict[Partition, tuple[int, Any]]:
        """Ask each partition's leader until every partition has an answer, as ``by_coordinator``.

        ``read``: of an answer that is not made of ``topics`` with their ``partitions``.
        """
        each = read or (lambda answer: in_topics(answer.topics))
        question = Question(request, lambda answer, _: each(answer), PARTITIONS_MAX)
        return self._ask(self._leaders, partitions, question)

    def _ask(
        self, places: _Nodes[K], keys: Iterable[K], question: Question[K]
    ) -> dict[K, tuple[int, Any]]:
        call = _Call(self, places, keys, question)
        if call.pending:
            self.retry(call.step, lambda: len(call.done))
        return call.done

    def run_together(self, lanes: Iterable[Callable[[], Awaitable[None]]]) -> list[Any]:
        """Begin coroutines on the client's loop, for a step to await."""
        return [self._connection.call_soon(lane) for lane in lanes]

    def retry(self, step: Callable[[], Awaitable[T]], progress: Callable[[], int] = lambda: 0) -> T:
        """Run ``step`` on the client's loop until it succeeds, with growing pauses.

        ``progress`` is a number that changes when something was achieved: from then on there is all
        the time again.

        Raises:
            Unavailable: nothing was achieved for ``deadline_ms``; carries the last reason.
        """
        began_s, pause_s, achieved = time.monotonic(), 0.002, progress()
        while True:
            try:
                return self._connection.run(step)  # type: ignore[no-any-return]
            except Again as error:
                reason = str(error)
            except (kafka_errors.KafkaError, OSError) as error:
                if is_denied(error):
                    raise SettingRefused(
                        "KAFKA_LOGIN",
                        f"{self._where}: {self._servers} refused: {reason_of(error)}.",
                    ) from error
                reason = reason_of(error)
            if progress() != achieved:
                began_s, pause_s, achieved = time.monotonic(), 0.002, progress()
            if (time.monotonic() - began_s) * 1000 > self._deadline_ms:
                raise Unavailable(
                    f"{self._where}: the Kafka cluster at {self._servers} gave no final answer "
                    f"within {self._deadline_ms} ms; the last one was {reason}. Bring it back and "
                    "start again."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def denied(self, right: str, name: str, error: int) -> SettingRefused:
        return SettingRefused(
            "KAFKA_ACCESS",
            f"{self._where}: the broker answered {error_name(error)} for {name!r}. The user needs "
            f"{right} (docs/kafka.md lists the ACLs).",
        )


class _Call(Generic[K]):
    """One request of many: what still has no final answer, and the answers."""

    def __init__(
        self, router: Router, places: _Nodes[K], keys: Iterable[K], question: Question[K]
    ) -> None:
        self.pending = dict.fromkeys(keys)  # in the order given
        self.done: dict[K, tuple[int, Any]] = {}
        self._router = router
        self._places = places
        self._question = question
        self._again = ""

    async def step(self) -> None:
        """Ask once for everything that is pending.

        Raises:
            Again: something is still pending.
        """
        self._again = ""
        groups = await self._places.find(list(self.pending))
        lanes = [lane for node, keys in groups.items() for lane in self._lanes(node, keys)]
        for ended in self._router.run_together(lanes):
            await ended
        if self.pending:
            raise Again(self._again or "no answer")

    def _lanes(self, node: int, keys: Sequence[K]) -> list[Callable[[], Awaitable[None]]]:
        """Coroutines that take what there is to ask of a node from one queue."""
        question, size = self._question, self._question.each_max
        queue = deque(keys[i : i + size] for i in range(0, len(keys), size))

        async def lane() -> None:
            while queue:
                part = queue.popleft()
                try:
                    answer = await self._router.send(question.request(part), node)
                    rows = list(question.read(answer, part))
                except kafka_errors.KafkaError as error:
                    # the rest would meet the same; the next step asks for where it is now
                    queue.clear()
                    if is_denied(error):
                        raise
                    self._again = self._again or reason_of(error)
                    self._places.forget(part)
                else:
                    self._take(rows)

        return [lane] * min(LANES, len(queue))

    def _take(self, rows: Iterable[tuple[K, int, Any]]) -> None:
        for key, error, value in rows:
            failure = failure_of(error)
            if failure is KafkaFailure.BUSY:
                self._again = self._again or error_name(error)
                self._places.forget([key])
            elif failure in self._question.also_retriable:
                self._again = self._again or error_name(error)
            else:
                self.done[key] = (error, value)
                self.pending.pop(key, None)


class _Nodes(ABC, Generic[K]):
    """Knows which node to ask, learns what it does not know, and forgets what was wrong."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._nodes: dict[K, int] = {}

    async def find(self, keys: Iterable[K]) -> dict[int, list[K]]:
        """``keys`` by the node to ask.

        Raises:
            Again: one of them has none for now.
        """
        keys = list(keys)
        unknown = [key for key in keys if key not in self._nodes]
        if unknown:
            await self._learn(unknown)
        groups: dict[int, list[K]] = defaultdict(list)
        for key in keys:
            if key not in self._nodes:
                raise Again(f"no {self._called(key)}")
            groups[self._nodes[key]].append(key)
        return groups

    def forget(self, keys: Iterable[K]) -> None:
        for key in keys:
            self._nodes.pop(key, None)

    @abstractmethod
    async def _learn(self, unknown: Sequence[K]) -> None:
        """Ask the cluster, and put what it says into ``_nodes``."""

    @abstractmethod
    def _called(self, key: K) -> str:
        """The node of ``key``, for a message."""


class _Coordinators(_Nodes[str]):
    """The coordinators of transactional ids."""

    async def _learn(self, unknown: Sequence[str]) -> None:
        for i in range(0, len(unknown), IDS_MAX):
            ids = unknown[i : i + IDS_MAX]
            self._take(await self._router.coordinators(ids, OF_TRANSACTIONS))

    def _take(self, rows: Iterable[tuple[str, Any]]) -> None:
        for name, row in rows:
            if failure_of(row.error_code) is KafkaFailure.BUSY:
                raise Again(error_name(row.error_code))
            if row.error_code:
                raise self._router.denied("DESCRIBE on the transactional id", name, row.error_code)
            self._nodes[name] = row.node_id

    def _called(self, key: str) -> str:
        return f"coordinator for {key!r}"


class _Leaders(_Nodes[Partition]):
    """The leaders of partitions."""

    async def _learn(self, unknown: Sequence[Partition]) -> None:
        await self.learn({topic for topic, _ in unknown}, all_visible=True)

    def _called(self, key: Partition) -> str:
        return f"leader for {key[0]}-{key[1]}"

    async def learn(
        self, topics: Iterable[str], *, all_visible: bool = False
    ) -> dict[str, list[int]]:
        """Ask for the topics' partitions and remember their leaders.

        Raises:
            SettingRefused: ``all_visible``, and DESCRIBE on one of them is not granted.
        """
        ask = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=[ask(name=t) for t in topics], allow_auto_topic_creation=False
        )
        result: dict[str, list[int]] = {}
        for topic in (await self._router.send(request, None)).topics:
            failure = failure_of(topic.error_code)
            if all_visible and failure is KafkaFailure.DENIED:
                raise self._router.denied("DESCRIBE on the topic", topic.name, topic.error_code)
            if failure in (KafkaFailure.MISSING, KafkaFailure.DENIED):
                continue
            if topic.error_code:
                raise Again(error_name(topic.error_code))
            result[topic.name] = sorted(p.partition_index for p in topic.partitions)
            for p in topic.partitions:
                if p.leader_id >= 0:
                    self._nodes[topic.name, p.partition_index] = p.leader_id
        return result


def error_name(code: int) -> str:
    """As kafka-python calls it, for a message; empty for none."""
    return "" if code == 0 else str(kafka_errors.for_code(code).__name__)


def in_topics(topics: Iterable[Any]) -> Iterator[tuple[Partition, int, Any]]:
    """(partition, the error's code or 0, what is said of it)."""
    for topic in topics:
        for p in topic.partitions:
            yield (topic.name, p.partition_index), p.error_code, p


def by_topic(partitions: Sequence[Partition]) -> Mapping[str, list[int]]:
    """Indexes by topic."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        grouped[topic].append(index)
    return grouped
