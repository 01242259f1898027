"""Says once for each run where its Kafka sources begin, and why there."""

from __future__ import annotations

import logging

from exactum.checkpoint.partition_offsets import Offsets, from_json, name_of
from exactum.spark.live import RunningSource
from exactum.spark.query import Batch, Run
from exactum.spark.source.query_sources import kafka_sources_of
from exactum.spark.source.source_options import SourceOptions

logger = logging.getLogger("exactum")

CHECKPOINT = "checkpoint"
NAMED_MAX = 100
"""How many partitions of a source a line names."""
CLOCK_SLACK_S = 1.0


class StartReport:
    """Logs one line for each source."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._read = run.read

    def begins(self, batch: Batch) -> None:
        """With the first batch of the run."""
        for source in kafka_sources_of(self._run):
            logger.info(
                "%s: source %d begins with %s",
                self._run,
                source.index,
                self._line(source, batch),
            )

    def _line(self, source: RunningSource, batch: Batch) -> str:
        begins = self._begins(source, batch)
        chosen = SourceOptions.of(source.options)
        fresh = batch.batch_id == 0 and not self._begun_before(source, chosen)
        parts = [
            f"{name_of(partition)} at {offset} "
            f"({self._why(chosen, name_of(partition)) if fresh else CHECKPOINT})"
            for partition, offset in sorted(begins.items())
        ]
        more = f" and {len(parts) - NAMED_MAX} more partitions" if len(parts) > NAMED_MAX else ""
        return (", ".join(parts[:NAMED_MAX]) or "no partitions") + more

    def _begins(self, source: RunningSource, batch: Batch) -> Offsets:
        if source.index < len(batch.offsets.start):
            return from_json(batch.offsets.start[source.index])
        return source.initial_offsets(self._read) if batch.batch_id == 0 else {}

    def _begun_before(self, source: RunningSource, chosen: SourceOptions) -> bool:
        """Whether an earlier start fixed the beginning: the file is older than the frame that is
        read now.
        """
        name, folder = source.initial_file, self._run.folder
        if name is None or folder is None or chosen.made_ms == 0:
            return False
        try:
            return (folder / name).stat().st_mtime < chosen.made_ms / 1000 - CLOCK_SLACK_S
        except OSError:
            return False

    @staticmethod
    def _why(chosen: SourceOptions, name: str) -> str:
        return chosen.why.get(name) or chosen.word or "Spark's own start position"
