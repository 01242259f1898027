"""How large a record is to librdkafka and to a broker (message format 2, "magic 2").

Two rules hold, each on the record before its compression:

- librdkafka takes what has key, value and headers of at most ``message.max.bytes`` less 36 bytes
  (rdkafka_msg.c, rd_kafka_msg_new0; rdkafka_proto.h, RD_KAFKAP_MESSAGE_V2_MAX_OVERHEAD);
- a broker takes a batch of at most ``max.message.bytes`` of its topic (UnifiedLog,
  analyzeAndValidateRecords). A large record has a batch of its own: 61 bytes of head, and the
  record with the lengths of its parts, of 1 to 5 bytes each. Where the topic's ``compression.type``
  has the broker compress anew, what it makes of it may not be larger either.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.kafka.native.arrow_memory import Array, lengths

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
