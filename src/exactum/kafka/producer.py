"""A producer on librdkafka's C interface: whole arrays in, no Python object for a record.

Why not confluent-kafka's own ``Producer``: it takes one record at a time (measured: 0.46 s against
0.26 s for a million), has no way to read the producer id and epoch short of a callback, and hides
delivery errors of whole arrays (docs/adr/0006).
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int
from dataclasses import dataclass

import numpy as np

from exactum.errors import InvariantBroken, SettingRefused
from exactum.kafka import librdkafka
from exactum.kafka.failure import DeliveryError, DeliveryErrors, fatal_error, raise_error, refused
from exactum.kafka.records import Array, HeaderColumn
from exactum.kafka.settings import new_producer
from exactum.kafka.topic import name_trouble

PARTITIONERS = ("murmur2_random", "consistent_random", "fnv1a_random")
"""Those of librdkafka that stay with a partition where there is no key (rdkafka_msg.c,
rd_kafka_msg_partitioner).
"""
LEARNED_AGE_MAX_S = 60.0
"""How long a producer goes by what it learned of a topic; a leader may have been lost since, and
librdkafka knows.
"""


@dataclass(frozen=True)
class LearnedTopic:
    """What a broker said of one topic at a moment of our monotonic clock: how many partitions it
    has, and which of them have a leader.
    """

    partitions: int
    led: Sequence[int]
    at_s: float

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at_s < LEARNED_AGE_MAX_S


def learned(topic: str, metadata: librdkafka.Metadata) -> LearnedTopic:
    """From a broker's answer; one that does not know the topic names no partitions."""
    now_s = time.monotonic()
    for known in metadata.topics[: metadata.topic_cnt]:
        if known.topic == topic.encode():
            partitions = known.partitions[: known.partition_cnt]
            led = sorted(partition.id for partition in partitions if partition.leader >= 0)
            return LearnedTopic(len(partitions), led, now_s)
    return LearnedTopic(0, (), now_s)


# ---- the producer ----------------------------------------------------------------------------


log = logging.getLogger("exactum.kafka")

FLUSH_SLICE_MS = 20
"""A flush waits so long at a time; most are over then."""
FLUSH_REST_MS = 10
"""Longest pause between two slices."""
DROP_TIMEOUT_MS = 500
"""Longest wait for the records of a transaction that is left."""
_ACQUIRED = re.compile(rb"Acquired PID\{Id:(\d+),Epoch:(\d+)\}")
"""How librdkafka logs the identity that a broker gave to a producer (``rd_kafka_idemp_pid_update``,
the same text since 1.0). Its statistics tell it as well, but they cannot be had once: each takes a
millisecond of a core, and those that nobody reads pile up in memory (docs/adr/0006)."""
ARRAY_MAX = 1 << 20
"""Most messages in one call: librdkafka counts them in 32 bits."""


