"""Running totals by key, from Kafka to Kafka, and what they must be, counted by hand."""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.streaming import StreamingQuery

import exactum
from exactum import Query
from tests.kit.errors import text_of
from tests.kit.spark.commit_log import forget_last_batch
from tests.kit.spark.ended import ended
from tests.kit.state.by_key import ByKey
from tests.kit.waiting import WAIT_MAX_S, await_true

TIMEOUT_S = WAIT_MAX_S
OFFSETS_MAX = 30
"""Records in an epoch, over all partitions."""


@dataclasses.dataclass(frozen=True)
class Totals(ByKey):
    """Counts and sums the numbers of each key; in update mode, so each epoch writes the keys
    that it saw.
    """

    offsets_max: int = OFFSETS_MAX

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
        return self.last() >= 0 and self.reads_all(self.last())

    def forget_last_commit(self) -> None:
        """As after a crash between the sinks' commit and Spark's commit log."""
        forget_last_batch(self.checkpoint)

    def expected(self, first: int = 0) -> dict[str, list[str]]:
        """What the epochs from ``first`` on must have written: the fold of all input up to each
        of them.
        """
        found: dict[str, list[str]] = defaultdict(list)
        for batch in range(first, self.last() + 1):
            count: Counter[str] = Counter()
            total: Counter[str] = Counter()
            for key, value in self.source.between({}, self.ends(batch)):
                count[key] += 1
                total[key] += int(value[1:])
            for key in {
                key for key, _ in self.source.between(self.ends(batch - 1), self.ends(batch))
            }:
                found[key].append(f"{count[key]}:{total[key]}")
        return found

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
