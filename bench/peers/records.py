"""What goes in: numbered records that carry the time they were sent, behind gates or at a rate.

A value begins with its number (16 digits) and the time it was sent (16 digits, in microseconds);
noise fills it up. Record i is in partition i modulo the partitions and has key i modulo ``KEYS``,
where it has one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from confluent_kafka import Producer as PlainProducer

from bench.peers.settings import KEYS, PARTITIONS, TRANSACTION_TIMEOUT_MS
from exactum.kafka.librdkafka import MESSAGE
from exactum.kafka.producer import Producer

CHUNK = 50_000
TICKS_PER_S = 200
TIMEOUT_MS = 120_000
LATE_MAX_S = 0.5
"""What could not be written in time is sent late, up to so much of it: a rate that the machine does
not reach would be made up for long after it was changed."""


class Writer:
    """Appends records to one topic, numbering on."""

    def __init__(self, servers: str, topic: str, size: int, *, keyed: bool, linger_ms: int) -> None:
        self.topic = topic
        self.count = 0
        self._keyed = keyed
        # Idempotent: a retry on a busy machine would double a record, and a contender would be
        # blamed for it.
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": str(linger_ms),
                "enable.idempotence": "true",
            }
        )
        noise = np.random.default_rng(1)
        self._values = noise.integers(33, 126, size=(CHUNK, size), dtype=np.uint8)
        self._keys = np.zeros((CHUNK, 8), dtype=np.uint8)

    def write(self, count: int) -> None:
        """Enqueue ``count`` records, sent now."""
        while count:
            chunk = min(count, CHUNK)
            self._write_chunk(chunk)
            count -= chunk

    def flush(self) -> None:
        self._producer.flush(TIMEOUT_MS)

    def close(self) -> None:
        self.flush()
        self._producer.destroy()

    def _write_chunk(self, count: int) -> None:
        ids = np.arange(self.count, self.count + count)
        self._values[:count, :16] = digits(ids, 16)
        self._values[:count, 16:32] = digits(np.array([time.time_ns() // 1000]), 16)
        messages = np.zeros(count, dtype=MESSAGE)
        size = self._values.shape[1]
        messages["payload"] = self._values.ctypes.data + np.arange(
            count, dtype=np.uint64
        ) * np.uint64(size)
        messages["len"] = size
        messages["partition"] = ids % PARTITIONS
        if self._keyed:
            self._keys[:count] = digits(ids % KEYS, 8)
            messages["key"] = self._keys.ctypes.data + np.arange(
                count, dtype=np.uint64
            ) * np.uint64(8)
            messages["key_len"] = 8
        self._producer.produce_array(self.topic, messages, timeout_ms=TIMEOUT_MS)
        self.count += count


def digits(numbers: np.ndarray, width: int) -> np.ndarray:
    """One row of ASCII digits for each number."""
    powers = 10 ** np.arange(width - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // powers % 10 + 48).astype(np.uint8)


class Gates:
    """Loads that are all written at once and become readable one after the other.

    Before each load but the first stands an open transaction, which a read_committed reader does
    not read past. Opening the gate aborts it: nothing of it is ever read, and the next load is
    there at that instant, however long its writing took.
    """

    def __init__(self, servers: str, writer: Writer, loads: Sequence[int]) -> None:
        self._gates: list[PlainProducer] = []
        for number, load in enumerate(loads):
            if number:
                self._gates.append(closed_gate(servers, writer.topic, number))
            writer.write(load)
            writer.flush()

    def open_next(self) -> int:
        """Returns the clock in microseconds, just before."""
        began_us = time.time_ns() // 1000
        self._gates.pop(0).abort_transaction(TIMEOUT_MS / 1000)
        return began_us

    def discard(self) -> None:
        """Open what is still closed, for nobody: a transaction left open would outlive its
        topic.
        """
        while self._gates:
            self.open_next()


def closed_gate(servers: str, topic: str, number: int) -> PlainProducer:
    gate = PlainProducer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"gate-{topic}-{number}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
    )
    gate.init_transactions(TIMEOUT_MS / 1000)
    gate.begin_transaction()
    for partition in range(PARTITIONS):
        gate.produce(topic, b"gate", partition=partition)
    gate.flush(TIMEOUT_MS / 1000)
    return gate


class Feeder:
    """Writes at a rate that can be changed, in a thread of its own; ``count`` records so far."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rate_per_s = 0.0
        self._ended = threading.Event()
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def __enter__(self) -> Feeder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def rate(self, records_per_s: float) -> None:
        self._rate_per_s = records_per_s

    def stop(self) -> int:
        """Flushes; returns how many records there are. Idempotent."""
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise RuntimeError("the feeder failed") from self.error
        self._writer.flush()
        return self._writer.count

    def _run(self) -> None:
        try:
            due, before_s = 0.0, time.monotonic()
            while not self._ended.wait(1 / TICKS_PER_S):
                now_s, rate = time.monotonic(), self._rate_per_s
                # What is late carries the time it was sent.
                due = min(due + rate * (now_s - before_s), rate * LATE_MAX_S)
                before_s = now_s
                self._writer.write(int(due))
                due -= int(due)
        except Exception as error:  # noqa: BLE001  (raised again by whoever stops it)
            self.error = error
