"""A topic of numbers that grows, and a supervised query over it (``watched_application``)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from exactum.local import LocalKafka
from tests.kit.kafka.broker import producer_to
from tests.kit.run.run_command import Command
from tests.kit.waiting import WAIT_MAX_S

HERE = Path(__file__).parent
SERVES = re.compile(r"(http://\S+:\d+)/ serves")
TIMEOUT_MS = 24_000
FED_EVERY_S = 0.2


def base_url(run: Command) -> str:
    run.says("/ serves")
    found = SERVES.search(run.log)
    assert found is not None, run.log
    return found[1]


@dataclass
class Fed:
    """A topic of numbers that grows, and the query over it."""

    kafka: LocalKafka
    folder: Path
    source: str
    target: str
    dead: str
    sent: int = 0

    def run(self, options: Sequence[str], **more: object) -> Command:
        play = {
            "bootstrap_servers": self.kafka.bootstrap_servers,
            "source": self.source,
            "target": self.target,
            "dead": self.dead,
            "checkpoint": str(self.folder / "checkpoint"),
            "freeze": str(self.folder / "freeze"),
            "timeout_ms": TIMEOUT_MS,
            "max_offsets": 1000,
            "trigger": "0 seconds",
            "session": {"master": "local[2]", "spark.sql.shuffle.partitions": 2},
            **more,
        }
        options = ["--listen", "0", *options]
        script = HERE / "watched_application.py"
        return Command(self.folder / "run", script, options, [json.dumps(play)])

    def freeze(self) -> None:
        """The driver stops itself at its next decision."""
        (self.folder / "freeze").touch()

    def send(self, value: str) -> None:
        producer = producer_to(self.kafka.bootstrap_servers)
        producer.produce(self.source, value)
        assert producer.flush(WAIT_MAX_S) == 0

    @contextmanager
    def growing(self) -> Iterator[None]:
        """A number comes every 200 ms."""
        over = threading.Event()
        producer = producer_to(self.kafka.bootstrap_servers)

        def feed() -> None:
            while not over.wait(FED_EVERY_S):
                producer.produce(self.source, json.dumps({"n": self.sent}))
                self.sent += 1

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            assert producer.flush(WAIT_MAX_S) == 0

    @contextmanager
    def behind_open_transactions(self) -> Iterator[None]:
        """An open transaction of somebody else's stands in the topic."""
        settings = {"bootstrap.servers": self.kafka.bootstrap_servers}
        producer = Producer({**settings, "transactional.id": f"foreign-{self.source}"})
        producer.init_transactions(WAIT_MAX_S)
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(self.source, b'{"n": -1}', partition=partition)
        assert producer.flush(WAIT_MAX_S) == 0
        yield
        producer.abort_transaction(WAIT_MAX_S)
