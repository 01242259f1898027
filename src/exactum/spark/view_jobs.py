"""The write jobs of an epoch: one for all views where they are columns alone, else one for each view."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import QueryRun, WriteOrder, WriterFactory
from exactum.spark.collecting import Collect, collected
from exactum.spark.view import View, read_once, side_by_side
from exactum.spark.write_job import WriteJob
from exactum.spark.write_task import DeadLetterPlan, RunTask


class ViewJobs:
    """The write jobs of one run. ``writers`` are the sinks' participant names and factories, in the sinks' order.

    ``count_once``: the rows of a batch must be computed once, whatever a ``rows`` function does with them.
    """

    def __init__(
        self,
        views: Sequence[View],
        writers: Sequence[tuple[str, WriterFactory]],
        run: QueryRun,
        dead_letters: DeadLetterPlan | None,
        *,
        count_once: bool,
    ) -> None:
        self._views = tuple(views)
        self._count_once = count_once and any(one.rows is not None for one in views)
        self._each = tuple(
            WriteJob(RunTask(tuple(writers[sink] for sink in one.sinks), run, dead_letters)) for one in views
        )
        seen = [(writers[sink], place) for place, one in enumerate(views) for sink in one.sinks]
        self._whole = WriteJob(
            RunTask(tuple(writer for writer, _ in seen), run, dead_letters, tuple(place for _, place in seen))
        )
        self._columns_alone = len(self._views) > 1  # until a view is seen to be more

    def run(self, frame: DataFrame, order: WriteOrder, collect: Collect = collected) -> list[PreparedTransaction]:
        """Write the batch into every sink, each its view of it. Raises as ``WriteJob.run``, and what ``rows`` does."""
        if self._columns_alone:
            with read_once(frame, 2 if self._count_once else 1) as kept:
                whole = side_by_side([one.of(kept) for one in self._views])
                if whole is not None:
                    return self._whole.run(whole, order, collect)
            # For good: a function that looks into the batch in order to make its view shall find it persisted.
            self._columns_alone = False
        with read_once(frame, 2 if self._count_once else len(self._views)) as kept:
            return [
                prepared
                for one, job in zip(self._views, self._each, strict=True)
                for prepared in job.run(one.of(kept), order, collect)
            ]
