"""A topic of numbers that grows, and a supervised query over it (``watched_application``)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from exactum.local import LocalKafka
from tests.kit.kafka.broker import producer_to
from tests.kit.run.run_command import Command
from tests.kit.waiting import WAIT_MAX_S

APPLICATION = Path(__file__).with_name("watched_application.py")
SERVES = re.compile(r"(http://\S+:\d+)/ serves")
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

    def run(self, options: Sequence[str]) -> Command:
        play = {
            "bootstrap_servers": self.kafka.bootstrap_servers,
            "source": self.source,
            "target": self.target,
            "dead": self.dead,
            "checkpoint": str(self.folder / "checkpoint"),
            "freeze": str(self.folder / "freeze"),
        }
        options = ["--listen", "0", *options]
        return Command(self.folder / "run", APPLICATION, options, [json.dumps(play)])

    def freeze(self) -> None:
        """The driver stops itself at its next decision."""
        (self.folder / "freeze").touch()

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
