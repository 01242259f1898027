"""Faults at named steps, by wrapping the ports: a sink and a decision log that fail where they are
told.

    driver: read, decide (the log) - list_open, verify, commit, abort, salvage (a participant) -
            batch (the whole foreachBatch call; "before" the next one is after Spark's commit log of
            this one)
    tasks:  write, prepare

Workers import this module, so it is importable by name and has no state but files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from exactum.local.own_process import members
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.model import CommitPermit, CommitReport, DecisionRecord, PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.sink import (
    OpenSink,
    QueryRun,
    Sink,
    TaskName,
    WriteOrder,
    Writer,
    WriterFactory,
)
from exactum.testing import interpose
from tests.kit.process_tree import signal_session
from tests.kit.waiting import WAIT_MAX_S

T = TypeVar("T")


class Planned(Exception):
    """The failure that a fault raises in a task."""


@dataclass(frozen=True)
class Fault:
    """What happens at the ``nth`` time that ``step`` is reached.

    ``when`` is before or after its effect; ``half``, of a commit, after the first half of its
    transactions. For a step of a task ``nth`` is the write job of this incarnation, and only its
    first try fails. ``action``: ``kill`` the whole process tree, ``raise``, or ``hold``: make the
    file ``reached`` and wait for the file ``go``, both in ``folder``.
    ``partition``: of a task; None: of all.
    """

    step: str
    when: str = "before"
    nth: int = 1
    action: str = "kill"
    partition: int | None = None
    sink: str = ""
    folder: str = ""

    def strike(self) -> None:
        # A file of its own: what a worker prints reaches the log through the JVM, which may be
        # killed before.
        with open("faults", "a") as file:
            file.write(
                f"FAULT {self.action} {self.when} {self.step} {self.nth} in process {os.getpid()}\n"
            )
        if self.action == "kill":
            kill_session()
        elif self.action == "raise":
            raise Planned(f"planned failure {self.when} {self.step}")
        elif self.action == "hold":
            hold(Path(self.folder))
        else:
            raise ValueError(self.action)


def hold(folder: Path) -> None:
    (folder / "reached").touch()
    deadline = time.monotonic() + WAIT_MAX_S
    while not (folder / "go").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody made {folder / 'go'}")
        time.sleep(0.01)


def kill_session() -> None:
    """SIGKILL the whole tree of the job this process belongs to. All are stopped first, so that
    nobody acts on the death of another: it is one moment, as when the machine loses power. This
    process goes on meanwhile, so its own process group, which of the driver is Python and the JVM,
    goes last and by one signal.

    Where two tasks come to it at once only one does it: they would stop each other, for good.
    """
    try:
        Path("killing").touch(exist_ok=False)
    except FileExistsError:
        time.sleep(WAIT_MAX_S)
    session, own = os.getsid(0), os.getpgid(0)
    signal_session(session, signal.SIGSTOP)
    for pid in members(session):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) != own:
                os.kill(pid, signal.SIGKILL)
    os.killpg(own, signal.SIGKILL)


@dataclass
class Faults:
    """The faults of the driver, counted. Safe to use from the threads that run participants in
    parallel.
    """

    planned: Sequence[Fault]
    _counts: Counter[int] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, step: str, when: str, sink: str = "") -> Callable[[], None] | None:
        """What is planned for here and now, if anything."""
        struck = None
        with self._lock:
            for number, fault in enumerate(self.planned):
                if (fault.step, fault.when) == (step, when) and fault.sink in sink:
                    self._counts[number] += 1
                    if self._counts[number] == fault.nth:
                        struck = fault.strike
        return struck

    def around(self, step: str, effect: Callable[[], T], sink: str = "") -> T:
        self.strike(step, "before", sink)
        result = effect()
        self.strike(step, "after", sink)
        return result

    def strike(self, step: str, when: str, sink: str = "") -> None:
        planned = self.at(step, when, sink)
        if planned is not None:
            planned()


class FaultySink:
    """A sink both of whose halves fail as planned."""

    def __init__(self, inner: Sink, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        opened = self._inner.open(run, participant, columns)
        planned = tuple(
            f
            for f in self._faults.planned
            if f.step in ("write", "prepare") and f.sink in participant
        )
        halves: Any = HalfCommits(opened.participant, self._faults)
        name = opened.participant.name
        port = interpose(halves, lambda step, call: self._faults.around(step, call, name))
        return OpenSink(port, FaultyWriters(opened.writers, planned))


class HalfCommits:
    """The driver half, which commits the first half alone where that is planned."""

    def __init__(self, inner: Participant, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        half = self._faults.at("commit", "half", self._inner.name)
        if half is not None:
            self._inner.commit(permit, prepared[: (len(prepared) + 1) // 2])
            half()
        return self._inner.commit(permit, prepared)


@dataclass(frozen=True)
class FaultyWriters:
    """The executors' half."""

    inner: WriterFactory
    planned: tuple[Fault, ...]

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        mine = [
            f
            for f in self.planned
            if f.nth == order.sequence
            and task.attempt_number == 0
            and (f.partition is None or f.partition == task.partition_id)
        ]

        def strike(step: str, when: str) -> None:
            for fault in mine:
                if (fault.step, fault.when) == (step, when):
                    fault.strike()

        def around(step: str, call: Callable[[], object]) -> object:
            strike(step, "before")
            result = call()
            strike(step, "after")
            return result

        return interpose(self.inner.open(order, task), around)


class FaultyLog:
    """The decision log, made when first used: the query has its id by then."""

    def __init__(self, make: Callable[[], DecisionLog], faults: Faults) -> None:
        self._inner = cache(make)
        self._faults = faults

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        return self._faults.around("read", lambda: self._inner().read(batch_id))

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        return self._faults.around("decide", lambda: self._inner().decide(record))

    def log_id(self) -> str | None:
        return PermitLog(self._inner()).log_id()

    def prune(self, below_batch_id: int) -> int:
        return self._inner().prune(below_batch_id)

    def close(self) -> None:
        self._inner().close()
