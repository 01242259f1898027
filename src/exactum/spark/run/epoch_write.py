"""What an epoch of a query and a batch load have in common: one frame is written into all sinks of
a run, each its view of it, and what only a target can judge is judged.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import QueryRun, WriteOrder
from exactum.spark.run.opened_sinks import OpenedSinks
from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.judging import judged
from exactum.spark.write.view import views
from exactum.spark.write.view_jobs import ViewJobs
from exactum.spark.write.write_job import Fresh
from exactum.spark.write.writing import Writing


class EpochWrite:
    """Of one run. ``fingerprint`` is that of the frame that was written last; None: of none, or it
    was not to be ``hashed``. ``count_once``: as ``ViewJobs``.
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
        self._jobs = ViewJobs(
            views(sinks.targets.sinks),
            sinks.writers,
            sinks.columns,
            run,
            self._dead_letters,
            writing=writing,
            count_once=count_once,
            hashed=hashed,
        )

    def write(
        self, frame: DataFrame, order: WriteOrder, fresh: Fresh | None = None
    ) -> list[PreparedTransaction]:
        """What is prepared then. Raises as ``ViewJobs.run`` and ``judged``."""
        written = self._jobs.run(frame, order, fresh)
        self.fingerprint = written.fingerprint
        sinks = self._sinks
        return judged(
            order, written.prepared, sinks.participants, self._dead_letters, sinks.parallel
        )
