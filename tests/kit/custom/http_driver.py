"""A driver for a process of its own, which may be killed at any moment. Exit code 0: all epochs are
done; 3: fenced; 4: another error, told on standard error.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from exactum.custom.write_ahead import WriteAheadSink
from exactum.errors import ExactumError, Fenced
from exactum.files.slot_log import SlotLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.storage.folder import Folder
from exactum.testing import TaskJob
from tests.kit.custom.custom_rows import batches
from tests.kit.waiting import WAIT_MAX_S

QUERY = "c7a1b2d3-0000-4000-8000-00000000beef"
PARTITIONS = 2
ROWS = 40
ROWS_PER_SEND = 4


class HttpSink(WriteAheadSink):
    """The documented use: one POST for each chunk, with the key as the idempotency key."""

    def __init__(self, url: str) -> None:
        super().__init__(rows_per_send_max=ROWS_PER_SEND, tries_max=8, backoff_ms=5, name="http")
        self.url = url

    def send(self, batch: Any, key: str) -> None:
        body = json.dumps(batch.to_pylist()).encode()
        request = urllib.request.Request(self.url, body, {"Idempotency-Key": key}, method="POST")
        with urllib.request.urlopen(request, timeout=WAIT_MAX_S) as reply:
            reply.read()


def main(folder: Path, url: str, epochs: int) -> None:
    run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE, Folder(folder / "wal"))
    opened = HttpSink(url).open(run, "http")
    coordinator = Coordinator(
        run, [opened.participant], SlotLog(Folder(folder / "decisions"), QUERY)
    )
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir(exist_ok=True)
    rows = batches(epochs * PARTITIONS, ROWS)
    try:
        for batch_id in range(len(list(checkpoint.iterdir())), epochs):
            mine = rows[batch_id * PARTITIONS : (batch_id + 1) * PARTITIONS]
            coordinator.run(
                batch_id, SourceOffsets(), TaskJob(opened.writers, [[b] for b in mine], losers=True)
            )
            (checkpoint / str(batch_id)).touch()
    except Fenced as error:
        print(error, file=sys.stderr)
        sys.exit(3)
    except ExactumError as error:
        print(type(error).__name__, error, file=sys.stderr)
        sys.exit(4)
