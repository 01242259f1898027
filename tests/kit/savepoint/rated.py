"""A query with all that one may have beside its rows: rules, dead letters and state."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from tests.kit.crash import oracle
from tests.kit.kafka.broker import Broker
from tests.kit.savepoint.totals import Totals

POISON_EVERY = 5


@dataclasses.dataclass(frozen=True)
class Orders:
    """Numbered orders in one partition; every fifth number is poison."""

    broker: Broker
    topic: str

    def produce(self, *numbers: int) -> None:
        for number in numbers:
            value = json.dumps({"id": number}) if number % POISON_EVERY else "poison"
            self.broker.produce(self.topic, value, key=str(number), partition=0)


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule ``rate`` in a topic of one partition."""

    broker: Broker
    topic: str

    def write(self, rate: int) -> None:
        self.broker.produce(self.topic, str(rate), key="rate")

    def forget(self) -> None:
        """What retention does, at once."""
        self.broker.empty(self.topic)


@dataclasses.dataclass(frozen=True)
class Rated(Totals):
    """Writes ``id:rate`` for each order once, whenever it comes again; what cannot be decoded
    goes to ``letters``.
    """

    rules: str = ""
    letters: str = ""

    def start(self, **trigger: Any) -> Any:
        rules = exactum.control_stream(
            self.rules, bootstrap_servers=self.bootstrap_servers, value=int
        )
        rated = udf(lambda number: f"{number}:{rules.current()['rate']}")
        orders = exactum.read_kafka(
            self.spark,
            self.source.topic,
            bootstrap_servers=self.bootstrap_servers,
            maxOffsetsPerTrigger=self.offsets_max,
            includeHeaders=True,
        )
        value = exactum.Json("id bigint not null")
        decoded = exactum.decode(orders, value, on_error="dead_letter").selectExpr("value.id AS id")
        sink = exactum.KafkaSink(self.output, bootstrap_servers=self.bootstrap_servers)
        letters = exactum.KafkaSink(self.letters, bootstrap_servers=self.bootstrap_servers)
        once = exactum.exactly_once(sink, dead_letters=letters, control=rules)
        rows = decoded.dropDuplicates(["id"]).select(rated("id").alias("value"))
        writer = rows.writeStream.outputMode("append")
        return once.start(
            writer.trigger(**(trigger or {"availableNow": True})), checkpoint=self.checkpoint
        )

    def rates(self) -> list[tuple[int, int]]:
        """(order, rate) of every row that a read_committed reader sees, by order."""
        oracle.check_at_rest(self.bootstrap_servers, [self.output, self.letters], self.query_id)
        pairs = [
            str(seen.value).split(":")
            for seen in oracle.read_all(self.bootstrap_servers, [self.output])
        ]
        return sorted((int(number), int(rate)) for number, rate in pairs)

    def lettered(self) -> list[int]:
        """The numbers of the orders that are dead letters."""
        return sorted(
            int(seen.key or "") for seen in oracle.read_all(self.bootstrap_servers, [self.letters])
        )


def new_rated(spark: SparkSession, broker: Broker, folder: Path) -> Rated:
    return Rated(
        spark,
        broker.servers,
        oracle.Input(broker.topic("orders", partitions=1)),
        broker.topic("rated", partitions=2),
        folder / "check point",
        offsets_max=10,
        rules=broker.topic("rules", partitions=1),
        letters=broker.topic("letters", partitions=2),
    )
