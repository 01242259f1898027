"""A run of a query as it is before the first row, made without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.protocol.sink import Guarantee
from exactum.spark.query import Run


def run_at(checkpoint: Path | str, **changes: Any) -> Run:
    """One at this checkpoint; ``changes``: what else it is to be."""
    facts: dict[str, Any] = {
        "query_id": "query",
        "run_id": "run",
        "name": None,
        "checkpoint": str(checkpoint),
        "execution_class": "MicroBatchExecution",
        "trigger": "AvailableNow",
        "master": "local[2]",
        "retained": 100,
        "first_batch_id": 0,
        "guarantee": Guarantee.EXACTLY_ONCE,
        "session": None,
        "live": None,
        "emit": lambda event: None,
    }
    return Run(**{**facts, **changes})
