"""A prototype of a reader that lives as long as a worker: librdkafka by its C interface, records to
Arrow without a Python object for each.

Measured, and not fit for use: headers and timestamps are not read, nor is a rebalanced or a deleted
topic looked for.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.kafka import librdkafka
from exactum.kafka.client_settings import new_conf

Numbers = np.ndarray[Any, Any]

CONSUMER = 1
RECORDS_MAX = 10_000
BYTES_MAX = 2 << 20
"""In one Arrow batch, about."""
POLL_MS = 5
"""How long one partition is waited for, until ``RECORDS_MAX`` are there."""
STALL_S = 60.0
"""How long a range may bring nothing before it is an error."""
RUN_GAP_MAX = 1 << 20
"""Values that lie further apart are not taken as of one piece of memory."""
EOF = -191
SETTINGS = {
    "group.id": "exactum-live",
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "fetch.queue.backoff.ms": "1",
    "fetch.wait.max.ms": "5",
    "check.crcs": "true",
    "log_level": "0",
    "fetch.message.max.bytes": str(2 * 2**20),
    "queued.max.messages.kbytes": str(32 * 2**10),
}
"""Checked as Java's client checks; the fetch as ``read_kafka`` has it."""
_SIGNATURES: Mapping[str, tuple[Any, list[Any]]] = {
    "rd_kafka_consume_start": (c_int, [c_void_p, c_int32, c_int64]),
    "rd_kafka_consume_stop": (c_int, [c_void_p, c_int32]),
    "rd_kafka_seek": (c_int, [c_void_p, c_int32, c_int64, c_int]),
    "rd_kafka_consume_batch": (c_ssize_t, [c_void_p, c_int32, c_int, c_void_p, c_size_t]),
    "rd_kafka_poll": (c_int, [c_void_p, c_int]),
    "rd_kafka_get_watermark_offsets": (
        c_int,
        [c_void_p, c_char_p, c_int32, POINTER(c_int64), POINTER(c_int64)],
    ),
}


@cache
def library() -> Any:
    """librdkafka with what a consumer calls."""
    c = librdkafka.library()
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(c, name)
        function.restype, function.argtypes = result, arguments
    return c


@cache
def _destroy() -> Any:
    """``rd_kafka_message_destroy``; the GIL is kept, since to let go of it costs more."""
    from confluent_kafka import cimpl

    function = ctypes.PyDLL(cimpl.__file__).rd_kafka_message_destroy
    function.restype, function.argtypes = None, [c_void_p]
    return function


BASE = 1 << 12
"""Below it there is nothing."""
WORDS = (1 << 47) // 8 - BASE


@cache
def _memory() -> Numbers:
    """The process's memory in words of eight bytes, from ``BASE`` on."""
    whole: Any = (ctypes.c_uint64 * WORDS).from_address(BASE)
    words: Numbers = np.frombuffer(whole, dtype=np.uint64)
    return words


_ERR, _PAYLOAD, _LEN, _KEY, _KEY_LEN, _OFFSET = 0, 3, 4, 5, 6, 7
"""Words of ``rd_kafka_message_t``."""


class Messages:
    """Messages that librdkafka has handed over, until ``free``."""

    def __init__(self, pointers: Numbers) -> None:
        self._pointers = pointers
        self._places = ((pointers - np.uint64(BASE)) >> np.uint64(3)).astype(np.int64)
        self.offsets = self._word(_OFFSET).astype(np.int64)
        self.errors = self._word(_ERR).astype(np.uint32).astype(np.int32)

    def __len__(self) -> int:
        return len(self._pointers)

    def _word(self, number: int) -> Numbers:
        words: Numbers = _memory()[self._places + number]
        return words

    def split(self, count: int) -> tuple[Messages, Messages]:
        return Messages(self._pointers[:count]), Messages(self._pointers[count:])

    def batch(self, columns: tuple[str, ...]) -> Any:
        """Key and value, copied."""
        words = {"value": (_PAYLOAD, _LEN), "key": (_KEY, _KEY_LEN)}
        arrays = [binary(*(self._word(word) for word in words[name])) for name in columns]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def free(self) -> None:
        deque(map(_destroy(), self._pointers.tolist()), maxlen=0)


def binary(addresses: Numbers, sizes: Numbers) -> Any:
    """An Arrow array of the values at these addresses; address 0 is null."""
    count = len(addresses)
    null = addresses == 0
    if null.all():
        return pa.nulls(count, pa.binary())
    if null.any():
        addresses, sizes = addresses.copy(), np.where(null, np.uint64(0), sizes)
        first = int(np.argmin(null))
        places = np.maximum.accumulate(np.where(null, first, np.arange(count)))
        addresses = np.where(null, addresses[places] + sizes[places], addresses)
        addresses[:first] = addresses[first]
    ends = addresses + sizes
    gaps = addresses[1:].astype(np.int64) - ends[:-1].astype(np.int64)
    cuts = np.flatnonzero((gaps < 0) | (gaps > RUN_GAP_MAX)) + 1
    bounds = [0, *cuts.tolist(), count]
    runs = [_run(addresses[begin:end], ends[begin:end]) for begin, end in pairwise(bounds)]
    whole = runs[0] if len(runs) == 1 else pa.concat_arrays(runs)
    return pc.if_else(pa.array(~null), whole, None) if null.any() else whole


def _run(addresses: Numbers, ends: Numbers) -> Any:
    """Values that lie one after the other, with what lies between them left out: Arrow reads them
    where they are, as every second value of an array, and copies those.
    """
    count, base = len(addresses), int(addresses[0])
    offsets = np.empty(2 * count, dtype=np.int32)
    offsets[0::2] = addresses - np.uint64(base)
    offsets[1::2] = ends - np.uint64(base)
    data = pa.foreign_buffer(base, int(ends[-1]) - base)
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data], 0)
    return pc.take(both, pa.array(np.arange(0, 2 * count, 2)), boundscheck=False)


