"""The contract of sinks: an in-memory sink keeps it, and each way to break it is found."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted, HeuristicOutcome
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.protocol.sink import (
    DEAD_LETTER_COLUMNS,
    Guarantee,
    OpenSink,
    QueryRun,
    Sink,
    TaskName,
    WriteOrder,
)
from exactum.testing import SinkContract

pytestmark = pytest.mark.slow

Scope = tuple[str, str]


@dataclass
class Held:
    """A transaction in the server."""

    scope: Scope
    incarnation: Incarnation
    rows: list[Any]


@dataclass
class Server:
    """A transactional target in memory."""

    held: dict[str, Held] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    visible: list[Any] = field(default_factory=list)
    numbers: Iterable[int] = field(default_factory=itertools.count)


SERVERS: dict[str, Server] = {}
"""By name, so that what is pickled holds a name."""


@dataclass(frozen=True)
class MemorySink:
    """``fault`` names a way in which it is broken, or is empty."""

    server: str
    fault: str = ""

    name = "memory"
    rows = None
    dead_letter_columns = DEAD_LETTER_COLUMNS

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Every frame is welcome."""

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        return OpenSink(MemorySide(self, run, participant), MemoryWriters(self, participant))


@dataclass(frozen=True)
class MemoryWriters:
    sink: MemorySink
    participant: str

    def open(self, order: WriteOrder, task: TaskName) -> MemoryWriter:
        return MemoryWriter(self, order)


class MemoryWriter:
    def __init__(self, writers: MemoryWriters, order: WriteOrder) -> None:
        self._server = SERVERS[writers.sink.server]
        self._fault = writers.sink.fault
        self._order = order
        self._participant = writers.participant
        self._identity = ""

    def write(self, batch: Any) -> None:
        if not batch.num_rows:
            return
        if not self._identity:
            self._identity = f"t{next(iter(self._server.numbers))}"
            scope = (self._order.run.query_id, self._participant)
            self._server.held[self._identity] = Held(scope, self._order.run.incarnation, [])
        if self._identity not in self._server.held:
            raise EpochAborted(f"{self._identity} was aborted")
        self._server.held[self._identity].rows += [tuple(row.values()) for row in batch.to_pylist()]

    def prepare(self) -> PreparedTransaction | None:
        if not self._identity:
            return None
        if self._identity not in self._server.held:
            raise EpochAborted(f"{self._identity} was aborted")
        rows = self._server.held[self._identity].rows
        if (
            self._order.run.guarantee is not Guarantee.EXACTLY_ONCE
            or self._fault == "visible at prepare"
        ):
            self._server.visible += rows
        if self._order.run.guarantee is not Guarantee.EXACTLY_ONCE:
            del self._server.held[self._identity]
            return None
        return PreparedTransaction(self._participant, self._identity, len(rows))

    def abort(self) -> None:
        if self._fault != "a task that leaves its own":
            self._server.held.pop(self._identity, None)


class MemorySide:
    def __init__(self, sink: MemorySink, run: QueryRun, participant: str) -> None:
        self.name = participant
        self._server = SERVERS[sink.server]
        self._fault = sink.fault
        self._run = run

    def list_open(self) -> Sequence[Sighting]:
        return [
            Sighting(self.name, identity, held.incarnation)
            for identity, held in self._server.held.items()
            if self._lists(held)
        ]

    def _lists(self, held: Held) -> bool:
        query_id, participant = held.scope
        if self._fault == "lists by prefix":
            return query_id == self._run.query_id and participant.startswith(self.name)
        if self._fault == "lists all queries":
            return participant == self.name
        if self._fault == "lists its own only" and held.incarnation != self._run.incarnation:
            return False
        return held.scope == (self._run.query_id, self.name) and self._fault != "lists nothing"

    def list_committed(
        self, incarnations: Set[Incarnation], recent: Sequence[PreparedTransaction]
    ) -> Sequence[Sighting]:
        return ()

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        for p in prepared:
            if p.identity not in self._server.held:
                raise EpochAborted(f"{p.identity} is gone")
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        committed, expired = [], []
        for p in prepared:
            held = self._server.held.get(p.identity)
            if held is not None:
                self._server.visible += (
                    held.rows if self._fault != "commits half" else held.rows[1:]
                )
                self._server.committed.add(p.identity)
                if self._fault != "commits twice":
                    del self._server.held[p.identity]
            known = (
                p.identity in self._server.committed and self._fault != "forgets what it committed"
            )
            (
                committed
                if known or held is not None or self._fault == "lost is a success"
                else expired
            ).append(p)
        return CommitReport(tuple(committed), tuple(expired))

    def abort(self, transactions: Sequence[Sighting]) -> None:
        for sighting in transactions:
            gone = self._server.held.pop(sighting.identity, None)
            if gone is None and self._fault == "an abort must find it":
                raise HeuristicOutcome(f"{sighting.identity} is not there")
            if gone is None and self._fault == "aborts what is committed":
                self._server.visible.clear()

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        raise HeuristicOutcome(
            f"{permit.record.epoch}: {self.name} has lost {[p.identity for p in expired]}"
        )

    def close(self) -> None:
        if self._fault == "close aborts":
            self._server.held.clear()


class _Contract(SinkContract):
    fault = ""
    visible_within_s = 0.0

    def make_sink(self) -> Sink:
        SERVERS.setdefault(self.fault, Server())
        return MemorySink(self.fault, self.fault)

    def visible_rows(self) -> Iterable[object]:
        return SERVERS.setdefault(self.fault, Server()).visible

    def batches(self) -> Sequence[Any]:
        return [pa.RecordBatch.from_pydict({"n": [2 * b, 2 * b + 1]}) for b in range(4)]

    def reset(self) -> None:
        SERVERS[self.fault] = Server()

    def leftovers(self) -> Sequence[object]:
        return list(SERVERS[self.fault].held)


class TestMemorySink(_Contract):
    """Unbroken."""


TESTS = [name for name in dir(SinkContract) if name.startswith("test_")]


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    "fault",
    [
        "visible at prepare",
        "a task that leaves its own",
        "lists by prefix",
        "lists all queries",
        "lists its own only",
        "lists nothing",
        "commits half",
        "commits twice",
        "forgets what it committed",
        "lost is a success",
        "an abort must find it",
        "aborts what is committed",
        "close aborts",
    ],
)
def test_a_broken_sink_is_found(fault: str) -> None:
    """Each way to break the port fails at least one test of the contract."""
    contract = _Contract()
    contract.fault = fault
    found = []
    for test in TESTS:
        try:
            getattr(contract, test)()
        except Exception:
            found.append(test)
    print(fault, "->", ", ".join(found))
    assert found
