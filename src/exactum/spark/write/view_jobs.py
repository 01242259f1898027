"""The write jobs of an epoch: one for all sinks that see the batch, or declare what they see of it,
and one for each function of ``rows=``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from exactum.protocol.sink import QueryRun, WriteOrder, WriterFactory
from exactum.spark.write.view import SideBySide, View, read_once, refuse_other_columns
from exactum.spark.write.write_job import Fresh, WriteJob, Written
from exactum.spark.write.write_task import DeadLetterPlan, WriteTask
from exactum.spark.write.writing import Writing


class _ViewJob:
    """Of several ``views`` that are declared, or of one function; with ``columns``, (name, Spark
    type), of each, and the names of its sinks.
    """

    def __init__(
        self,
        views: Sequence[View],
        columns: Sequence[Sequence[tuple[str, str]]],
        sinks: Sequence[str],
        write: WriteJob,
    ) -> None:
        self.write = write
        self._view = views[0]
        self._columns, self._sinks = columns[0], sinks
        names = [[name for name, _ in own] for own in columns]
        self._together = SideBySide(views, names) if len(views) > 1 else None

    def frame(self, batch: DataFrame, batch_id: int) -> DataFrame:
        """What is written of the batch."""
        if self._together is not None:
            return self._together.of(batch)
        frame = self._view.of(batch)
        if not self._view.is_declared:
            refuse_other_columns(frame, self._columns, self._sinks, batch_id)
        return frame


class ViewJobs:
    """The write jobs of one run. Several write one after another.

    ``writers`` are the participant names and factories of the sinks, in their order, whose ``rows``
    are given, and ``columns`` what each was opened for. ``count_once``: the rows of a batch are
    computed once, whatever a function does with them. ``hashed``: the batch's fingerprint is asked
    for. It is had where a sink sees the whole batch, as which the first view comes: what ``rows``
    makes of it may be another thing each time.
    """

    def __init__(
        self,
        seen: Sequence[View],
        writers: Sequence[tuple[str, WriterFactory]],
        columns: Sequence[Sequence[tuple[str, str]]],
        run: QueryRun,
        dead_letters: DeadLetterPlan | None,
        *,
        writing: Writing,
        count_once: bool,
        hashed: bool = False,
    ) -> None:
        declared = tuple(view for view in seen if view.is_declared)
        others = [(view,) for view in seen if not view.is_declared]
        self._count_once = count_once and bool(others)
        self._jobs: list[_ViewJob] = []
        for some in filter(None, [declared, *others]):
            places = [place for place, view in enumerate(some) for _ in view.sinks]
            own = [writers[sink] for view in some for sink in view.sinks]
            task = WriteTask(
                tuple(own),
                run,
                dead_letters,
                tuple(places) if len(some) > 1 else None,
                hashed and some[0].rows is None,
            )
            of_each = tuple(columns[view.sinks[0]] for view in some)
            names = tuple(name for name, _ in own)
            self._jobs.append(_ViewJob(some, of_each, names, writing.job(task)))

    def run(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None) -> Written:
        """Write the batch into every sink, each its view of it.

        Raises as ``WriteJob.run``, what ``rows`` does, and:
            FrameRefused: a function gives other columns than of the run's first batch.
        """
        if len(self._jobs) == 1 and not self._count_once:
            (job,) = self._jobs
            whole = job.frame(frame, order.batch_id)
            # Rows that the user keeps, and may have looked at, are not read from Kafka again:
            # records may be gone meanwhile.
            keeps = frame.is_cached or whole.is_cached
            return job.write.run(whole, order, None if keeps else fresh)
        with read_once(frame, 2) as kept:
            each = [job.write.run(job.frame(kept, order.batch_id), order) for job in self._jobs]
        return Written([one for some in each for one in some.prepared], each[0].fingerprint)
