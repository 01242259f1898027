"""A run as ``opening`` has it before the first row, without Spark: for what only reads the
checkpoint and the decision log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exactum.checkpoint.known_sinks import KnownSink, KnownSinks, write_known_sinks
from exactum.checkpoint.offset_log import folder_reader
from exactum.protocol.ends import Noted
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
    return RunContext(no_spark, running, run, begins, emit, folder_reader(checkpoint))


def note(checkpoint: Path, query_id: str, log: str, noted: Noted, *sinks: KnownSink) -> None:
    """What the last run has left on file."""
    present = frozenset(sink.name for sink in sinks)
    write_known_sinks(checkpoint, KnownSinks(query_id, sinks, present, log, noted))
