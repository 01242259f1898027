"""A topic of numbers that grows, and a supervised query over it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.kit.kafka.broker import producer_to
from tests.kit.run.run_command import Command, World
from tests.kit.waiting import WAIT_MAX_S

SERVES = re.compile(r"(http://\S+:\d+)/ serves")
FED_EVERY_S = 0.2


def base_url(run: Command) -> str:
    run.says("/ serves")
    found = SERVES.search(run.log)
    assert found is not None, run.log
    return found[1]


@dataclass
class Fed(World):
    """A topic of numbers that grows, and the query over it; bad ones go to the topic ``dead``."""

    dead: str
    sent: int = 0

    def watched(self, options: Sequence[str]) -> Command:
        """The query ``watched``, which ``exactum run`` serves."""
        play = {
            "dead": self.dead,
            "freeze": str(self.folder / "freeze"),
            "max_offsets": 1000,
            "sink": {"transaction_timeout_ms": 24_000},
        }
        return self.run("run", ["--listen", "0", *options], query="watched", drain=False, **play)

    def freeze(self) -> None:
        """The driver stops itself at its next decision."""
        (self.folder / "freeze").touch()

    @contextmanager
    def growing(self) -> Iterator[None]:
        """A number comes every 200 ms."""
        over = threading.Event()
        producer = producer_to(self.bootstrap_servers)

        def feed() -> None:
            while not over.wait(FED_EVERY_S):
                producer.produce(self.source.topic, json.dumps({"n": self.sent}))
                self.sent += 1

        thread = threading.Thread(target=feed)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            assert producer.flush(WAIT_MAX_S) == 0
