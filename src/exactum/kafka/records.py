"""Records for librdkafka, of whole Arrow columns without a Python object for each: where their
values lie, how large a record is to librdkafka and to a broker, and its headers.

Two rules hold of the size (message format 2, "magic 2"), each on the record before its compression:

- librdkafka takes what has key, value and headers of at most ``message.max.bytes`` less 36 bytes
  (rdkafka_msg.c, rd_kafka_msg_new0; rdkafka_proto.h, RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD);
- a broker takes a batch of at most ``max.message.bytes`` of its topic (UnifiedLog,
  analyzeAndValidateRecords). A large record has a batch of its own: 61 bytes of head, and the
  record with the lengths of its parts, of 1 to 5 bytes each. Where the topic's ``compression.type``
  has the broker compress anew, what it makes of it may not be larger either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused, InvariantBroken
from exactum.kafka import librdkafka
from exactum.values.nested import bounds_of, is_bytes, is_text, mask_of

Array = np.ndarray[Any, Any]
"""Of NumPy, of whatever shape and type."""
_EMPTY = np.zeros(8, dtype=np.uint8)


def pointers(column: pa.Array) -> tuple[Array, Array]:
    """Address and length of each value; address 0 for null. Valid as long as ``column`` lives."""
    data_buffer = column.buffers()[2] if len(column) else None
    offsets = _offsets(column).astype(np.uint64)
    # An empty value must not have address 0: that is how librdkafka knows a null.
    base = (
        data_buffer.address if data_buffer is not None and data_buffer.size else _EMPTY.ctypes.data
    )
    addresses = offsets[:-1] + np.uint64(base)
    sizes = offsets[1:] - offsets[:-1]
    if column.null_count:
        valid = mask_of(column.is_valid())
        addresses = np.where(valid, addresses, np.uint64(0))
        sizes = np.where(valid, sizes, np.uint64(0))
    return addresses, sizes


def lengths(column: pa.Array) -> Array:
    """Bytes of each value; 0 for null."""
    found = np.diff(_offsets(column)).astype(np.int64)
    if column.null_count:
        found[mask_of(column.is_null())] = 0
    return found


def _offsets(column: pa.Array) -> Array:
    """Where each value begins, and the end of the last.

    Raises:
        FrameRefused: it is not text or bytes in a form whose memory is known here.
    """
    if not is_text(column.type) and not is_bytes(column.type):
        raise FrameRefused(
            "KAFKA_COLUMNS",
            f"Kafka's columns are text or bytes, and Spark handed over {column.type}.",
        )
    return bounds_of(column)


# ---- sizes -----------------------------------------------------------------------------------


RECORD_OVERHEAD_MAX = 36
"""What librdkafka counts for a record beside key, value and headers: the most that there can be."""
BATCH_HEAD = 61
"""Bytes of a batch beside its records (org.apache.kafka.common.record.DefaultBatchRecord)."""
_VARINT_STEPS = np.array([1 << 6, 1 << 13, 1 << 20, 1 << 27])
"""Where the zigzag form of a count takes one byte more, 1 below the first."""


def varint(counts: Array) -> Array:
    """Bytes that a record spends on saying each of these lengths. A null's is -1, and takes one
    byte, like 0.
    """
    return np.searchsorted(_VARINT_STEPS, counts, side="right").astype(np.int64) + 1


def header_counts(column: pa.Array) -> Array:
    """How many headers each row has."""
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return np.asarray(counts, dtype=np.int64)


def header_bytes(column: pa.Array) -> Array:
    """Bytes of the headers of each row, with their lengths; not their count."""
    names, values = map(lengths, column.flatten().flatten())
    sums = np.concatenate(([0], np.cumsum(names + values + varint(names) + varint(values))))
    counts = header_counts(column)
    ends = np.cumsum(counts)
    return np.asarray(sums[ends] - sums[ends - counts])


def record_bytes_max(batch: pa.RecordBatch) -> Array:
    """What librdkafka counts for each row."""
    sizes = lengths(batch.column("value")) + RECORD_OVERHEAD_MAX
    if "key" in batch.schema.names:
        sizes = sizes + lengths(batch.column("key"))
    if "headers" in batch.schema.names:
        sizes = sizes + header_bytes(batch.column("headers"))
    return np.asarray(sizes)


def batch_bytes(keys: Array, values: Array, headers: Array, header_counts: Array) -> Array:
    """Bytes of the batch that each record fills alone; ``headers``: what ``header_bytes`` says."""
    attributes_timestamp_offset = 3
    record: Array = varint(keys) + varint(values) + varint(header_counts) + keys + values + headers
    record = record + attributes_timestamp_offset
    return np.asarray(BATCH_HEAD + varint(record) + record)


def after_recompression(limit: int) -> int:
    """What may be sent where the broker compresses anew: no codec adds more to what it cannot
    compress.
    """
    return limit - limit // 128 - 256


# ---- headers ---------------------------------------------------------------------------------


_VTYPES = (
    librdkafka.VTYPE_RKT,
    librdkafka.VTYPE_PARTITION,
    librdkafka.VTYPE_VALUE,
    librdkafka.VTYPE_KEY,
    librdkafka.VTYPE_MSGFLAGS,
    librdkafka.VTYPE_TIMESTAMP,
)
"""Of the fields that every record has, in their order."""
FIELDS_OF_A_RECORD = len(_VTYPES)
FIELDS_MAX = 10_000
"""Of records and headers, which are made ready at a time: 72 bytes for each."""
HEADER_BYTES = 64
"""What a header takes in librdkafka's queue beside its name and value, about."""


