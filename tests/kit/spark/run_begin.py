"""A run as ``opening`` has it before the first row, without Spark: for what only reads the
checkpoint and the decision log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.protocol.sink import Guarantee
from exactum.spark.query import Run


def run_at(checkpoint: Path, query_id: str, begins: int, emit: Any = lambda event: None) -> Run:
    """The run that Spark asks for batch ``begins`` first."""
    no_spark: Any = None
    return Run(
        query_id=query_id,
        run_id="run",
        name=None,
        checkpoint=str(checkpoint),
        execution_class="MicroBatchExecution",
        trigger="AvailableNow",
        master="local[2]",
        retained=100,
        first_batch_id=begins,
        guarantee=Guarantee.EXACTLY_ONCE,
        session=no_spark,
        live=no_spark,
        emit=emit,
    )
