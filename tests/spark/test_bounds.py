"""When a run with stops ends, whichever thread is the faster one. Without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from exactum.protocol.model import SourceOffsets
from exactum.spark.query import Batch
from exactum.spark.source.bounds import Bounds

STOP = {("orders", 0): 10}
BEGIN, END = '{"orders":{"0":0}}', '{"orders":{"0":10}}'
FILES = {"sources/0/0": f"\0v1\n{BEGIN}"}


def test_a_batch_that_ends_while_the_run_s_beginning_is_read() -> None:
    """What is read late must not stand over what the batch has come to: the query would not end."""
    stopped: list[bool] = []

    def read(name: str) -> str | None:
        if not read_names:
            read_names.append(name)
            bounds.done(Batch(0, SourceOffsets((), (END,)), first=True), completed)
        return FILES.get(name)

    read_names: list[str] = []
    completed: Any = None
    source = SimpleNamespace(index=0, initial_offsets=lambda read: {("orders", 0): 0})
    live = SimpleNamespace(
        doing=lambda: "Waiting for data to arrive", stop=lambda: stopped.append(True)
    )
    at_stops = threading.Event()
    run: Any = SimpleNamespace(
        first_batch_id=0, read=read, sources=[source], live=live, at_stops=at_stops
    )
    gate: Any = SimpleNamespace(between_epochs=lambda log_timeout_s: True)
    bounds = Bounds(run, [STOP], gate)
    bounds.tend()
    assert read_names == ["sources/0/0"]
    bounds.tend()
    assert stopped == [True] and at_stops.is_set()
