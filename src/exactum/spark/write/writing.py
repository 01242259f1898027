"""How the rows of a micro-batch come to the sinks' tasks, by the kind of the query's session."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame

from exactum.spark.write.fingerprint import Fingerprint
from exactum.spark.write.write_job import WriteJob, fingerprint
from exactum.spark.write.write_task import WriteTask


class Writing(Protocol):
    """Of a run: ``run.engine.ClassicWriting``, ``connect.engine.ConnectWriting``; or of a load."""

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        """Compute the frame, and write nothing of it. Raises as ``write_job.drain``."""

    def job(self, task: WriteTask) -> WriteJob:
        """What runs this task over a frame, one Spark job for each call."""


class RowsWriting:
    """By rows, in the tasks that Spark plans: of any frame in a classic session."""

    def fingerprint(self, frame: DataFrame) -> Fingerprint:
        return fingerprint(frame)

    def job(self, task: WriteTask) -> WriteJob:
        return WriteJob(task)
