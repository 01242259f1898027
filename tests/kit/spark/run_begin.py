"""A run as ``opening`` has it before the first row, without Spark: for what only reads the
checkpoint and the decision log, or the facts of the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.protocol.sink import Guarantee
from exactum.spark.query import Run


def run_at(checkpoint: Path | str, query_id: str = "query", begins: int = 0, **changes: Any) -> Run:
    """The run that Spark asks for batch ``begins`` first."""
    facts: dict[str, Any] = {
        "query_id": query_id,
        "run_id": "run",
        "name": None,
        "checkpoint": str(checkpoint),
        "execution_class": "MicroBatchExecution",
        "trigger": "AvailableNow",
        "master": "local[2]",
        "retained": 100,
        "first_batch_id": begins,
        "guarantee": Guarantee.EXACTLY_ONCE,
        "session": None,
        "live": None,
        "emit": lambda event: None,
    }
    return Run(**{**facts, **changes})
