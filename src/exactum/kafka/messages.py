"""From Arrow columns to librdkafka messages: whole arrays, no Python object for a record.

The columns are those of Spark's own Kafka sink (KafkaWriter.scala): ``value`` (string or binary; null is a
tombstone), optional ``key`` (string or binary), ``headers`` (array of struct of key: string, value: binary),
``topic`` (string, read when the sink has no topic of its own) and ``partition`` (int; null: by key).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.kafka.librdkafka import MESSAGE, PARTITION_UNASSIGNED
from exactum.kafka.producer import Producer
from exactum.protocol.sink import Rejection

TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Column -> the types it may have, in Spark's spelling. Other columns are not looked at."""

DEAD_LETTER_COLUMNS = (("key", "binary"), ("value", "binary"), ("headers", TYPES["headers"][0]))
"""A dead letter in Kafka: the original bytes; who refused them, why and whence they came stand in the headers."""

_EMPTY = np.zeros(8, dtype=np.uint8)


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None, where: str) -> None:
    """Check a frame's columns, given as (name, Spark type).

    Raises:
        FrameRefused: ``value`` is missing, ``topic`` is missing and the sink has none, or a type is wrong.
    """
    types = dict(columns)
    found = ", ".join(f"{n} {t}" for n, t in columns) or "no columns"
    if "value" not in types:
        raise FrameRefused(
            f"{where}: the frame has no column 'value' (it has: {found}). Select one, as string or binary: "
            "it is the record's value; a null in it is a tombstone."
        )
    if topic is None and "topic" not in types:
        raise FrameRefused(f"{where}: no topic. Give the sink one, or the frame a column 'topic' (it has: {found}).")
    for name, allowed in TYPES.items():
        if name in types and types[name] not in allowed and not (name == "topic" and topic is not None):
            raise FrameRefused(
                f"{where}: the column {name!r} has the type {types[name]}, and must be {' or '.join(allowed)}. Cast it."
            )


def produce(producer: Producer, batch: pa.RecordBatch, topic: str | None, *, timeout_ms: int) -> None:
    """Enqueue every row of ``batch``, in order within each topic.

    Raises:
        DeliveryError: librdkafka refused a row or the queue stayed full.
        FrameRefused: a row has no topic.
    """
    names = set(batch.schema.names)
    messages = _messages(batch, names)
    anywhere = all(
        name not in names or batch.column(name).null_count == batch.num_rows for name in ("key", "partition")
    )
    for name, chosen in _by_topic(batch, names, topic):
        rows = messages if chosen is None else messages[chosen]
        if "headers" in names:
            _produce_with_headers(producer, name, batch, rows, chosen, timeout_ms=timeout_ms)
        else:
            producer.produce_array(name, rows, timeout_ms=timeout_ms, anywhere=anywhere)


def without_too_large(batch: pa.RecordBatch, bytes_max: int) -> tuple[pa.RecordBatch, Rejection | None]:
    """The batch without the records whose key and value have more bytes than ``bytes_max``, and those.

    librdkafka measures a record so against message.max.bytes (rdkafka_msg.c, rd_kafka_msg_new0), before compression.
    """
    sizes = pc.fill_null(pc.binary_length(batch.column("value")), 0)
    if "key" in batch.schema.names:
        sizes = pc.add(sizes, pc.fill_null(pc.binary_length(batch.column("key")), 0))
    if batch.num_rows == 0 or pc.max(sizes).as_py() <= bytes_max:
        return batch, None
    large = pc.greater(sizes, bytes_max)
    refused = batch.filter(large)
    keys = refused.column("key").to_pylist() if "key" in batch.schema.names else [None] * refused.num_rows
    reasons = tuple(
        f"the record with key {key!r:.100} has {size} bytes, larger than the {bytes_max} that the topic takes "
        "(max.message.bytes of the topic; message.max.bytes of the sink's producer settings, if it is set there)"
        for key, size in zip(keys, sizes.filter(large).to_pylist(), strict=True)
    )
    return batch.filter(pc.invert(large)), Rejection(refused, reasons)


def _messages(batch: pa.RecordBatch, names: set[str]) -> np.ndarray[Any, Any]:
    messages = np.zeros(batch.num_rows, dtype=MESSAGE)
    messages["payload"], messages["len"] = _pointers(batch.column("value"))
    if "key" in names:
        messages["key"], messages["key_len"] = _pointers(batch.column("key"))
    messages["partition"] = PARTITION_UNASSIGNED
    if "partition" in names:
        column = batch.column("partition")
        messages["partition"] = pc.fill_null(column, PARTITION_UNASSIGNED).to_numpy(zero_copy_only=False)
    return messages


def _pointers(column: pa.Array) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Address and length of each value; address 0 for null. Valid as long as ``column`` lives."""
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    count = len(column)
    _, offsets_buffer, data_buffer = column.buffers()
    offsets: Any = np.frombuffer(offsets_buffer, dtype=np.int64 if wide else np.int32)
    offsets = offsets[column.offset : column.offset + count + 1].astype(np.uint64)
    # An empty value must not have address 0: that is how librdkafka knows a null.
    base = data_buffer.address if data_buffer is not None and data_buffer.size else _EMPTY.ctypes.data
    addresses = offsets[:-1] + np.uint64(base)
    lengths = offsets[1:] - offsets[:-1]
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        addresses = np.where(valid, addresses, np.uint64(0))
        lengths = np.where(valid, lengths, np.uint64(0))
    return addresses, lengths


def _by_topic(
    batch: pa.RecordBatch, names: set[str], topic: str | None
) -> Iterator[tuple[str, np.ndarray[Any, Any] | None]]:
    """(topic, indices of its rows in order); None for all rows."""
    if topic is not None:
        yield topic, None
        return
    column = batch.column("topic")
    if column.null_count:
        row = int(np.flatnonzero(~column.is_valid().to_numpy(zero_copy_only=False))[0])
        raise FrameRefused(
            f"A row has null in the column 'topic' and the sink has no topic of its own (row {row} of its "
            "batch). Give the sink a topic, or filter such rows out."
        )
    encoded = column.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, np.flatnonzero(codes == code)


def _produce_with_headers(
    producer: Producer,
    topic: str,
    batch: pa.RecordBatch,
    messages: np.ndarray[Any, Any],
    chosen: np.ndarray[Any, Any] | None,
    *,
    timeout_ms: int,
) -> None:
    rows = batch if chosen is None else batch.take(pa.array(chosen))
    values = rows.column("value").cast(pa.binary()).to_pylist()
    keys = rows.column("key").cast(pa.binary()).to_pylist() if "key" in rows.schema.names else None
    headers = rows.column("headers").to_pylist()
    for i, value in enumerate(values):
        producer.produce_record(
            topic,
            keys[i] if keys else None,
            value,
            [(h["key"], h["value"]) for h in headers[i] or () if h is not None],
            partition=int(messages["partition"][i]),
            timeout_ms=timeout_ms,
        )
