"""When a run with stops ends, whichever thread is the faster one. Without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from exactum.checkpoint.offset_log import to_json
from exactum.protocol.model import SourceOffsets
from exactum.spark.live import RunningSource, ranges_of
from exactum.spark.query import Batch
from exactum.spark.source.bounds import Bounds, initial_offsets

STOP = {("orders", 0): 10}
BEGIN, END = '{"orders":{"0":0}}', '{"orders":{"0":10}}'
FILES = {"sources/0/0": f"\0v1\n{BEGIN}"}


def test_a_batch_that_ends_while_the_run_s_beginning_is_read() -> None:
    """What is read late must not stand over what the batch has come to: the query would not end."""
    stopped: list[bool] = []

    def read(name: str) -> str | None:
        if not read_names:
            read_names.append(name)
            offsets = SourceOffsets((), (END,))
            ranges = ranges_of(offsets, [{("orders", 0): 0}])
            bounds.done(Batch(0, offsets, first=True, ranges=ranges), completed)
        return FILES.get(name)

    read_names: list[str] = []
    completed: Any = None
    source = RunningSource(0, 0, "kafkatable", {"subscribe": "orders"}, "sources/0")
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


def test_where_a_query_began() -> None:
    """By the folder of each source: a stream that is read twice has two lines in Spark's log, and
    one folder. Where nobody tells the sources, line by line.
    """
    a, b = ({(topic, 0): offset} for topic, offset in (("a", 3), ("b", 5)))
    texts = {f"sources/{n}/0": f"\0v1\n{to_json(offsets)}" for n, offsets in enumerate((a, b))}
    sources = [
        RunningSource(0, 0, "kafkatable", {}, "sources/0"),
        RunningSource(1, 0, "kafkatable", {}, "sources/0"),
        RunningSource(2, 2, "", {}, None),
        RunningSource(3, 3, "kafkatable", {}, "sources/1"),
    ]
    run: Any = SimpleNamespace(read=texts.get, sources=sources)
    assert initial_offsets(run, 4) == [a, a, {}, b]
    run = SimpleNamespace(read=texts.get, sources=())
    assert initial_offsets(run, 3) == [a, b, {}]