class PartitionReader:
    """One partition, read on from where the last range ended; what was fetched ahead is kept."""

    def __init__(self, client: int, handle: int, topic: str, partition: int) -> None:
        self._c = library()
        self._client, self._handle = client, handle
        self._topic, self._partition = topic, partition
        self._at: int | None = None
        self._first = self._until = 0
        self._held: Messages | None = None
        self._end = -1
        self._pointers = np.zeros(RECORDS_MAX, dtype=np.uint64)
        self._count_max = 1_000

    def _drop(self) -> None:
        if self._held is not None:
            self._held.free()
            self._held = None

    def begin(self, first: int, until: int) -> None:
        """Read this range next."""
        self._go_to(first)
        self._first, self._until = first, until

    @property
    def done(self) -> bool:
        """Whether the range is read."""
        return self._at is not None and self._at >= self._until

    def step(self, columns: tuple[str, ...]) -> Any | None:
        """An Arrow batch of what comes next of the range, if anything does within ``POLL_MS``.

        Raises:
            RuntimeError: records are lost.
        """
        at = self._at or 0
        messages = self._next(min(self._count_max, self._until - at))
        if messages is None:
            if self._end >= self._until:
                self._at = self._until
            return None
        if at == self._first and int(messages.offsets[0]) > at:
            self._refuse_lost(at)
        count = int(np.searchsorted(messages.offsets, self._until))
        if count < len(messages):
            messages, self._held = messages.split(count)
            self._at = self._until
        else:
            self._at = int(messages.offsets[-1]) + 1
        if not len(messages):
            return None
        batch = messages.batch(columns)
        messages.free()
        self._count_max = max(1, min(RECORDS_MAX, BYTES_MAX * batch.num_rows // (batch.nbytes + 1)))
        return batch

    def _go_to(self, first: int) -> None:
        if self._at == first:
            return
        self._drop()
        self._end = -1
        if self._at is None:
            self._c.rd_kafka_consume_start(self._handle, self._partition, first)
        elif self._c.rd_kafka_seek(self._handle, self._partition, first, 10_000) != 0:
            raise RuntimeError(f"{self._topic}-{self._partition} cannot be read from {first}")
        self._at = first

    def _next(self, count_max: int) -> Messages | None:
        if self._held is not None:
            held, self._held = self._held, None
            return held
        count = self._c.rd_kafka_consume_batch(
            self._handle, self._partition, POLL_MS, self._pointers.ctypes.data, count_max
        )
        self._c.rd_kafka_poll(self._client, 0)
        if count <= 0:
            return None
        messages = Messages(self._pointers[:count].copy())
        wrong = np.flatnonzero(messages.errors)
        if not len(wrong):
            return messages
        place = int(wrong[0])
        code = int(messages.errors[place])
        if code != EOF:
            raise RuntimeError(librdkafka.library().rd_kafka_err2str(code).decode())
        self._end = int(messages.offsets[place])
        good, rest = messages.split(place)
        end, rest = rest.split(1)
        end.free()
        if len(rest):
            self._held = rest
        return good if len(good) else None

    def _refuse_lost(self, first: int) -> None:
        """What is missing at the begin of a range is compacted, aborted or gone."""
        low, high = c_int64(), c_int64()
        self._c.rd_kafka_get_watermark_offsets(
            self._client, self._topic.encode(), self._partition, byref(low), byref(high)
        )
        if low.value > first:
            raise RuntimeError(
                f"{self._topic}-{self._partition} begins at {low.value}, after {first}"
            )


Range = tuple[str, int, int, int]
"""Topic, partition, first offset, and the offset before which it ends."""


class Readers:
    """Those of one process and one cluster: one client for all partitions."""

    def __init__(self, servers: str) -> None:
        c = library()
        conf = new_conf({"bootstrap.servers": servers, **SETTINGS})
        text = ctypes.create_string_buffer(512)
        client = c.rd_kafka_new(CONSUMER, conf, text, 512)
        if not client:
            raise RuntimeError(text.value.decode())
        self._client = int(client)
        self._topics: dict[str, int] = {}
        self._partitions: dict[tuple[str, int], PartitionReader] = {}

    def of(self, topic: str, partition: int) -> PartitionReader:
        if topic not in self._topics:
            self._topics[topic] = int(
                library().rd_kafka_topic_new(self._client, topic.encode(), None)
            )
        if (topic, partition) not in self._partitions:
            self._partitions[topic, partition] = PartitionReader(
                self._client, self._topics[topic], topic, partition
            )
        return self._partitions[topic, partition]

    def batches(self, ranges: Sequence[Range], columns: tuple[str, ...]) -> Iterator[Any]:
        """Records of the ranges, of one partition after the other and round again.

        Raises:
            RuntimeError: records are lost, or nothing came for ``STALL_S``.
        """
        reading = [self.of(topic, partition) for topic, partition, _, _ in ranges]
        for one, (_, _, first, until) in zip(reading, ranges, strict=True):
            one.begin(first, until)
        deadline_s = time.monotonic() + STALL_S
        while reading := [one for one in reading if not one.done]:
            for one in reading:
                batch = one.step(columns)
                if batch is not None:
                    deadline_s = time.monotonic() + STALL_S
                    yield batch
            if time.monotonic() > deadline_s:
                raise RuntimeError(f"nothing came of {ranges}")


@cache
def readers(servers: str) -> Readers:
    """This process's."""
    return Readers(servers)
