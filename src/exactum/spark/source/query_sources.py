"""Which of a query's sources are Kafka's, and where they began."""

from __future__ import annotations

from exactum.checkpoint.offset_log import ReadText
from exactum.checkpoint.partition_offsets import Offsets
from exactum.spark.live import RunningSource, noted_offsets
from exactum.spark.query import Run


def kafka_sources_of(run: Run) -> list[RunningSource]:
    """Kafka's, each stream once."""
    return [s for s in run.sources if s.is_kafka and s.same_as == s.index]


def all_initial_offsets(read: ReadText, sources: int) -> list[Offsets]:
    """Those of so many sources, in the order of the offset log's lines, without asking Spark; empty
    for one that is not Kafka's, or that has no folder of its own.
    """
    return [noted_offsets(read, f"sources/{number}/0") for number in range(sources)]
