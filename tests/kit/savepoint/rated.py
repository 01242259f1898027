"""A query with all that one may have beside its rows: rules, dead letters and state."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import exactum
from tests.kit.crash import oracle
from tests.kit.savepoint.totals import Totals
from tests.kit.waiting import WAIT_MAX_S

POISON_EVERY = 5
SETTINGS = {"enable.idempotence": True, "log_level": 0}


@dataclasses.dataclass(frozen=True)
class Orders:
    """Numbered orders in one partition; every fifth number is poison."""

    bootstrap_servers: str
    topic: str

    def produce(self, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, **SETTINGS})
        for number in numbers:
            value = json.dumps({"id": number}) if number % POISON_EVERY else "poison"
            producer.produce(self.topic, value, str(number), partition=0)
        assert producer.flush(WAIT_MAX_S) == 0


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule ``rate`` in a topic of one partition."""

    bootstrap_servers: str
    topic: str

    def write(self, rate: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, **SETTINGS})
        producer.produce(self.topic, str(rate), "rate")
        assert producer.flush(WAIT_MAX_S) == 0

    def forget(self) -> None:
        """What retention does, at once."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        for future in admin.delete_records([TopicPartition(self.topic, 0, -1)]).values():
            future.result(WAIT_MAX_S)


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


def new_rated(spark: SparkSession, bootstrap_servers: str, topic: Any, folder: Path) -> Rated:
    return Rated(
        spark,
        bootstrap_servers,
        oracle.Input(topic("orders", partitions=1)),
        topic("rated", partitions=2),
        folder / "check point",
        offsets_max=10,
        rules=topic("rules", partitions=1),
        letters=topic("letters", partitions=2),
    )
