"""A run as ``opening`` has it before the first row, without Spark: for what only reads the
checkpoint and the decision log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.checkpoint.offset_log import folder_reader
from exactum.checkpoint.query_record import record_of
from exactum.protocol.model import new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.spark.query import RunningQuery
from exactum.spark.run_context import RunContext


def run_at(
    checkpoint: Path, query_id: str, begins: int, emit: Any = lambda event: None
) -> RunContext:
    """The run that Spark asks for batch ``begins`` first."""
    no_spark: Any = None
    running = RunningQuery(
        query_id=query_id,
        run_id="run",
        name=None,
        checkpoint=str(checkpoint),
        execution_class="MicroBatchExecution",
        trigger="AvailableNow",
        master="local[2]",
        retained=100,
        live=no_spark,
    )
    run = QueryRun(query_id, new_incarnation(), Guarantee.EXACTLY_ONCE)
    record = record_of(checkpoint, query_id)
    return RunContext(no_spark, running, run, begins, emit, folder_reader(checkpoint), record)
