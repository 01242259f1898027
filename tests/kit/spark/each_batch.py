"""What happens around exactum's own part of each micro-batch, in a process of a test's own."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from exactum.spark.run.batches import Batches

Write = Callable[[], None]


def around_each_batch(call: Callable[[Write, DataFrame, int], None]) -> None:
    """From here on ``call`` is what Spark calls, for every query of this process, with what brings
    the batch into the sinks, the batch and its number.
    """
    own = Batches.__call__

    def batch(self: Batches, frame: DataFrame, batch_id: int) -> None:
        call(lambda: own(self, frame, batch_id), frame, batch_id)

    Batches.__call__ = batch  # type: ignore[method-assign]
