"""One query of the demo with everything that belongs to it: driver, output, reader, chaos,
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from exactum.ops.demo.broker_view import BrokerView
from exactum.ops.demo.chaos import Aim, Chaos, plan
from exactum.ops.demo.kept_running import KeptRunning, StandbyBeside, StartedAgain
from exactum.ops.demo.screen import QueryNumbers
from exactum.ops.demo.verdict import RowsSeen
from exactum.ops.shown_checkpoint import ShownCheckpoint

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Contender:
    """What tells the two queries apart: each is killed equally often, at the moments that hurt it
    most.

    The ``lead`` of their kills differs: while one starts again, the other's first standby gets
    warm, and that is waited for.
    """

    name: str
    script: Path
    kept: Callable[[str, Path, Sequence[str], Path], KeptRunning]
    topic: str
    aims: Sequence[Aim]
    transactional: bool
    lead: float


EXACTUM = Contender(
    "exactum",
    FOLDER / "query.py",
    StandbyBeside,
    "shouted",
    (Aim.DECIDED, Aim.WRITING, Aim.RANDOM),
    transactional=True,
    lead=0.55,
)
SPARK = Contender(
    "Spark's own sink",
    FOLDER / "spark_query.py",
    StartedAgain,
    "shouted_spark",
    (Aim.WRITING, Aim.WRITING, Aim.RANDOM),
    transactional=False,
    lead=0.05,
)


class Subject:
    """A contender at work. Threads share it: what is seen has one writer, and everybody reads plain
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
        self.seen = RowsSeen()
        self.open_transactions: int | None = 0 if contender.transactional else None
        self.checkpoint = ShownCheckpoint(folder / contender.topic)
        self.driver = contender.kept(
            contender.name,
            contender.script,
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
            way=self.driver.way,
            state=self.chaos.state,
            committed=self.seen.committed,
            duplicates=self.seen.committed - self.seen.distinct,
            missing=max(0, produced - self.seen.distinct),
            open_transactions=self.open_transactions,
            batches=self.checkpoint.last_commit() + 1
            if self.open_transactions is None
            else self.checkpoint.decided(),
            kills=self.chaos.kills,
            recoveries_s=self.chaos.recoveries_s,
        )
