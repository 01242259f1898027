"""One incarnation of a query in this process: the real coordinator, sink, log and broker, and no
Spark.

A crash is a ``Crash`` raised at a named moment: it is no ``Exception``, so nobody cleans up after
it.
"""

from __future__ import annotations

import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from exactum import KafkaSink
from exactum.events import Event
from exactum.files.slot_log import SlotLog
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.model import Completed, PreparedTransaction, SourceOffsets, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun, WriteOrder
from exactum.storage.folder import Folder
from exactum.testing import Crash, TaskJob
from tests.kit.crash import oracle
from tests.kit.crash.deaths import Faults, FaultyLog, FaultySink
from tests.kit.waiting import WAIT_MAX_S

T = TypeVar("T")
Moment = tuple[str, str] | tuple[str, str, int]
"""(step, "before" or "after" or "half", at which time it comes), as in ``deaths``; the first if
not said.
"""


def crash() -> None:
    raise Crash


@dataclass
class Hold:
    """Called by a driver in a thread of its own: says that it is there, and waits to be let go."""

    reached: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self) -> None:
        self.reached.set()
        if not self.go.wait(WAIT_MAX_S):
            raise TimeoutError("nobody let it go")


@dataclass
class Moments(Faults):
    """Calls what is planned for a moment."""

    planned: Sequence[Any] = ()
    calls: Mapping[Moment, Callable[[], None]] = field(default_factory=dict)
    come: Counter[tuple[str, str]] = field(default_factory=Counter)

    def at(self, step: str, when: str, sink: str = "") -> Callable[[], None] | None:
        self.come[step, when] += 1
        nth = self.come[step, when]
        return self.calls.get((step, when, nth)) or (
            self.calls.get((step, when)) if nth == 1 else None
        )


class Query:
    """What outlives an incarnation: the sink's settings, the query's id and its decision log."""

    def __init__(self, folder: Path, topic: str, bootstrap_servers: str, **sink: Any) -> None:
        self.topic = topic
        self.query_id = f"q-{secrets.token_hex(4)}"
        self.folder = folder / self.query_id
        self.runs = 0
        self._servers = bootstrap_servers
        self._settings = sink
        self._sink = KafkaSink(topic, bootstrap_servers=bootstrap_servers, **sink)

    def values(self, part: str = "") -> list[str]:
        """What is visible, sorted, once nothing of the query (or with ``part`` in its id) is open."""
        oracle.check_at_rest(self._servers, [self.topic], part or self.query_id)
        return sorted(seen.value or "" for seen in oracle.read_all(self._servers, [self.topic]))

    def wait_for_slow_servers(self) -> None:
        """From here on its transactions time out as late as by default."""
        lasting = {
            name: value
            for name, value in self._settings.items()
            if name != "transaction_timeout_ms"
        }
        self._sink = KafkaSink(self.topic, bootstrap_servers=self._servers, **lasting)

    def driver(self, calls: Mapping[Moment, Callable[[], None]] | None = None) -> Driver:
        return Driver(self, self._sink, Moments(calls=calls or {}))

    def copy(self, folder: Path) -> Query:
        """As somebody copies a checkpoint: who goes on from it knows nothing of later runs."""
        other = copy(self)
        other.folder = folder / self.query_id
        shutil.copytree(self.folder, other.folder)
        return other


class Driver:
    """One incarnation."""

    def __init__(self, query: Query, sink: KafkaSink, moments: Moments) -> None:
        self.run = QueryRun(
            query.query_id,
            new_incarnation(query.runs + 1),
            Guarantee.EXACTLY_ONCE,
            number=query.runs + 1,
        )
        self._query = query
        self.events: list[Event] = []
        self.prepared: Sequence[PreparedTransaction] = ()
        self._moments = moments
        opened = FaultySink(sink, moments).open(self.run, sink.name)
        self.writers = opened.writers
        log = FaultyLog(lambda: SlotLog(Folder(query.folder), query.query_id), moments)
        self._coordinator = Coordinator(
            self.run, [opened.participant], log, on_event=self.events.append
        )

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._coordinator.close()

    def epoch(self, batch_id: int, *tasks: pa.RecordBatch) -> Completed:
        """Run one epoch; each record batch is one task."""
        job = TaskJob(self.writers, [[rows] for rows in tasks], around=self._moments.around)

        def write(order: WriteOrder) -> Sequence[PreparedTransaction]:
            self._query.runs = max(self._query.runs, self.run.number)  # on record by now
            self.prepared = job(order)
            return self.prepared

        return self._coordinator.run(batch_id, SourceOffsets(), write)

    def names(self) -> list[str]:
        """The names of the events so far."""
        return [type(event).__name__ for event in self.events]


RECORD = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
    ]
)


def rows(values: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Records as a task gets them: dictionaries with ``value`` and, optionally, key, headers,
    partition.
    """
    return pa.RecordBatch.from_pylist(list(values), RECORD)
