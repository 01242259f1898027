"""What everything that serves one run of a query is given: whose run it is, and whom to tell."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from exactum import events
from exactum.checkpoint.offset_log import ReadText
from exactum.checkpoint.query_record import RecordFile
from exactum.protocol.sink import QueryRun
from exactum.spark.query import RunningQuery


@dataclass(frozen=True)
class RunContext:
    """One run of one query.

    ``session`` is the one that its batches belong to, ``query`` the query as Spark knows it,
    ``run`` its identity in records and transactions, ``first_batch_id`` the batch that it begins
    with; ``emit`` takes its events, ``read`` reads below its checkpoint, wherever that lies, and
    ``record`` is what the query leaves there for its next start.
    """

    session: SparkSession
    query: RunningQuery
    run: QueryRun
    first_batch_id: int
    emit: events.Listener
    read: ReadText
    record: RecordFile

    def about(self, batch_id: int) -> tuple[str, int, str]:
        """What every event begins with: query id, batch id, incarnation."""
        return self.run.query_id, batch_id, self.run.incarnation
