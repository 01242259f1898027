"""What an epoch of a query and a batch load have in common: one frame is written into all sinks of
a run, each its view of it, and what only a target can judge is judged.

One job writes for all sinks that see the batch, or declare what they see of it, and one for each
function of ``rows=``.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import QueryRun, WriteOrder
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.judging import judged
from exactum.spark.write.view import SideBySide, View, read_once, refuse_other_columns, views
from exactum.spark.write.write_job import Fresh, WriteJob, Written
from exactum.spark.write.write_task import WriteTask
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


class EpochWrite:
    """Of one run, into its ``sinks``. ``count_once``: the rows of a batch are computed once,
    whatever a function does with them. ``hashed``: its fingerprint is asked for. It is had where a
    sink sees the whole batch, as which the first view comes: what ``rows`` makes of it may be
    another thing each time.

    ``fingerprint`` is that of the frame that was written last; None: of none, or it is not known.
    """

    def __init__(
        self,
        sinks: OpenedSinks,
        run: QueryRun,
        writing: Writing,
        *,
        hashed: bool,
        count_once: bool = False,
    ) -> None:
        self.fingerprint: Fingerprint | None = None
        self._sinks = sinks
        self._dead_letters = sinks.dead_letter_plan()
        seen = views(sinks.targets.sinks)
        declared = tuple(view for view in seen if view.is_declared)
        others = [(view,) for view in seen if not view.is_declared]
        self._count_once = count_once and bool(others)
        self._jobs: list[_ViewJob] = []
        for some in filter(None, [declared, *others]):
            places = [place for place, view in enumerate(some) for _ in view.sinks]
            own = [sinks.writers[sink] for view in some for sink in view.sinks]
            task = WriteTask(
                tuple(own),
                run,
                self._dead_letters,
                tuple(places) if len(some) > 1 else None,
                hashed and some[0].rows is None,
            )
            columns = [sinks.columns[view.sinks[0]] for view in some]
            names = [name for name, _ in own]
            self._jobs.append(_ViewJob(some, columns, names, writing.job(task)))

    def write(
        self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None = None
    ) -> list[PreparedTransaction]:
        """Write the batch into every sink, each its view of it, and return what is prepared then.

        Raises as ``WriteJob.run``, ``judged``, what ``rows`` does, and:
            FrameRefused: a function gives other columns than of the run's first batch.
        """
        written = self._written(frame, order, fresh)
        self.fingerprint = written.fingerprint
        sinks = self._sinks
        return judged(
            order, written.prepared, sinks.participants, self._dead_letters, sinks.parallel
        )

    def _written(self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None) -> Written:
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
