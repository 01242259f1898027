"""The transactional producers of one process: who owns which transactional id, and when it may be
reused. A process has one pool for each sink's plan: made when it is first asked for, closed when it
has been idle for long.

Rules (docs/adr/0003):

- an id belongs to this process; nobody else initialises it;
- every transaction has a new producer epoch, so a producer serves one transaction and is then let
  go;
- an id is initialised again only when its last transaction is settled. Epochs run one after
  another, so when a task of write job n runs, all transactions of earlier write jobs are settled.

Initialising takes 20 to 60 ms of waiting for the broker, so producers for the next transactions are
initialised ahead of need, in the background: as many as the last write job took.
"""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import threading
import time
import weakref
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from exactum.errors import SettingRefused, Unavailable
from exactum.kafka.failure import DeliveryError, KafkaFailure, access_refused
from exactum.kafka.producer import Producer
from exactum.kafka.settings import Settings, of_producer
from exactum.kafka.topic import TopicBook
from exactum.kafka.transaction import KafkaScope
from exactum.protocol.model import Incarnation

log = logging.getLogger("exactum.kafka")

AHEAD_MAX = 16
"""Most producers kept initialised ahead of need, by each process and sink."""
INIT_TIMEOUT_MS = 60_000
UNUSED, IN_USE = -1, math.inf
"""Of a transactional id, beside the number of the write job that used it last."""
LEARN_TIMEOUT_MS = 1_000
"""Longest wait of a task for the topic's leaders, with which it sends records without a key a
little faster.
"""


@dataclass(frozen=True)
class ProducerPlan:
    """What a process needs to make the producers of one sink in one run of a query. Picklable."""

    bootstrap_servers: str
    settings: Settings = field(repr=False)  # it may hold a password
    scope: KafkaScope
    incarnation: Incarnation
    transaction_timeout_ms: int
    topic: str | None = None

    def producer_settings(self, transactional_id: str | None) -> dict[str, str]:
        """librdkafka settings; ``transactional_id`` None: idempotent only."""
        own = {"bootstrap.servers": self.bootstrap_servers}
        if transactional_id is not None:
            own["transactional.id"] = transactional_id
            own["transaction.timeout.ms"] = str(self.transaction_timeout_ms)
        return of_producer(dict(self.settings), own)


@dataclass
class OwnedProducer:
    """An initialised producer, its id, and the write job that took it."""

    producer: Producer
    transactional_id: str
    sequence: int = 0


class ProducerPool:
    """The producers of this process for one plan. Safe to use from threads."""

    def __init__(self, plan: ProducerPlan) -> None:
        self._plan = plan
        self._worker = secrets.token_hex(8)
        self._lock = threading.Lock()
        self._sequence = 0  # the newest write job
        self._taken, self._taken_before = 0, 1  # producers, by it and by the one before
        self._ids: dict[str, float] = {}
        """Of each the write job that used it last, by which it is settled once a later one runs;
        ``IN_USE`` while a producer has it."""
        self._ahead: deque[Future[OwnedProducer]] = deque()
        self._background = ThreadPoolExecutor(max_workers=4, thread_name_prefix="exactum-producers")
        self._plain: Producer | None = None
        self.topics = TopicBook(plan.bootstrap_servers, plan.settings)
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self.used_s = time.monotonic()
        """When somebody left it last."""

    # ---- whether it is needed ----------------------------------------------------------------

    def enter(self, user: object) -> None:
        """The pool is in use until ``user`` leaves, or is forgotten by everybody."""
        self._users.add(user)

    def leave(self, user: object) -> None:
        """Idempotent."""
        self._users.discard(user)
        self.used_s = time.monotonic()

    @property
    def in_use(self) -> bool:
        return len(self._users) > 0

    # ---- producers ---------------------------------------------------------------------------

    def take(self, sequence: int) -> OwnedProducer:
        """An initialised producer with no transaction begun, for a task of write job ``sequence``.

        Raises:
            Unavailable: the broker did not initialise one in time.
            SettingRefused: the broker refused for good (rights, timeout).
        """
        with self._lock:
            if sequence > self._sequence:
                self._taken_before = max(1, self._taken)
                self._taken, self._sequence = 0, sequence
            self._taken += 1
            future = self._next()
        try:
            owned = future.result()
        except Exception:
            with self._lock:
                self._taken -= 1
            raise
        owned.sequence = sequence
        return owned

    def initialise_ahead(self) -> None:
        """Begin to initialise what the next transactions will need; returns at once."""
        with self._lock:
            wanted = min(AHEAD_MAX, max(1, self._taken_before - self._taken, self._taken))
            while len(self._ahead) < wanted:
                self._ahead.append(self._submit())

    def let_go(self, owned: OwnedProducer) -> None:
        """The task is done with it; an open transaction stays open. Returns at once."""
        self._background.submit(owned.producer.destroy)
        with self._lock:
            self._ids[owned.transactional_id] = owned.sequence

    def plain(self) -> Producer:
        """The one idempotent, not transactional producer of this process (at least once)."""
        if self._plain is None:
            self._plain = Producer(self._plan.producer_settings(None))
        return self._plain

    def informed(self, producer: Producer) -> Producer:
        """The producer, which has asked for the topic's leaders again where what it knew of them
        was too old.
        """
        topic = self._plan.topic
        if topic is not None and not producer.knows(topic):
            with contextlib.suppress(
                DeliveryError
            ):  # without an answer it is librdkafka that chooses the partitions
                producer.learn(topic, LEARN_TIMEOUT_MS)
        return producer

    def forget_plain(self) -> None:
        """Drop it after an error; the next task makes a new one."""
        if self._plain is not None:
            self._background.submit(self._plain.destroy)
            self._plain = None

    def close(self) -> None:
        """Let all go, in the background."""
        with self._lock:
            waiting, self._ahead = list(self._ahead), deque()
        for future in waiting:
            future.add_done_callback(_destroy_result)
        self.forget_plain()
        self._background.submit(self.topics.close)
        self._background.shutdown(wait=False)

    def _next(self) -> Future[OwnedProducer]:
        """One made ahead, a ready one first, else a new one; what failed is no good."""
        while self._ahead:
            future = next((each for each in self._ahead if each.done()), self._ahead[0])
            self._ahead.remove(future)
            if not future.done() or future.exception() is None:
                return future
        return self._submit()

    def _submit(self) -> Future[OwnedProducer]:
        scope, incarnation = self._plan.scope, self._plan.incarnation
        name = next(
            (name for name, last in self._ids.items() if last < self._sequence),
            scope.transactional_id(incarnation, self._worker, len(self._ids)),
        )
        self._ids[name] = IN_USE
        return self._background.submit(self._initialised, name)

    def _initialised(self, transactional_id: str) -> OwnedProducer:
        try:
            return OwnedProducer(initialised(self._plan, transactional_id), transactional_id)
        except Exception:
            with self._lock:
                self._ids[transactional_id] = UNUSED
            raise


