"""Rows for the tests of this folder: small record batches in which every row differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa


def batches(count: int = 4, rows: int = 3) -> Sequence[Any]:
    return [
        pa.RecordBatch.from_pydict(
            {
                "n": pa.array(range(b * rows, (b + 1) * rows), pa.int64()),
                "text": [f"row {b}/{i}" for i in range(rows)],
            }
        )
        for b in range(count)
    ]


def published(folder: Path) -> list[object]:
    """What a plain reader of a folder of JSON lines sees, as tuples."""
    lines = [line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines()]
    return [tuple(json.loads(line).values()) for line in lines]