class HeaderColumn:
    """The headers of a batch's rows, for ``Producer.produce_with_headers``: none of them is null,
    and each has a key, without NUL in it.
    """

    def __init__(self, column: pa.Array) -> None:
        self._bytes = header_bytes(column)
        self._counts = header_counts(column)
        self._begins = np.cumsum(self._counts) - self._counts
        names, values = column.flatten().flatten()
        if names.null_count:
            raise InvariantBroken("A header without a key was to be sent.")
        # C knows the end of a name by NUL. Both are kept: the addresses are into their memory.
        ended = pc.binary_join_element_wise(names.cast(pa.binary()), b"", b"\0")
        self._kept = ended, values
        self._names, _ = pointers(ended)
        self._values, self._value_sizes = pointers(values)

    def parts(self, rows: Array) -> Iterator[slice]:
        """Slices of these rows, of which each has few enough fields to be made ready at once."""
        each = max(1, FIELDS_MAX // (int(self._counts[rows].max()) + FIELDS_OF_A_RECORD))
        return (slice(begin, begin + each) for begin in range(0, len(rows), each))

    def queued_bytes(self, rows: Array) -> int:
        """About how much those of these rows take in librdkafka's queue."""
        return int(self._bytes[rows].sum() + HEADER_BYTES * self._counts[rows].sum())

    def fields(
        self, topic: int, messages: Array, rows: Array, timestamps_ms: Array
    ) -> tuple[Array, Array, Array]:
        """The fields (dtype ``FIELD``) of ``messages`` (dtype ``MESSAGE``), which are of these
        ``rows``, each followed by its headers; where those of each message begin, and how many they
        are. Valid as long as this object lives. ``timestamps_ms``: of each message.
        """
        counts = self._counts[rows]
        sizes = counts + FIELDS_OF_A_RECORD
        begins = np.cumsum(sizes) - sizes
        fields = np.zeros(int(sizes.sum()), dtype=librdkafka.FIELD)
        is_header = np.ones(len(fields), dtype=bool)
        for place, vtype in enumerate(_VTYPES):
            fields["vtype"][begins + place] = vtype
            is_header[begins + place] = False
        fields["first"][begins] = topic
        fields["i32"][begins + 1] = messages["partition"]
        fields["first"][begins + 2] = messages["payload"]
        fields["second"][begins + 2] = messages["len"]
        fields["first"][begins + 3] = messages["key"]
        fields["second"][begins + 3] = messages["key_len"]
        fields["i32"][begins + 4] = librdkafka.F_COPY
        fields["first"][begins + 5] = timestamps_ms
        before = np.cumsum(counts) - counts
        places = np.repeat(self._begins[rows] - before, counts) + np.arange(int(counts.sum()))
        fields["vtype"][is_header] = librdkafka.VTYPE_HEADER
        fields["first"][is_header] = self._names[places]
        # Address 0 is a null value: librdkafka knows it by that.
        fields["second"][is_header] = self._values[places]
        fields["third"][is_header] = self._value_sizes[places]
        return fields, begins, sizes
