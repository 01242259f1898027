"""Rows that a sink refused, as they go to the epoch's dead letters: the original bytes, where from, who and why.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from exactum.protocol.sink import Rejection

HEADER_PREFIX = "exactum."
"""Where dead letters go to Kafka, what is a column elsewhere is a header ``exactum.<column>``, as text."""


def dead_letters(rejection: Rejection, sink: str, columns: Sequence[str]) -> Any:
    """An Arrow record batch with ``columns`` (names of ``DEAD_LETTER_COLUMNS``, or key, value and headers).

    ``key`` and ``value`` are the frame's columns of that name where they are text or bytes; otherwise the key is
    null and the value is the row as JSON text.
    """
    import pyarrow as pa

    rows = rejection.rows
    made: dict[str, Any] = {
        "key": _bytes_of(rows, "key"),
        "value": _value(rows),
        "sink": pa.array([sink] * rows.num_rows, pa.string()),
        "error": pa.array(rejection.reasons, pa.string()),
        "source_topic": _column(rows, "topic", pa.string()),
        "source_partition": _column(rows, "partition", pa.int32()),
        "source_offset": _column(rows, "offset", pa.int64()),
        "source_timestamp": _column(rows, "timestamp", pa.timestamp("us", "UTC")),
    }
    if "headers" in columns:
        made["headers"] = _headers(made)
    return pa.RecordBatch.from_arrays([made[name] for name in columns], names=list(columns))


def _bytes_of(rows: Any, name: str) -> Any:
    import pyarrow as pa

    if name not in rows.schema.names or not _is_text(rows.schema.field(name).type):
        return pa.nulls(rows.num_rows, pa.binary())
    return rows.column(name).cast(pa.binary())


def _value(rows: Any) -> Any:
    import pyarrow as pa

    if "value" in rows.schema.names and _is_text(rows.schema.field("value").type):
        return rows.column("value").cast(pa.binary())
    texts = [json.dumps(row, default=_plain, ensure_ascii=False).encode() for row in rows.to_pylist()]
    return pa.array(texts, pa.binary())


def _column(rows: Any, name: str, kind: Any) -> Any:
    """A column of the frame if it has the type that Spark's Kafka source gives it, else nulls."""
    import pyarrow as pa

    if name in rows.schema.names:
        found = rows.schema.field(name).type
        if found == kind or (pa.types.is_timestamp(found) and pa.types.is_timestamp(kind)):
            return rows.column(name).cast(kind)
    return pa.nulls(rows.num_rows, kind)


def _headers(made: dict[str, Any]) -> Any:
    """One list of (name, UTF-8 text) for each row; what is null is left out."""
    import pyarrow as pa

    columns = {n: made[n].to_pylist() for n in made if n not in ("key", "value")}
    rows = [
        [{"key": HEADER_PREFIX + n, "value": _text(v[i]).encode()} for n, v in columns.items() if v[i] is not None]
        for i in range(len(made["value"]))
    ]
    return pa.array(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def _text(value: Any) -> str:
    return str(value.isoformat() if hasattr(value, "isoformat") else value)


def _plain(value: Any) -> str:
    """What JSON has no word for: bytes as hexadecimal digits, times in ISO 8601, decimals as text."""
    return value.hex() if isinstance(value, bytes) else _text(value)