class Producer:
    """One producer instance; transactional when ``transactional.id`` is among the settings.

    Not for use by several threads at once. ``destroy`` leaves an open transaction open, which is
    what a prepared transaction needs.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Create; connects in the background.

        Raises:
            SettingRefused: librdkafka does not take one of the settings.
        """
        self._c = librdkafka.library()
        self._errors = DeliveryErrors()
        self._identity: tuple[int, int] | None = None
        self._topics: dict[str, int] = {}  # librdkafka's handles, made when first asked for
        self._learned: dict[str, LearnedTopic] = {}
        lingers = settings.get("sticky.partitioning.linger.ms") != "0"
        self._spreads = lingers and settings.get("partitioner", PARTITIONERS[1]) in PARTITIONERS
        self.uncounted_bytes = 0  # at most, of keys and headers since the queue was last empty
        own = {"delivery.report.only.error": "true", "log.queue": "true"}
        if "transactional.id" in settings:
            # Where _ACQUIRED is found.
            own["debug"] = ",".join(filter(None, (settings.get("debug", ""), "eos")))
        self._handle: int | None = new_producer({**settings, **own}, events=librdkafka.EVENTS)
        self._log_level = (
            None if settings.get("debug") else int(settings.get("log_level", librdkafka.LOG_INFO))
        )
        self._queue = self._c.rd_kafka_queue_get_main(self._handle)
        self._c.rd_kafka_set_log_queue(self._handle, self._queue)

    # ---- transactions ------------------------------------------------------------------------

    def init_transactions(self, timeout_ms: int) -> None:
        """Get a producer epoch of our own; aborts what the id may still have open.

        Raises:
            DeliveryError: the coordinator refused, or did not answer within ``timeout_ms``.
            SettingRefused: librdkafka did not tell the epoch in the way that exactum knows.
        """
        raise_error(self._c.rd_kafka_init_transactions(self._client, timeout_ms))
        # The log's line is in the queue before the call returns: the same thread writes both.
        self.poll(0)
        if self._log_level is not None:  # the rest of the debug log is of no use
            self._c.rd_kafka_set_log_level(self._client, self._log_level)
        if self._identity is None:
            version = self._c.rd_kafka_version_str().decode()
            raise SettingRefused(
                "KAFKA_LIBRARY",
                f"librdkafka {version} does not log the producer id as versions up to 2.16 do, and "
                "exactum needs it. Install an earlier confluent-kafka (2.11 to 2.16 are known to "
                "work).",
            )

    def begin_transaction(self) -> None:
        raise_error(self._c.rd_kafka_begin_transaction(self._client))

    @property
    def identity(self) -> tuple[int, int]:
        """The (producer id, producer epoch); known once transactions are initialised."""
        if self._identity is None:
            raise RuntimeError("the producer is not initialised")
        return self._identity

    def learn(self, topic: str | None, timeout_ms: int) -> None:
        """Connect and fetch the metadata of ``topic`` now rather than with its first record.

        Records without key and partition are spread by this producer itself as long as it ``knows``
        the topic.

        Before ``init_transactions`` it saves 500 ms half of the time (see
        ``producer_pool.initialised``): librdkafka asks for the coordinator before a connection is
        up and repeats that only every 500 ms.

        Raises:
            DeliveryError: no broker answered within ``timeout_ms``.
        """
        answer = POINTER(librdkafka.Metadata)()
        handle = self._topic(topic) if topic is not None else None
        code = self._c.rd_kafka_metadata(self._client, 0, handle, byref(answer), timeout_ms)
        if code != 0:
            raise DeliveryError(code, self._c.rd_kafka_err2str(code).decode(), retriable=True)
        try:
            if topic is not None:
                self._learned[topic] = learned(topic, answer.contents)
        finally:
            self._c.rd_kafka_metadata_destroy(answer)

    def knows(self, topic: str) -> bool:
        """Whether it has learned of the topic, and not too long ago."""
        return topic in self._learned and self._learned[topic].is_fresh

    def partition_count(self, topic: str) -> int:
        """How many partitions it had when it was learned of; 0 where nothing is known."""
        return self._learned[topic].partitions if topic in self._learned else 0

    # ---- records -----------------------------------------------------------------------------

    def produce_array(
        self, topic: str, messages: Array, *, timeout_ms: int, anywhere: bool = False
    ) -> None:
        """Enqueue messages (dtype ``MESSAGE``, contiguous); keys and values are copied. Order is
        kept.

        ``partition`` of each message counts; -1 leaves it to the partitioner. ``anywhere``: none
        has a key or a partition, so they all go to one that has a leader. Waits while the queue is
        full.

        Raises:
            DeliveryError: librdkafka refused one (its ``err``), or the queue stayed full
                ``timeout_ms``.
        """
        if messages.dtype != librdkafka.MESSAGE or not messages.flags.c_contiguous:
            raise InvariantBroken(
                f"Messages of {messages.dtype} were to be sent, or some that do not lie in a row."
            )
        handle = self._topic(topic)
        end_s = time.monotonic() + timeout_ms / 1000
        partition, flags = (
            librdkafka.PARTITION_UNASSIGNED,
            librdkafka.F_COPY | librdkafka.F_PARTITION,
        )
        turn = self._turn(topic) if anywhere else None
        if turn is not None:
            partition, flags = turn, librdkafka.F_COPY
        while len(messages):
            part = messages[:ARRAY_MAX]
            count = self._c.rd_kafka_produce_batch(
                handle, partition, flags, part.ctypes.data, len(part)
            )
            if count == len(part):
                messages = messages[count:]
                continue
            failed = np.flatnonzero(part["err"])
            first = int(failed[0]) if len(failed) else count
            code = int(part["err"][first]) if len(failed) else librdkafka.ERR_QUEUE_FULL
            if code != librdkafka.ERR_QUEUE_FULL:
                raise refused(topic, part[first], code)
            if time.monotonic() > end_s:
                raise DeliveryError(
                    librdkafka.ERR_QUEUE_FULL, f"the producer queue stayed full for {timeout_ms} ms"
                )
            messages = messages[first:]
            self._wait_for_room()

    def _turn(self, topic: str) -> int | None:
        """Where an array of records goes that has neither keys nor partitions: all into one
        partition, another for each (KIP-480). None: librdkafka's partitioner is to be asked.

        librdkafka stays with one for a while as well, but asks its partitioner for each record, and
        that is a good part of what a small record costs it.
        """
        known = self._learned.get(topic)
        if known is None or not (self._spreads and known.is_fresh and known.led):
            return None
        return random.choice(known.led)

    def produce_with_headers(
        self,
        topic: str,
        messages: Array,
        headers: HeaderColumn,
        rows: Array,
        timestamps_ms: Array,
        *,
        timeout_ms: int,
    ) -> None:
        """Enqueue messages (dtype ``MESSAGE``) with their headers: one call for each, slower than
        ``produce_array``.

        ``rows`` are theirs in ``headers``, which are copied as well. ``timestamps_ms``: of each, 0
        for now.

        Raises:
            DeliveryError: as ``produce_array``.
        """
        client, end_s = self._client, time.monotonic() + timeout_ms / 1000
        fields, begins, counts = headers.fields(self._topic(topic), messages, rows, timestamps_ms)
        addresses = fields.ctypes.data + begins * fields.itemsize
        send = self._c.rd_kafka_produceva
        for address, count in zip(addresses.tolist(), counts.tolist(), strict=True):
            while error := send(client, address, count):
                self._refused_for_now(error, end_s)

    def _refused_for_now(self, error: int, end_s: float) -> None:
        """Wait for room where a record was not taken because the queue is full.

        Raises:
            DeliveryError: it was not taken for another reason, or the time is over.
        """
        try:
            raise_error(error)
        except DeliveryError as refusal:
            if refusal.code != librdkafka.ERR_QUEUE_FULL or time.monotonic() > end_s:
                raise
        self._wait_for_room()

    def flush(self, timeout_ms: int) -> None:
        """Wait until every record is acknowledged.

        Raises:
            DeliveryError: a record failed for good, or ``timeout_ms`` passed.
        """
        end_s = time.monotonic() + timeout_ms / 1000
        while self._c.rd_kafka_flush(self._client, FLUSH_SLICE_MS) != 0:
            self._rest(0)
            self.raise_delivery_errors()
            if time.monotonic() > end_s:
                waiting = self._c.rd_kafka_outq_len(self._client)
                last = f"; last: {self._errors.last}" if self._errors.last else ""
                late = f"{waiting} records unacknowledged after {timeout_ms} ms{last}"
                raise DeliveryError(librdkafka.ERR_TIMED_OUT, late)
        self.uncounted_bytes = 0
        self.poll(0)
        self.raise_delivery_errors()

    def _wait_for_room(self) -> None:
        """Wait until a record has left the full queue, or send batches that are not full: all of
        them may be such.
        """
        waiting = self._c.rd_kafka_outq_len(self._client)
        if not self._rest(waiting - 1):
            self._c.rd_kafka_flush(self._client, FLUSH_SLICE_MS)
        self.raise_delivery_errors()

    def _rest(self, waiting: int) -> bool:
        """Wait a little until no more than ``waiting`` records are unacknowledged; whether that
        came.

        Between two slices of a flush: in them librdkafka's thread polls without a pause (see
        ``settings.LINGER_MS``).
        """
        end_s = time.monotonic() + FLUSH_REST_MS / 1000
        while True:
            self.poll(1)
            if self._c.rd_kafka_outq_len(self._client) <= waiting:
                return True
            if time.monotonic() > end_s:
                return False

    def raise_delivery_errors(self) -> None:
        """Raise the failure of any record seen so far."""
        if not self._errors:
            return
        raise fatal_error(self._client) or self._errors.of_records()

    def poll(self, timeout_ms: int) -> None:
        """Serve events for at most ``timeout_ms``; returns after the first one and all that queue
        behind.
        """
        event = self._c.rd_kafka_queue_poll(self._queue if self._client else None, timeout_ms)
        while event:
            try:
                self._serve(event)
            finally:
                self._c.rd_kafka_event_destroy(event)
            event = self._c.rd_kafka_queue_poll(self._queue, 0)

    def last_error(self) -> str:
        """The newest client-level error, such as a refused connection; empty when there was
        none.
        """
        self.poll(0)
        return self._errors.last

    def destroy(self) -> None:
        """Let go, leaving an open transaction open; unsent records are dropped. Idempotent."""
        if self._handle is None:
            return
        end_s = time.monotonic() + DROP_TIMEOUT_MS / 1000
        while (waits := self._c.rd_kafka_flush(self._handle, FLUSH_SLICE_MS)) and (
            time.monotonic() < end_s
        ):
            self.poll(0)  # a failed record is waited for until its report is read
        if waits and self._identity is not None:
            # librdkafka 2.16 ends the process where it hears that a partition was added to the
            # transaction when its own end has begun (rd_kafka_txn_handle_AddPartitionsToTxn). A
            # broker that is so slow may answer now: it is left to its threads, without its records.
            self._c.rd_kafka_purge(self._handle, librdkafka.PURGE_ALL)
            self.poll(FLUSH_REST_MS)
            self._handle = None
            return
        handle, self._handle = self._handle, None
        for topic in self._topics.values():
            self._c.rd_kafka_topic_destroy(topic)
        self._topics.clear()
        self._c.rd_kafka_queue_destroy(self._queue)
        self._c.rd_kafka_destroy(handle)

    # ---- events ------------------------------------------------------------------------------

    def _serve(self, event: int) -> None:
        kind = self._c.rd_kafka_event_type(event)
        if kind == librdkafka.EVENT_DR:
            while report := self._c.rd_kafka_event_message_next(event):
                self._errors.note(report.contents)
        elif kind == librdkafka.EVENT_ERROR:
            text = self._c.rd_kafka_event_error_string(event).decode(errors="replace")
            self._errors.last = str(DeliveryError(self._c.rd_kafka_event_error(event), text))
            log.info("librdkafka: %s", self._errors.last)
        elif kind == librdkafka.EVENT_LOG:
            facility, text_p, level = c_char_p(), c_char_p(), c_int()
            self._c.rd_kafka_event_log(event, byref(facility), byref(text_p), byref(level))
            line = text_p.value or b""
            acquired = _ACQUIRED.search(line)
            if acquired is not None:
                self._identity = int(acquired[1]), int(acquired[2])
            log.debug("librdkafka: %s", line.decode(errors="replace"))

    def _topic(self, name: str) -> int:
        """
        Raises:
            DeliveryError: no topic can have this name.
        """
        if name not in self._topics:
            trouble = name_trouble(name.encode(errors="backslashreplace"))
            made = (
                None if trouble else self._c.rd_kafka_topic_new(self._client, name.encode(), None)
            )
            if not made:
                refusal = f"the topic {name!r} {trouble or 'is refused by librdkafka'}"
                raise DeliveryError(librdkafka.ERR_TOPIC_EXCEPTION, refusal)
            self._topics[name] = made
        return self._topics[name]

    @property
    def _client(self) -> int:
        """The handle; librdkafka would crash without one."""
        if self._handle is None:
            raise InvariantBroken("A producer was used after it was let go.")
        return self._handle
