"""Who attends a run of a query: one place that knows them all."""

from __future__ import annotations

from pyspark.sql import DataFrame

from exactum import events
from exactum.protocol.sink import QueryRun
from exactum.spark.attendant import Attendant
from exactum.spark.query import RunningQuery


def attendants(frame: DataFrame, running: RunningQuery, run: QueryRun, on_event: events.Listener) -> list[Attendant]:
    """The attendants of this run, in the order in which they are called.

    Raises:
        Refused: one of them finds that the query may not run like this.
    """
    return []
