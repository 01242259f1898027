"""A stream with poison in it, and a query over it that may be started again and again on one
checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import exactum
from exactum import Delivery
from exactum.local import LocalKafka
from exactum.spark.settings import state_format
from tests.kit.decoding.format_cases import avro, framed
from tests.kit.decoding.records import avro_record
from tests.kit.decoding.registry import Registry
from tests.kit.errors import text_of
from tests.kit.kafka.broker import producer_to
from tests.kit.spark.ended import ended
from tests.kit.waiting import WAIT_MAX_S

PARTITIONS = 4
RECORDS = 10_000
POISON_EVERY = 100
KINDS = 10
ORDER = avro_record("Order", id="long", k="int", name="string")
OTHER = avro_record("Order", id="string", k="int", name="string")
NESTED = avro_record("Order", id="long", k="int", name="string", t=["null", "Order"])


@dataclass
class Poisoned:
    """10,000 records, number i in partition i % 4 at offset i // 4 with the key i; 100 are poison
    of ten kinds.
    """

    topic: str
    registry: Registry
    poison: dict[int, bytes | None]
    kinds: dict[int, str]

    def number(self, partition: int, offset: int) -> int:
        return offset * PARTITIONS + partition

    def good(self) -> Iterator[int]:
        return (i for i in range(RECORDS) if i not in self.poison)


def poisoned(kafka: LocalKafka, topic: str, registry: Registry) -> Poisoned:
    """Fill the topic. The schema registry knows the stream's schema as the subject
    ``orders-value``.
    """
    number = registry.register("orders-value", ORDER)
    wrong = framed(registry.register("other", OTHER))
    deep = framed(registry.register("nested", NESTED))
    unknown = framed(1_000_000)  # one, for each is waited for

    def good(i: int) -> bytes:
        return avro(ORDER, {"id": i, "k": i % 10, "name": f"name {i}"}, number)

    makers: dict[str, Callable[[int], bytes | None]] = {
        "empty": lambda i: b"",
        "truncated": lambda i: good(i)[:-3],
        "wrong magic byte": lambda i: b"\x07" + good(i)[1:],
        "unknown schema id": lambda i: unknown + good(i)[5:],
        "wrong encoding": lambda i: good(i).replace(b"name", b"n\xffme"),
        "too deep": lambda i: deep + good(i)[5:] + b"\x02" * 3_000,
        "huge": lambda i: (
            good(i)[: -len(f"name {i}") - 1] + b"\xfe\xff\xff\xff\xff\xff\x0f" + b"x" * 9_000
        ),
        "null": lambda i: None,
        "wrong type": lambda i: wrong + b"\x02x" + good(i)[6:],
        "trailing garbage": lambda i: good(i) + b"\0more",
    }
    names = list(makers)
    kinds = {i: names[i // POISON_EVERY % len(names)] for i in range(7, RECORDS, POISON_EVERY)}
    poison = {i: makers[kind](i) for i, kind in kinds.items()}
    of_a_kind = RECORDS // POISON_EVERY // KINDS
    assert Counter(kinds.values()) == dict.fromkeys(names, of_a_kind)
    producer = producer_to(kafka.bootstrap_servers, {"queue.buffering.max.messages": RECORDS + 1})
    for i in range(RECORDS):
        value = poison[i] if i in poison else good(i)
        producer.produce(topic, value, str(i).encode(), partition=i % PARTITIONS)
    assert producer.flush(WAIT_MAX_S) == 0
    return Poisoned(topic, registry, poison, kinds)


@dataclass
class Job:
    """A query that reads until nothing is left, with a checkpoint of its own."""

    spark: SparkSession
    checkpoint: Path
    events: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    """What the last run ended with."""

    def run(
        self,
        frame: DataFrame,
        batch: Delivery | Callable[[DataFrame, int], None],
        mode: str = "append",
    ) -> str | None:
        """The text of the error that it ended with, or None. ``batch`` may be a function around
        ``Delivery.for_each_batch``.
        """
        writer = frame.writeStream.outputMode(mode).trigger(availableNow=True)

        def start() -> Any:
            if isinstance(batch, Delivery):
                return batch.start(writer, checkpoint=self.checkpoint)
            placed = writer.option("checkpointLocation", str(self.checkpoint))
            with state_format(
                self.spark, lambda _: None
            ):  # what start() sees to is here the user's
                return placed.foreachBatch(batch).start()

        self.error = ended(start)
        return text_of(self.error)

    def exactly_once(self, *sinks: Any, **settings: Any) -> Any:
        return exactum.exactly_once(*sinks, on_event=self.events.append, **settings)

    def seen(self, kind: type) -> dict[int, int]:
        """The rows of all events of this kind, by epoch; one epoch has one at most."""
        found = [event for event in self.events if isinstance(event, kind)]
        assert len({event.batch_id for event in found}) == len(found), found
        return {event.batch_id: event.rows for event in found}

    def poison_of_epochs(self, stream: Poisoned) -> dict[int, int]:
        """How many poison records Spark's own offset log gives to each epoch."""
        before = dict.fromkeys(map(str, range(PARTITIONS)), 0)
        found = {}
        log = self.checkpoint / "offsets"
        for batch_id in sorted(int(file.name) for file in log.iterdir() if file.name.isdigit()):
            end = json.loads((log / str(batch_id)).read_text().splitlines()[2])[stream.topic]
            numbers = (
                stream.number(int(p), o) for p, last in end.items() for o in range(before[p], last)
            )
            found[batch_id] = sum(number in stream.poison for number in numbers)
            before = end
        return found
