"""Which node answers for what, and asking until it has: requests in batches, to all nodes at once.

How many are under way is bounded here, by ``LANES`` for each node. kafka-python only has a limit
above which it refuses every further request on a connection, everybody's. A deadline counts from
the last final answer, so that what takes long because it is much comes to its end; only who hears
nothing more gives up.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import kafka.errors as kafka_errors
from kafka.admin import KafkaAdminClient

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.client import AdminConnection, FindCoordinatorRequest, is_denied, reason_of
from exactum.kafka.failure import KafkaFailure, access_refused, failure_of
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


Learn = Callable[[Sequence[K]], Iterable[tuple[K, int]]]
"""The nodes of some, as the cluster says."""


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
    """Asks the nodes of one cluster. Safe to use from threads: all is done by the client's own.

    It connects when it is first asked, and says to who asks then what ``connect`` raises.
    """

    def __init__(
        self,
        connect: Callable[[], AdminConnection],
        servers: str,
        where: str,
        deadline_ms: int,
    ) -> None:
        self._connect = connect
        self._servers = servers
        self.where = where
        self._deadline_ms = deadline_ms
        self._made: AdminConnection | None = None
        self._making = threading.Lock()
        self._is_closed = False
        self._coordinators: dict[str, int] = {}
        self._leaders: dict[Partition, int] = {}

    def connection(self) -> AdminConnection:
        """Connected.

        Raises:
            Unavailable: closed; or as ``connect``.
        """
        with self._making:
            if self._made is None and not self._is_closed:
                self._made = self._connect()
            made = self._made
        if made is None or self._is_closed:
            self.close()
            raise Unavailable(f"{self.where}: the connections to {self._servers} are closed.")
        return made

    def close(self) -> None:
        """Idempotent. Whoever waits for an answer, or asks later, hears that it is closed."""
        self._is_closed = True
        if self._made is not None:
            self._made.close()

    def call(self, ask: Callable[[KafkaAdminClient], T]) -> T:
        """What a public call of kafka-python's returns; see ``retry``."""
        return self.retry(lambda: ask(self.connection().admin))

    def coordinators(self, keys: Sequence[str], kind: int) -> list[tuple[str, Any]]:
        """(key, answer) of each; ``kind``: ``OF_GROUPS``, or ``OF_TRANSACTIONS``.

        kafka-python's own keeps an answer for good, also of a coordinator that has moved since.
        """
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys), min_version=4)
        return [(c.key, c) for c in self.connection().ask(asked, None).coordinators]

    def has_leader(self, partition: Partition) -> bool:
        """Whether it had one when it was asked last."""
        return partition in self._leaders

    def topics(self, names: Sequence[str], *, all_visible: bool) -> dict[str, Any]:
        """Topics by name, as ``KafkaAdminClient.describe_topics`` gives them, asked once. One that
        does not exist, or may not be seen, is left out.

        Raises:
            SettingRefused: ``all_visible``, and DESCRIBE on one of them is not granted.
            KafkaError: a broker answered with another error.
        """
        result: dict[str, Any] = {}
        for topic in self.connection().admin.describe_topics(names):
            name, code = topic["name"], topic["error_code"]
            failure = failure_of(code)
            if all_visible and failure is KafkaFailure.DENIED:
                raise self.denied("DESCRIBE on the topic", name, code)
            if failure in (KafkaFailure.MISSING, KafkaFailure.DENIED):
                continue
            check(code)
            result[name] = topic
        return result

    def _learn_leaders(self, unknown: Sequence[Partition]) -> Iterator[tuple[Partition, int]]:
        names = list(dict.fromkeys(topic for topic, _ in unknown))
        for name, topic in self.topics(names, all_visible=True).items():
            for p in topic["partitions"]:
                if p["leader_id"] >= 0:
                    yield (name, p["partition_index"]), p["leader_id"]

    def _learn_coordinators(self, unknown: Sequence[str]) -> Iterator[tuple[str, int]]:
        for i in range(0, len(unknown), IDS_MAX):
            for name, row in self.coordinators(unknown[i : i + IDS_MAX], OF_TRANSACTIONS):
                if failure_of(row.error_code) is KafkaFailure.BUSY:
                    raise Again(error_name(row.error_code))
                if row.error_code:
                    right = "DESCRIBE on the transactional id"
                    raise self.denied(right, name, row.error_code)
                yield name, row.node_id

    def by_coordinator(
        self, ids: Iterable[str], question: Question[str]
    ) -> dict[str, tuple[int, Any]]:
        """Ask each id's coordinator until every id has a final answer: (the error's code or 0,
        value).

        Raises:
            Unavailable: for as long as the deadline there was none.
        """
        return self._ask(ids, question, self._coordinators, self._learn_coordinators)

    def by_leader(
        self,
        partitions: Iterable[Partition],
        request: Callable[[Sequence[Partition]], Any],
        read: Callable[[Any], Iterable[tuple[Partition, int, Any]]] | None = None,
        again: Collection[KafkaFailure] = (),
        each_max: int = PARTITIONS_MAX,
    ) -> dict[Partition, tuple[int, Any]]:
        """Ask each partition's leader until every partition has an answer, as ``by_coordinator``.

        ``read``: of an answer that is not made of ``topics`` with their ``partitions``. ``again``:
        failures that are not final here. ``each_max``: most partitions in one request.
        """
        each = read or (lambda answer: in_topics(answer.topics))
        question = Question(request, lambda answer, _: each(answer), each_max, frozenset(again))
        return self._ask(partitions, question, self._leaders, self._learn_leaders)

    def _ask(
        self, keys: Iterable[K], question: Question[K], nodes: dict[K, int], learn: Learn[K]
    ) -> dict[K, tuple[int, Any]]:
        call = _Call(self, dict.fromkeys(keys), question, nodes, learn)
        if call.pending:
            self.retry(call.step, lambda: len(call.done))
        return call.done

    def retry(self, step: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Run ``step`` until it succeeds, with growing pauses.

        ``progress`` is a number that changes when something was achieved: from then on there is all
        the time again.

        Raises:
            Unavailable: nothing was achieved for ``deadline_ms``; carries the last reason.
        """
        began_s, pause_s, achieved = time.monotonic(), 0.002, progress()
        while True:
            try:
                return step()
            except Again as error:
                reason = str(error)
            except (kafka_errors.KafkaError, OSError) as error:
                if is_denied(error):
                    raise SettingRefused(
                        "KAFKA_LOGIN",
                        f"{self.where}: {self._servers} refused: {reason_of(error)}.",
                    ) from error
                reason = reason_of(error)
            except RuntimeError:
                if not self._is_closed:
                    raise
                reason = "closed"
            if progress() != achieved:
                began_s, pause_s, achieved = time.monotonic(), 0.002, progress()
            if (time.monotonic() - began_s) * 1000 > self._deadline_ms:
                raise Unavailable(
                    f"{self.where}: the Kafka cluster at {self._servers} gave no final answer "
                    f"within {self._deadline_ms} ms; the last one was {reason}. Bring it back and "
                    "start again."
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 0.5)

    def denied(self, right: str, name: str, error: int) -> SettingRefused:
        return access_refused(
            f"{self.where}: the broker answered {error_name(error)} for {name!r}", right
        )


@dataclass
class _Call(Generic[K]):
    """One request of many: what still has no final answer, in the order given, and the answers.

    ``nodes``: which to ask, as far as it is known; ``learn`` asks the cluster for others, and what
    was wrong is forgotten. ``again``: why something has to be asked once more.
    """

    router: Router
    pending: dict[K, None]
    question: Question[K]
    nodes: dict[K, int]
    learn: Learn[K]
    done: dict[K, tuple[int, Any]] = field(default_factory=dict)
    again: str = ""

    def step(self) -> None:
        """Ask once for everything that is pending.

        Raises:
            Again: something is still pending.
        """
        self.again = ""
        connection = self.router.connection()
        if unknown := [key for key in self.pending if key not in self.nodes]:
            self.nodes.update(self.learn(unknown))
        groups: dict[int, list[K]] = defaultdict(list)
        for key in self.pending:
            if (node := self.nodes.get(key)) is None:
                raise Again(f"no leader or coordinator of {key}")
            groups[node].append(key)
        connection.run_together(
            [lane for node, keys in groups.items() for lane in self._lanes(connection, node, keys)]
        )
        if self.pending:
            raise Again(self.again or "no answer")

    def _lanes(
        self, connection: AdminConnection, node: int, keys: Sequence[K]
    ) -> list[Callable[[], Awaitable[None]]]:
        """Coroutines that take what there is to ask of a node from one queue."""
        question, size = self.question, self.question.each_max
        queue = deque(keys[i : i + size] for i in range(0, len(keys), size))

        async def lane() -> None:
            while queue:
                part = queue.popleft()
                try:
                    answer = await connection.send(question.request(part), node)
                    rows = list(question.read(answer, part))
                except kafka_errors.KafkaError as error:
                    # the rest would meet the same; the next step asks for where it is now
                    queue.clear()
                    if is_denied(error):
                        raise
                    self.again = self.again or reason_of(error)
                    self._forget(part)
                else:
                    self._take(rows)

        return [lane] * min(LANES, len(queue))

    def _take(self, rows: Iterable[tuple[K, int, Any]]) -> None:
        for key, error, value in rows:
            failure = failure_of(error)
            if failure is KafkaFailure.BUSY or failure in self.question.also_retriable:
                self.again = self.again or error_name(error)
                if failure is not KafkaFailure.CONCURRENT:  # which its very coordinator says
                    self._forget([key])
            else:
                self.done[key] = (error, value)
                self.pending.pop(key, None)

    def _forget(self, keys: Iterable[K]) -> None:
        for key in keys:
            self.nodes.pop(key, None)


def error_name(code: int) -> str:
    """As kafka-python calls it, for a message; empty for none."""
    return "" if code == 0 else str(kafka_errors.for_code(code).__name__)


def check(code: int) -> None:
    """
    Raises:
        KafkaError: the error with this code, unless it is 0.
    """
    if code:
        raise kafka_errors.for_code(code)()


def in_topics(topics: Iterable[Any]) -> Iterator[tuple[Partition, int, Any]]:
    """(partition, the error's code or 0, what is said of it)."""
    for topic in topics:
        for p in topic.partitions:
            yield (topic.name, p.partition_index), p.error_code, p


def by_topic(partitions: Iterable[Partition]) -> Mapping[str, list[int]]:
    """Indexes by topic."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        grouped[topic].append(index)
    return grouped
