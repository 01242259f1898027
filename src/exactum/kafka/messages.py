"""From Arrow columns to librdkafka messages: whole arrays, no Python object for a record.

The columns are those of Spark's own Kafka sink (KafkaWriter.scala): ``value`` (string or binary;
null is a tombstone), optional ``key`` (string or binary), ``headers`` (array of struct of key:
string, value: binary), ``topic`` (string, read when the sink has no topic of its own) and
``partition`` (int; null: by key).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.kafka.librdkafka import MESSAGE, PARTITION_UNASSIGNED
from exactum.kafka.producer import Producer
from exactum.kafka.records import BATCH_HEAD, Array, HeaderColumn, pointers, record_bytes_max

TYPES = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}
"""Column -> the types it may have, in Spark's spelling. Other columns are not looked at."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
UNCOUNTED_BYTES_MAX = 64 << 20
"""Of keys and headers in librdkafka's queue, whose own limit counts values only."""
DEAD_LETTER_COLUMNS = (("key", "binary"), ("value", "binary"), ("headers", TYPES["headers"][0]))
"""A dead letter in Kafka: the original bytes; who refused them, why and whence they came stand
in the headers.
"""


def check_columns(columns: Sequence[tuple[str, str]], topic: str | None, where: str) -> None:
    """Check a frame's columns, given as (name, Spark type).

    Raises:
        FrameRefused: ``value`` is missing, ``topic`` is missing and the sink has none, a type is
            wrong, or a name is one of Kafka's but for its case.
    """
    types = dict(columns)
    found = ", ".join(f"{n} {t}" for n, t in columns) or "no columns"
    if "value" not in types:
        raise FrameRefused(
            "KAFKA_COLUMNS",
            f"{where}: the frame has no column 'value' (it has: {found}). Select one, as string or "
            "binary: it is the record's value; a null in it is a tombstone.",
        )
    if topic is None and "topic" not in types:
        raise FrameRefused(
            "KAFKA_TOPIC_MISSING_COLUMN",
            f"{where}: no topic. Give the sink one, or the frame a column 'topic' (it has: "
            f"{found}).",
        )
    for name in types:
        meant = name.lower()
        if meant == "topic" and topic is not None:
            continue
        if name not in TYPES and meant in TYPES and meant not in types:
            raise FrameRefused(
                "KAFKA_COLUMNS",
                f"{where}: the column {name!r} would not be written: Kafka's is {meant!r}, in "
                f"small letters. Rename it (withColumnRenamed({name!r}, {meant!r})), or drop it.",
            )
    for name, allowed in TYPES.items():
        if (
            name in types
            and types[name] not in allowed
            and not (name == "topic" and topic is not None)
        ):
            raise FrameRefused(
                "KAFKA_COLUMNS",
                f"{where}: the column {name!r} has the type {types[name]}, and must be "
                f"{' or '.join(allowed)}. Cast it.",
            )


def produce(
    producer: Producer,
    batch: pa.RecordBatch,
    topic: str | None,
    *,
    timeout_ms: int,
    narrow: Mapping[str, int] | None = None,
    timestamps_ms: Array | None = None,
) -> None:
    """Enqueue every row of ``batch``, in order within each topic. Kafka can take all of them (see
    ``takeable``).

    ``narrow``: the largest batch of those topics that take less than the producer's ``batch.size``.
    ``timestamps_ms``: of each row, where there is a column ``headers``; None: now.

    Raises:
        DeliveryError: librdkafka refused a row or the queue stayed full.
    """
    if batch.num_rows == 0:
        return
    names = set(batch.schema.names)
    messages = _messages(batch, names)
    headers = HeaderColumn(batch.column("headers")) if "headers" in names else None
    stamps = np.zeros(batch.num_rows, np.int64) if timestamps_ms is None else timestamps_ms
    anywhere = all(
        name not in names or batch.column(name).null_count == batch.num_rows
        for name in ("key", "partition")
    )
    for name, chosen in _by_topic(batch, topic):
        rows = messages if chosen is None else messages[chosen]
        if int(rows["partition"].max()) >= producer.partition_count(name) and not anywhere:
            producer.learn(name, timeout_ms)  # of one that was added, librdkafka may not know yet
        for part in _parts(batch, chosen, (narrow or {}).get(name)):
            _make_room(producer, int(rows[part]["key_len"].sum()), timeout_ms)
            if headers is None:
                producer.produce_array(name, rows[part], timeout_ms=timeout_ms, anywhere=anywhere)
            else:
                numbers = (np.arange(batch.num_rows) if chosen is None else chosen)[part]
                for some in headers.parts(numbers):
                    _make_room(producer, headers.queued_bytes(numbers[some]), timeout_ms)
                    producer.produce_with_headers(
                        name,
                        rows[part][some],
                        headers,
                        numbers[some],
                        stamps[numbers[some]],
                        timeout_ms=timeout_ms,
                    )
            if narrow and name in narrow:
                producer.flush(timeout_ms)


def _make_room(producer: Producer, size: int, timeout_ms: int) -> None:
    """Wait until the queue is empty where so many bytes more that it does not count are too many.

    Raises:
        DeliveryError: as ``Producer.flush``.
    """
    if producer.uncounted_bytes and producer.uncounted_bytes + size > UNCOUNTED_BYTES_MAX:
        producer.flush(timeout_ms)
    producer.uncounted_bytes += size


def _messages(batch: pa.RecordBatch, names: set[str]) -> Array:
    messages = np.zeros(batch.num_rows, dtype=MESSAGE)
    messages["payload"], messages["len"] = pointers(batch.column("value"))
    if "key" in names:
        messages["key"], messages["key_len"] = pointers(batch.column("key"))
    messages["partition"] = PARTITION_UNASSIGNED
    if "partition" in names:
        column = batch.column("partition")
        messages["partition"] = pc.fill_null(column, PARTITION_UNASSIGNED).to_numpy(
            zero_copy_only=False
        )
    return messages


def _by_topic(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, Array | None]]:
    """(topic, indices of its rows in order); None for all rows."""
    if topic is not None:
        yield topic, None
        return
    encoded = batch.column("topic").dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        yield name, np.flatnonzero(codes == code)


def _parts(batch: pa.RecordBatch, chosen: Array | None, bytes_max: int | None) -> list[slice]:
    """What to send in one go: all, or as many rows as are no larger together than one batch may
    be, whichever they are.
    """
    count = batch.num_rows if chosen is None else len(chosen)
    if bytes_max is None:
        return [slice(0, count)]
    each = max(1, (bytes_max - BATCH_HEAD) // int(record_bytes_max(batch).max()))
    return [slice(begin, begin + each) for begin in range(0, count, each)]
