"""Running totals by key, from Kafka to Kafka, and what they must be, counted by hand."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum import Query
from tests.kit.crash import oracle
from tests.kit.errors import text_of
from tests.kit.spark.commit_log import last_batch
from tests.kit.spark.ended import ended
from tests.kit.waiting import await_true

OFFSETS_MAX = 30
"""Records in an epoch, over all partitions."""


@dataclasses.dataclass(frozen=True)
class Totals:
    """Counts and sums the numbers of each key; in update mode, so each epoch writes the keys
    that it saw.
    """

    spark: SparkSession
    bootstrap_servers: str
    source: oracle.Input
    output: str
    checkpoint: Path
    offsets_max: int = OFFSETS_MAX

    def last(self) -> int:
        """The last epoch in Spark's commit log; -1: none."""
        return last_batch(self.checkpoint)

    @property
    def logs(self) -> oracle.Checkpoint:
        return oracle.Checkpoint(self.checkpoint, self.source.topic)

    def ends(self, batch_id: int) -> dict[int, int]:
        return self.logs.ends(batch_id)

    @property
    def query_id(self) -> str:
        return self.logs.query_id

    def written(self) -> dict[str, list[str]]:
        """What a read_committed reader sees, by key and in order; nothing is open any more."""
        oracle.check_at_rest(self.bootstrap_servers, [self.output], self.query_id)
        seen = oracle.read_all(self.bootstrap_servers, [self.output])
        found: dict[str, list[str]] = defaultdict(list)
        for one in sorted(seen, key=lambda s: s.offset):
            found[str(one.key)].append(str(one.value))
        return found

    def at(self, checkpoint: Path, output: str) -> Totals:
        """The same query with another checkpoint and another output."""
        return dataclasses.replace(self, checkpoint=checkpoint, output=output)

    def start(self, **trigger: Any) -> Query:
        numbers = exactum.read_kafka(
            self.spark,
            self.source.topic,
            bootstrap_servers=self.bootstrap_servers,
            maxOffsetsPerTrigger=self.offsets_max,
        ).selectExpr(
            "CAST(key AS STRING) AS key", "CAST(substr(CAST(value AS STRING), 2) AS LONG) AS number"
        )
        sums = numbers.groupBy("key").agg({"*": "count", "number": "sum"})
        totals = sums.selectExpr("key", "concat(`count(1)`, ':', `sum(number)`) AS value")
        once = exactum.exactly_once(
            exactum.KafkaSink(self.output, bootstrap_servers=self.bootstrap_servers)
        )
        writer = totals.writeStream.outputMode("update")
        return once.start(
            writer.trigger(**(trigger or {"availableNow": True})), checkpoint=self.checkpoint
        )

    def run(self) -> str | None:
        """Run over all that is there; the text of the error, or None."""
        return text_of(ended(self.start))

    @contextlib.contextmanager
    def running(self) -> Iterator[StreamingQuery]:
        """The query on its way, its first epochs done; stopped at the end, if nobody has."""
        query = self.start(processingTime="0 seconds")
        try:
            await_true(lambda: self.last() >= 1 or not query.isActive, "the first epochs")
            yield query
        finally:
            query.stop()

    def caught_up(self) -> bool:
        """Whether an epoch is complete that reads up to the end of the input."""
        return self.last() >= 0 and sum(self.ends(self.last()).values()) == self.source.count

    def expected(self, first: int = 0) -> dict[str, list[str]]:
        """What the epochs from ``first`` on must have written: the fold of all input up to each
        of them.
        """
        return oracle.running_totals(self.source, self.logs, first)

    def final(self) -> dict[str, str]:
        """The last total of each key over all input."""
        return {
            key: f"{len(v)}:{sum(int(n[1:]) for n in v)}" for key, v in self.source.values.items()
        }

    def check_exact(self, first: int = 0) -> None:
        """From epoch ``first`` on every epoch stands once, in order, and the last totals are
        those of all input.
        """
        written = self.written()
        assert written == self.expected(first)
        assert {key: values[-1] for key, values in written.items()} == self.final()
