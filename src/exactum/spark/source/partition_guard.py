"""A listener that refuses to read a partition again that the query has gone on without.

With failOnDataLoss=False Spark goes on without a partition that is not named any more, or that it
does not see, and forgets how far it was. When it is back Spark reads it as a new one, from its
first record, and every row of it is written once more. So does a whole topic of a pattern that the
brokers leave out of their list for one batch, as one does that has just started.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.checkpoint.partition_offsets import Offsets, as_argument, from_json, name_of
from exactum.errors import CheckpointRefused
from exactum.kafka.transaction import Partition
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import RunningQuery
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.record import SourceRecord


class PartitionGuard(EpochListener):
    """Looks at the first batch of a run, and at each where partitions may come and go.

    It goes by the batch's offsets alone. ``WatchedSource``, which asks the cluster, takes a topic's
    marks off the record before, when another topic has come in its name.
    """

    def __init__(
        self, running: RunningQuery, sources: Sequence[tuple[RunningSource, SourceRecord]]
    ) -> None:
        self._running = running
        self._sources = tuple(sources)
        self._may_come_and_go: set[int] = set()

    def begin(self, batch: Batch) -> None:
        """Put on record which partitions the query goes on without from here on.

        Raises:
            CheckpointRefused: it has gone on without one, and this batch reads it from the
                beginning; or the record cannot be read or written.
            Unavailable: the record could not be written.
        """
        for source, record in self._sources:
            if batch.first or source.index in self._may_come_and_go:
                known = record.left_out_partitions()
                if known or not source.refuses("failOnDataLoss"):
                    self._may_come_and_go.add(source.index)
                self._compare(source, record, known, batch)

    def _compare(
        self, source: RunningSource, record: SourceRecord, known: Offsets, batch: Batch
    ) -> None:
        if source.index >= len(batch.offsets.start):
            return
        begins = from_json(batch.offsets.start[source.index])
        ends = from_json(batch.offsets.end[source.index])
        again = {p: known[p] for p in sorted((known.keys() & ends.keys()) - begins.keys())}
        if again:
            raise CheckpointRefused(self._refusal(again))
        for partition in sorted(known.keys() & begins.keys() & ends.keys()):
            record.take_back_partition(partition)  # the batch without it was never written
        for partition in sorted(begins.keys() - ends.keys()):
            self._leave_out(record, partition, begins[partition])

    @staticmethod
    def _leave_out(record: SourceRecord, partition: Partition, offset: int) -> None:
        record.take_back_partition(partition)  # of an earlier time
        record.leave_out_partition(partition, offset)

    def _refusal(self, again: Offsets) -> str:
        read = ", ".join(f"{name_of(p)} up to {offset}" for p, offset in again.items())
        topics: dict[str, list[int]] = {}
        for topic, index in again:
            topics.setdefault(topic, []).append(index)
        return (
            f"{self._running}: it has read {read}, then went on without, and is to read that "
            "again. Spark has forgotten how far it was: it would begin at the first record, and "
            "write each once more. Read what is named here with a query and a checkpointLocation "
            f"of its own: read_kafka(spark, {topics}, start={as_argument(again)}). To go on "
            "without it, give read_kafka topics, partitions or a pattern without it, and remove "
            "the planned batch (docs/misuse.md: another topic). Nothing of this batch was written."
        )
