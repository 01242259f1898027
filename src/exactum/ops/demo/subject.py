"""One query of the demo with everything that belongs to it: driver, output, reader, chaos,
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exactum.ops.demo.broker_view import BrokerView
from exactum.ops.demo.chaos import Aim, Chaos, plan
from exactum.ops.demo.checkpoint import ShownCheckpoint
from exactum.ops.demo.driver import Driver
from exactum.ops.demo.screen import QueryNumbers
from exactum.ops.demo.tally import Tally


@dataclass(frozen=True)
class Contender:
    """What tells the two queries apart: each is killed equally often, at the moments that hurt it
    most.

    The ``lead`` of their kills differs, so that on two cores only one of them starts again at a
    time.
    """

    name: str
    module: str
    topic: str
    aims: Sequence[Aim]
    transactional: bool
    lead: float


EXACTUM = Contender(
    "exactum",
    "exactum.ops.demo.query",
    "shouted",
    (Aim.DECIDED, Aim.WRITING, Aim.RANDOM),
    transactional=True,
    lead=0.15,
)
SPARK = Contender(
    "Spark's own sink",
    "exactum.ops.demo.spark_query",
    "shouted_spark",
    (Aim.WRITING, Aim.WRITING, Aim.RANDOM),
    transactional=False,
    lead=0.65,
)


class Subject:
    """A contender at work. Threads share it: the tally has one writer, and everybody reads plain
    numbers.
    """

    def __init__(
        self,
        contender: Contender,
        broker: BrokerView,
        bootstrap_servers: str,
        *,
        folder: Path,
        kills: int,
        seconds: float,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        self.name, self.topic = contender.name, contender.topic
        self.tally = Tally()
        self.open_transactions: int | None = 0 if contender.transactional else None
        self.checkpoint = ShownCheckpoint(folder / contender.topic)
        self.driver = Driver(
            contender.name,
            contender.module,
            (bootstrap_servers, str(self.checkpoint.folder)),
            folder / f"{contender.topic}.log",
        )
        self.chaos = Chaos(
            driver=self.driver,
            checkpoint=self.checkpoint,
            broker=broker,
            topic=contender.topic,
            transactional=contender.transactional,
            kills=plan(kills, seconds, contender.aims, seed, contender.lead),
            say=say,
        )

    def numbers(self, produced: int) -> QueryNumbers:
        """The numbers of this moment."""
        return QueryNumbers(
            name=self.name,
            state=self.chaos.state,
            committed=self.tally.committed,
            duplicates=self.tally.duplicates,
            missing=max(0, produced - self.tally.distinct),
            open_transactions=self.open_transactions,
            epochs=self.checkpoint.last_commit() + 1
            if self.open_transactions is None
            else self.checkpoint.decided(),
            restarts=max(0, self.driver.starts - 1),
        )
