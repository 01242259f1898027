"""A listener that refuses a checkpoint which has read other topics than the query reads.

Spark says that they were deleted, and to set failOnDataLoss to false. With that it goes on: it
reads its own topic as a new one, from the beginning, and every row of it is written once more.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactum.checkpoint.partition_offsets import Offsets, from_json
from exactum.errors import CheckpointRefused
from exactum.spark.epoch_listener import Batch, EpochListener
from exactum.spark.query import RunningQuery
from exactum.spark.source.query_sources import RunningSource
from exactum.spark.source.subscription import Subscription


class TopicGuard(EpochListener):
    """Looks at the first batch of a run: later ones begin where it ends."""

    def __init__(self, running: RunningQuery, sources: Sequence[RunningSource]) -> None:
        self._running = running
        self._sources = tuple(sources)

    def begin(self, batch: Batch) -> None:
        """
        Raises:
            CheckpointRefused: a source has read topics, and in this batch only others.
        """
        if not batch.first:
            return
        for source in self._sources:
            if source.index < len(batch.offsets.start):
                begins = from_json(batch.offsets.start[source.index])
                ends = from_json(batch.offsets.end[source.index])
                if begins and ends and not begins.keys() & ends.keys():
                    self._refuse_others(source, batch, begins, ends)

    def _refuse_others(
        self, source: RunningSource, batch: Batch, begins: Offsets, ends: Offsets
    ) -> None:
        subscribed = Subscription.of(source.options)
        if subscribed.pattern is not None and all(subscribed.reads(name) for name, _ in begins):
            return  # topics of the pattern have gone, and others have come
        raise CheckpointRefused(
            f"{self._running}: its checkpoint has read {_names(begins)}, and batch "
            f"{batch.batch_id} reads {_names(ends)} alone. Either this is another query's "
            "checkpoint: give each query a checkpointLocation of its own. Or another query was "
            f"started with this one: remove offsets/{batch.batch_id} and "
            f"offsets/.{batch.batch_id}.crc from it, which that query has left, and start again, "
            "without failOnDataLoss=False. Nothing of this batch was written."
        )


def _names(offsets: Offsets) -> str:
    return " and ".join(sorted({repr(topic) for topic, _ in offsets}))