def initialised(
    plan: ProducerPlan, transactional_id: str, timeout_ms: int = INIT_TIMEOUT_MS
) -> Producer:
    """A new producer with a new epoch of ``transactional_id``.

    Raises:
        Unavailable: the broker did not answer in time, or refused for now.
        SettingRefused: it refused for good.
    """
    producer = Producer(plan.producer_settings(transactional_id))
    end_s = time.monotonic() + timeout_ms / 1000

    def left_ms() -> int:
        return max(1, int((end_s - time.monotonic()) * 1000))

    while True:
        try:
            # The answer to the first makes librdkafka leave the bootstrap connection; the answer to
            # the second shows that one to a broker is up. Asked for the coordinator in between, it
            # waits for 500 ms to ask again (rdkafka_txnmgr.c, rd_kafka_txn_coord_query): under load
            # one in six took so long, now 0 of 180.
            producer.learn(plan.topic, left_ms())
            producer.learn(plan.topic, left_ms())
            producer.init_transactions(left_ms())
            return producer
        except SettingRefused:
            producer.destroy()
            raise
        except DeliveryError as error:
            if error.retriable and time.monotonic() < end_s:
                continue
            detail = producer.last_error()
            producer.destroy()
            raise _init_failure(plan, transactional_id, error, detail) from error


def _init_failure(
    plan: ProducerPlan, transactional_id: str, error: DeliveryError, detail: str
) -> SettingRefused | Unavailable:
    where = f"transactional id {transactional_id!r} at {plan.bootstrap_servers}"
    if error.failure is KafkaFailure.REFUSED:
        return SettingRefused(
            "KAFKA_TIMEOUT",
            f"The broker refused {where}, with transaction_timeout_ms="
            f"{plan.transaction_timeout_ms}: {error}. Lower that where it is above the broker's "
            "transaction.max.timeout.ms, or raise that setting.",
        )
    if error.failure in (KafkaFailure.DENIED, KafkaFailure.LOGIN):
        right = "WRITE and DESCRIBE on the transactional id"
        return access_refused(f"The broker refused {where}: {error}", right)
    extra = f" ({detail})" if detail else ""
    return Unavailable(f"The producer for {where} could not be initialised: {error}{extra}.")


def _destroy_result(future: Future[OwnedProducer]) -> None:
    if not future.cancelled() and future.exception() is None:
        future.result().producer.destroy()


# ---- the pools of this process ---------------------------------------------------------------


POOL_IDLE_MAX_S = 900.0
"""Longest that a pool waits for its next task, which then gets a new one: the broker forgets an id
that was idle (transactional.id.expiration.ms, a week by default), and a producer whose id is
forgotten fails with its first record."""
POOLS_IDLE_MAX, POOL_IDLE_MIN_S = 8, 5.0
"""Most pools that wait; of more, those go that have been idle for longest, and not at once: a query
may have many sinks."""


class ProcessPools:
    """The pools by plan. Spark keeps worker processes, so they outlive a task and an epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[ProducerPlan, ProducerPool] = {}

    def pool_of(self, plan: ProducerPlan, user: object) -> ProducerPool:
        """The pool for ``plan``, in use by ``user`` from here on. It is never closed while
        somebody uses it.
        """
        with self._lock:
            self._close_the_idle()
            if plan not in self._pools:
                self._pools[plan] = ProducerPool(plan)
            pool = self._pools[plan]
            pool.enter(user)
            return pool

    def _close_the_idle(self) -> None:
        now_s = time.monotonic()
        idle_s = {p: now_s - pool.used_s for p, pool in self._pools.items() if not pool.in_use}
        for count, plan in enumerate(sorted(idle_s, key=idle_s.__getitem__)):
            idle_max_s = POOL_IDLE_MAX_S if count < POOLS_IDLE_MAX else POOL_IDLE_MIN_S
            if idle_s[plan] > idle_max_s:
                self._pools.pop(plan).close()


process_pools = ProcessPools()
"""Of this process: a task finds its sink's producers where the task before has left them."""
