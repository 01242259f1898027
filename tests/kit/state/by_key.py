"""A query from Kafka to Kafka in this process whose output is read by key."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from tests.kit.crash import oracle
from tests.kit.spark.commit_log import last_batch


@dataclasses.dataclass(frozen=True)
class ByKey:
    spark: SparkSession
    bootstrap_servers: str
    source: oracle.Input
    output: str
    checkpoint: Path

    def last(self) -> int:
        """The last epoch in Spark's commit log; -1: none."""
        return last_batch(self.checkpoint)

    def ends(self, batch_id: int) -> dict[int, int]:
        return oracle.Checkpoint(self.checkpoint, self.source.topic).ends(batch_id)

    def reads_all(self, batch_id: int) -> bool:
        """Whether this epoch reads up to the end of the input."""
        return sum(self.ends(batch_id).values()) == self.source.count

    @property
    def query_id(self) -> str:
        return oracle.Checkpoint(self.checkpoint, self.source.topic).query_id

    def written(self) -> dict[str, list[str]]:
        """What a read_committed reader sees, by key and in order; nothing is open any more."""
        oracle.check_at_rest(self.bootstrap_servers, [self.output], self.query_id)
        seen = oracle.read_all(self.bootstrap_servers, [self.output])
        found: dict[str, list[str]] = defaultdict(list)
        for one in sorted(seen, key=lambda s: s.offset):
            found[str(one.key)].append(str(one.value))
        return found
