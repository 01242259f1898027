"""The write jobs of an epoch: one for all views where they compute rows one by one, else one for
each view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame

from exactum.protocol.sink import QueryRun, WriteOrder, WriterFactory
from exactum.spark.jvm.collecting import Tasks
from exactum.spark.write.view import View, read_once, refuse_other_columns
from exactum.spark.write.write_job import Written
from exactum.spark.write.write_task import DeadLetterPlan, WriteTask
from exactum.spark.write.writing import Writing

TasksOf = Callable[[DataFrame], Tasks]
"""In which tasks a frame is written: see ``SmallEpochs.tasks``."""


class ViewJobs:
    """The write jobs of one run. A batch is written in the first way that fits:

    - by one job that is given the records packed (``writing.packed``);
    - by one job that is given rows, those of several views side by side;
    - by a job for each view, one after another.

    ``writers`` are the sinks' participant names and factories, in the sinks' order, and ``columns``
    what each was opened for. ``count_once``: the rows of a batch are computed once, whatever a
    ``rows`` function does with them. ``hashed``: the batch's fingerprint is asked for. It is had
    where a sink sees the whole batch, as which the first view comes: what ``rows`` makes of it may
    be another thing each time.
    """

    def __init__(
        self,
        views: Sequence[View],
        writers: Sequence[tuple[str, WriterFactory]],
        columns: Sequence[Sequence[tuple[str, str]]],
        run: QueryRun,
        dead_letters: DeadLetterPlan | None,
        *,
        writing: Writing,
        count_once: bool,
        hashed: bool = False,
    ) -> None:
        self._views = tuple(views)
        self._columns = [columns[one.sinks[0]] for one in views]
        self._sinks = [[writers[sink][0] for sink in one.sinks] for one in views]
        self._writing = writing
        self._count_once = count_once and any(one.rows is not None for one in views)
        seen = [(writers[sink], place) for place, one in enumerate(views) for sink in one.sinks]
        places = tuple(place for _, place in seen) if len(views) > 1 else None
        whole = hashed and views[0].rows is None
        self._one = writing.job(
            WriteTask(tuple(writer for writer, _ in seen), run, dead_letters, places, whole)
        )
        self._in_one_job = True  # until several views are seen to be more than rows and columns
        self._each = tuple(
            writing.job(
                WriteTask(
                    tuple(writers[sink] for sink in one.sinks),
                    run,
                    dead_letters,
                    hashed=whole and place == 0,
                )
            )
            for place, one in enumerate(views)
        )

    def run(self, frame: DataFrame, order: WriteOrder, tasks_of: TasksOf) -> Written:
        """Write the batch into every sink, each its view of it; in ``tasks_of`` where one job
        writes all there is.

        Raises as ``WriteJob.run``, what ``rows`` does, and:
            FrameRefused: the batch has other columns than the run's first one.
        """
        if self._in_one_job:
            with read_once(frame, 2 if self._count_once else 1) as kept:
                written = self._in_one(kept, order, tasks_of)
                if written is not None:
                    return written
                # For good: a function that looks into the batch in order to make its view shall
                # find it persisted.
                self._in_one_job = False
                if self._count_once:  # what a function has looked at was computed
                    return self._one_by_one(kept, order)
        with read_once(frame, len(self._views)) as kept:
            return self._one_by_one(kept, order)

    def _in_one(self, kept: DataFrame, order: WriteOrder, tasks_of: TasksOf) -> Written | None:
        """What one job wrote for all views; None where they need a job each."""
        frames = [self._frame(place, kept, order) for place in range(len(self._views))]
        whole = frames[0] if len(frames) == 1 else self._writing.together(frames)
        if whole is None:
            return None
        # Rows that the user keeps, and may have looked at, are not read from Kafka again: records
        # may be gone meanwhile.
        keeps = not self._count_once and any(each.is_cached for each in (kept, *frames))
        tasks = tasks_of(whole)
        # Where rows are counted once, what is kept has to be what is written.
        packed = None if self._count_once or keeps else self._writing.packed(whole)
        if packed is not None:
            return self._one.run_packed(packed, order, tasks)
        return self._one.run(whole, order, tasks)

    def _one_by_one(self, kept: DataFrame, order: WriteOrder) -> Written:
        each = [
            job.run(self._frame(place, kept, order), order) for place, job in enumerate(self._each)
        ]
        return Written([one for some in each for one in some.prepared], each[0].fingerprint)

    def _frame(self, place: int, batch: DataFrame, order: WriteOrder) -> DataFrame:
        """What the view at ``place`` sees of the batch: the columns that it saw of the first."""
        frame = self._views[place].of(batch)
        refuse_other_columns(frame, self._columns[place], self._sinks[place], order.batch_id)
        return frame
