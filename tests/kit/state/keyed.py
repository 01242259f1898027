"""A query with ``transformWithState`` from Kafka to Kafka, in lives of which each may die at the
worst moment.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StreamingQuery

import exactum
from exactum.events import Event
from tests.kit.source.in_columns import in_columns
from tests.kit.spark.torn_stream import DiedHere, in_format_2, of_format_2
from tests.kit.state import folds
from tests.kit.state.by_key import ByKey
from tests.kit.waiting import WAIT_MAX_S

TIMEOUT_S = WAIT_MAX_S
MS_APART = 100
"""Event time between two numbers."""


class Keyed(ByKey):
    """Rows (key, number, at) through a processor, in append mode."""

    def live(
        self, processor: StatefulProcessor, time_mode: str, die: Callable[[int], bool] | None = None
    ) -> list[Event]:
        """One life over all that is there; returns its events. With ``die`` it ends where that says
        so of an epoch that stands in the sink and is not in Spark's commit log yet.
        """
        events: list[Event] = []
        died: list[int] = []
        exact = exactum.exactly_once(
            exactum.KafkaSink(self.output, bootstrap_servers=self.bootstrap_servers),
            on_event=events.append,
        )

        write = exact.for_each_batch(checkpoint=self.checkpoint)

        def each_batch(frame: DataFrame, batch_id: int) -> None:
            write(frame, batch_id)
            if die is not None and die(batch_id):
                died.append(batch_id)
                raise DiedHere

        records = exactum.read_kafka(
            self.spark,
            self.source.topic,
            bootstrap_servers=self.bootstrap_servers,
            maxOffsetsPerTrigger=40,
        )
        rows = in_columns(records).selectExpr(
            "CAST(key AS STRING) AS key",
            "CAST(substr(CAST(value AS STRING), 2) AS LONG) AS number",
            f"timestamp_millis(({MS_APART}) * (1 + CAST(substr(CAST(value AS STRING), 2) AS "
            "LONG))) AS at",
        )
        writer = (
            rows.withWatermark("at", "3 seconds")
            .groupBy("key")
            .transformWithState(
                processor,
                outputStructType=folds.FOLD_SCHEMA,
                outputMode="Append",
                timeMode=time_mode,
            )
            .writeStream.foreachBatch(each_batch)
            .option("checkpointLocation", str(self.checkpoint))
            # With processing time Spark runs epochs without end, and available-now never comes to
            # one.
            .trigger(
                **(
                    {"availableNow": True}
                    if time_mode == "EventTime"
                    else {"processingTime": "0 seconds"}
                )
            )
        )
        with in_format_2(self.spark):
            query = writer.start()
        try:
            self._await_end(query, endless=time_mode != "EventTime")
        except DiedHere:
            raise
        except Exception as error:
            if not died or "DiedHere" not in str(error):
                raise
        finally:
            query.stop()
        assert bool(died) is (die is not None)
        assert not died or self.last() == died[0] - 1, "Spark's commit log does not have the epoch"
        return events

    def _await_end(self, query: StreamingQuery, *, endless: bool) -> None:
        """An endless query has come to its end when all is read and the timers had their time to
        go off.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while not query.awaitTermination(0.05):
            if time.monotonic() > deadline:
                raise AssertionError("the query did not end")
            if endless and self.reads_all(self.last()):
                due_ms = self.planned_ms(self.last()) + 2 * folds.SHORT_TTL_MS
                while self.planned_ms(self.last()) < due_ms and not query.awaitTermination(0.05):
                    assert time.monotonic() < deadline, "the timers did not go off"
                return

    def planned_ms(self, batch_id: int) -> int:
        """The processing time of an epoch, as Spark has fixed it, since 1970."""
        text = (self.checkpoint / "offsets" / str(batch_id)).read_text()
        return int(json.loads(text.splitlines()[1])["batchTimestampMs"])

    def between(self, first: int) -> list[list[tuple[str, int]]]:
        """The (key, number) of each epoch from ``first`` on."""
        ends = [self.ends(batch) for batch in range(first - 1, self.last() + 1)]
        return [
            [(key, int(value[1:])) for key, value in self.source.between(start, end)]
            for start, end in itertools.pairwise(ends)
        ]

    def state(self, variable: str, batch_id: int | None = None) -> DataFrame:
        """A state variable, as Spark's own reader sees it."""
        reader = of_format_2(self.spark).read.format("statestore").option("stateVarName", variable)
        if batch_id is not None:
            reader = reader.option("batchId", batch_id)
        return reader.load(str(self.checkpoint))
