"""A driver for a process of its own, which may be killed at any moment. Exit code 0: all epochs are
done; 3: fenced; 4: another error, told on standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exactum.errors import ExactumError, Fenced
from exactum.files.slot_log import SlotLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun
from exactum.storage.folder import Folder
from exactum.testing import TaskJob
from tests.kit.custom.custom_rows import batches
from tests.kit.targets.api import ApiSink

QUERY = "c7a1b2d3-0000-4000-8000-00000000beef"
PARTITIONS = 2
ROWS = 40
ROWS_PER_SEND = 4


def main(folder: Path, url: str, epochs: int) -> None:
    run = QueryRun(QUERY, new_incarnation(), Guarantee.EXACTLY_ONCE, Folder(folder / "wal"))
    sink = ApiSink(url, rows_per_send_max=ROWS_PER_SEND, tries_max=8, backoff_ms=5)
    opened = sink.open(run, sink.name)
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
