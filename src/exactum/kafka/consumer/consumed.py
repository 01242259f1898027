"""Records that librdkafka has handed over, read where they lie, without a Python object for each,
and given back once (docs/adr/0026).
"""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.kafka.native import librdkafka

Numbers = np.ndarray[Any, Any]

_BASE = 1 << 12
"""Below it there is nothing."""
_WORDS = (1 << 48) // 8
_ERR, _PAYLOAD, _LEN, _KEY, _KEY_LEN, _OFFSET = 0, 3, 4, 5, 6, 7
"""Words of ``rd_kafka_message_t`` (``librdkafka.MESSAGE``)."""
_RUN_GAP_MAX = 1 << 20
"""Values that lie further apart are not taken as of one piece of memory."""
_RUN_SHIFT = 30
"""A run of values lies within so many bits of addresses: Arrow's offsets have 31."""


@cache
def _memory() -> Numbers:
    """The process's memory in words of eight bytes, from ``_BASE`` on."""
    whole: Any = (ctypes.c_uint64 * _WORDS).from_address(_BASE)
    words: Numbers = np.frombuffer(whole, dtype=np.uint64)
    return words


class Consumed:
    """Messages, records and what librdkafka tells by an error, in the order in which they came.

    They are this object's, until ``split`` or ``without`` hands them on, or ``free`` gives them
    back.
    """

    def __init__(self, pointers: Numbers) -> None:
        """``pointers``: an array of ``rd_kafka_message_t *``, this object's own."""
        self._pointers = pointers
        self._places = ((pointers - np.uint64(_BASE)) >> np.uint64(3)).astype(np.int64)
        self.offsets: Numbers = self._word(_OFFSET).astype(np.int64)
        self.errors: Numbers = self._word(_ERR).astype(np.uint32).astype(np.int32)

    def __len__(self) -> int:
        return len(self._pointers)

    def split(self, count: int) -> tuple[Consumed, Consumed]:
        """The first ``count`` and the others; this object has none any more."""
        pointers = self._forgotten()
        return Consumed(pointers[:count]), Consumed(pointers[count:])

    def without(self, unwanted: Numbers) -> Consumed:
        """All but the marked ones, which are given back; this object has none any more."""
        pointers = self._forgotten()
        Consumed(pointers[unwanted]).free()
        return Consumed(pointers[~unwanted])

    def free(self) -> None:
        """Give them back. Idempotent."""
        deque(map(librdkafka.message_destroy(), self._forgotten().tolist()), maxlen=0)

    def keys(self) -> Any:
        """An Arrow array, copied."""
        return binary(self._word(_KEY), self._word(_KEY_LEN))

    def values(self) -> Any:
        """An Arrow array, copied."""
        return binary(self._word(_PAYLOAD), self._word(_LEN))

    def _word(self, number: int) -> Numbers:
        words: Numbers = _memory()[self._places + number]
        return words

    def _forgotten(self) -> Numbers:
        pointers, self._pointers = self._pointers, self._pointers[:0]
        self._places = self._places[:0]
        self.offsets, self.errors = self.offsets[:0], self.errors[:0]
        return pointers


def binary(addresses: Numbers, sizes: Numbers) -> Any:
    """An Arrow array of the values at these addresses, copied; address 0 is null."""
    count = len(addresses)
    null = addresses == 0
    bare = null | (sizes == 0)
    if null.all():
        return pa.nulls(count, pa.binary())
    if bare.all():
        offsets = pa.py_buffer(np.zeros(count + 1, dtype=np.int32))
        return _with_nulls(count, [offsets, pa.py_buffer(b"")], null)
    if bare.any():  # they lie nowhere: put each where the one before it ends
        sizes = np.where(bare, np.uint64(0), sizes)
        first = int(np.argmin(bare))
        places = np.maximum.accumulate(np.where(bare, first, np.arange(count)))
        addresses = np.where(bare, addresses[places] + sizes[places], addresses)
        addresses[:first] = addresses[first]
    ends = addresses + sizes
    gaps = addresses[1:].astype(np.int64) - ends[:-1].astype(np.int64)
    blocks = addresses >> np.uint64(_RUN_SHIFT)
    apart = (gaps < 0) | (gaps > _RUN_GAP_MAX) | (blocks[1:] != blocks[:-1])
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), count]
    runs = [_run(addresses[begin:end], ends[begin:end]) for begin, end in pairwise(bounds)]
    whole = runs[0] if len(runs) == 1 else pa.concat_arrays(runs)
    return _with_nulls(count, whole.buffers()[1:], null) if null.any() else whole


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


def _with_nulls(count: int, buffers: list[Any], null: Numbers) -> Any:
    valid = pa.py_buffer(np.packbits(~null, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [valid, *buffers], int(null.sum()))
