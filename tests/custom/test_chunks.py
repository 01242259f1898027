"""Pieces of record batches are joined with all their rows, however large these are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exactum.custom.chunks import SMALL_BYTES_MAX, joined

pytestmark = pytest.mark.slow

VALUE_BYTES = 1_100_000_000


@pytest.mark.deep
def test_a_chunk_of_more_than_2_gib_has_all_its_rows() -> None:
    """An Arrow array of bytes holds 2 GiB, so Arrow would make two batches of it."""
    assert 2 * VALUE_BYTES > SMALL_BYTES_MAX
    zeros = pa.py_buffer(np.zeros(VALUE_BYTES, np.uint8))  # pages that nobody has written to
    ends = pa.py_buffer(np.array([0, VALUE_BYTES], np.int32))
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, zeros])

    def batches() -> Iterator[Any]:
        for number in range(2):
            yield pa.record_batch({"n": [number], "value": value})

    chunk = joined(list(batches()))
    assert chunk.column("n").to_pylist() == [0, 1]
    lengths = [len(one.as_buffer()) for one in chunk.column("value")]
    assert lengths == [VALUE_BYTES] * 2


def test_texts_within_a_large_chunk_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any depth, with nulls."""
    rows = [
        {"text": "a", "list": ["b", None], "map": [("c", {"bytes": b"d", "number": 1})]},
        {"text": None, "list": None, "map": None},
        {"text": "", "list": [], "map": [("e", None)]},
    ]
    kind = pa.struct([("bytes", pa.binary()), ("number", pa.int32())])
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("list", pa.list_(pa.string())),
            ("map", pa.map_(pa.string(), kind)),
        ]
    )
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    monkeypatch.setattr("exactum.custom.chunks.SMALL_BYTES_MAX", 0)
    whole = joined([batch, batch.slice(1), batch.slice(0, 2)])
    assert whole.schema.field("text").type == pa.large_string()
    rows_of = batch.to_pylist()
    assert whole.to_pylist() == [*rows_of, *rows_of[1:], *rows_of[:2]]
