"""A small durable sink for these tests: rows as JSON files, staged first, visible by one rename.

Shipped to the workers as a module of its own. Faults are armed by files in ``<folder>/faults``, so
that a test can reach a worker process: each armed fault fires once and is then gone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from exactum.errors import FrameRefused, Unavailable
from exactum.protocol.model import (
    CommitPermit,
    CommitReport,
    Incarnation,
    PreparedTransaction,
    Sighting,
)
from exactum.protocol.participant import Participant
from exactum.protocol.sink import (
    DEAD_LETTER_COLUMNS,
    Guarantee,
    OpenSink,
    QueryRun,
    Rejection,
    TaskName,
    WriteOrder,
)
from tests.kit.waiting import WAIT_MAX_S, await_true

LATE_S = 2.0
"""How late a late task begins: when all others of a failing job are gone."""


@dataclass(frozen=True)
class FolderSink:
    """Writes the columns of the frame, each row a JSON object, below ``folder``."""

    folder: str
    name: str = "folder"
    needs: tuple[str, ...] = ()
    rows: Any = None
    refuses_v: int | None = None  # the value of the column v that this target can never take
    late_v: int | None = None  # a task that has this value of the column v begins late
    dead_letter_columns: ClassVar[Sequence[tuple[str, str]]] = DEAD_LETTER_COLUMNS

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        for column in self.needs:
            if column not in [name for name, _ in columns]:
                raise FrameRefused(f"The frame has no column {column!r}.")

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        fire(Path(self.folder), "open")
        for sub in ("staged", "visible", "faults"):
            (Path(self.folder) / sub).mkdir(parents=True, exist_ok=True)
        writers = FolderWriters(replace(self, rows=None), participant)
        target = os.path.realpath(self.folder)
        return OpenSink(FolderParticipant(Path(self.folder), participant), writers, target=target)


@dataclass(frozen=True)
class FolderWriters:
    sink: FolderSink
    participant: str

    def open(self, order: WriteOrder, task: TaskName) -> FolderWriter:
        return FolderWriter(self, order, task)


class FolderWriter:
    def __init__(self, settings: FolderWriters, order: WriteOrder, task: TaskName) -> None:
        self._folder = Path(settings.sink.folder)
        self._participant = settings.participant
        self._refuses_v, self._late_v = settings.sink.refuses_v, settings.sink.late_v
        self._rows: list[Any] = []
        safe = settings.participant.replace("#", "-")
        self._identity = f"{safe}+{order.run.incarnation}+{order.sequence}+{task.partition_id}+{os.urandom(4).hex()}"
        self._direct = order.run.guarantee is not Guarantee.EXACTLY_ONCE
        self._file = self._folder / ("visible" if self._direct else "staged") / self._identity

    def write(self, batch: Any) -> Rejection | None:
        rows = batch.to_pylist()
        if self._late_v is not None and self._late_v in [row.get("v") for row in rows]:
            time.sleep(LATE_S)
            (self._folder / "late").touch()
        refused = [
            i
            for i, row in enumerate(rows)
            if self._refuses_v is not None and row["v"] == self._refuses_v
        ]
        self._rows += [row for i, row in enumerate(rows) if i not in refused]
        self._file.write_text(json.dumps(self._rows, default=str))
        fire(self._folder, "write")
        if not refused:
            return None
        return Rejection(
            batch.take(refused), tuple(f"v={self._refuses_v} may not be" for _ in refused)
        )

    def prepare(self) -> PreparedTransaction | None:
        fire(self._folder, "prepare")
        return PreparedTransaction(self._participant, self._identity, len(self._rows))

    def abort(self) -> None:
        (self._folder / "aborted").touch()
        if not self._direct:
            self._file.unlink(missing_ok=True)


class FolderParticipant(Participant):
    name = ""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder

    def deliver(self, prepared: Sequence[PreparedTransaction]) -> None:
        """Its tasks have made them visible."""

    def list_open(self) -> Sequence[Sighting]:
        mine = self.name.replace("#", "-")
        parts = [(p.name, p.name.split("+")) for p in (self._folder / "staged").iterdir()]
        return [Sighting(self.name, n, Incarnation(p[1])) for n, p in parts if p[0] == mine]

    def verify(self, prepared: Sequence[PreparedTransaction]) -> Sequence[PreparedTransaction]:
        return prepared

    def commit(self, permit: CommitPermit, prepared: Sequence[PreparedTransaction]) -> CommitReport:
        fire(self._folder, "commit")
        for transaction in prepared:
            staged = self._folder / "staged" / transaction.identity
            visible = self._folder / "visible" / transaction.identity
            if not visible.exists():
                staged.rename(visible)
        return CommitReport(committed=tuple(prepared))

    def abort(self, transactions: Sequence[Sighting]) -> None:
        for transaction in transactions:
            (self._folder / "staged" / transaction.identity).unlink(missing_ok=True)

    def salvage(
        self, permit: CommitPermit, expired: Sequence[PreparedTransaction]
    ) -> Sequence[PreparedTransaction]:
        raise AssertionError("a folder never expires anything")

    def close(self) -> None:
        with (self._folder / "closed").open("a") as closed:
            closed.write("x")


def arm(folder: Path, step: str, kind: str = "error", times: int = 1) -> None:
    """Let the next ``times`` calls of ``step`` fail."""
    (folder / "faults").mkdir(parents=True, exist_ok=True)
    for n in range(times):
        (folder / "faults" / f"{step}-{n}").write_text(kind)


def disarm(folder: Path) -> None:
    """What is left of the faults is gone. Tasks that outlive their query may take some meanwhile."""
    for fault in (folder / "faults").iterdir():
        fault.unlink(missing_ok=True)


def await_struck(folder: Path, timeout_s: float = WAIT_MAX_S) -> None:
    """Until every fault that was armed has been taken."""
    await_true(
        lambda: not list((folder / "faults").iterdir()), "somebody took every fault", timeout_s
    )


def fire(folder: Path, step: str) -> None:
    """Fail if a fault of this step is armed; taking it is atomic over processes."""
    for fault in sorted((folder / "faults").glob(f"{step}-*")):
        try:
            kind = fault.read_text()
            fault.unlink()
        except FileNotFoundError:
            continue
        if kind == "exit":
            os._exit(3)
        if kind == "unavailable":
            raise Unavailable(f"the folder did not answer at {step}")
        if kind == "held":
            while not (folder / "released").exists():
                time.sleep(0.02)
            return
        if kind == "slow":
            time.sleep(1.5)
            return
        raise ValueError(f"injected at {step}")


def rows(folder: Path, where: str = "visible") -> list[Any]:
    """Every row that stands, in no order."""
    return [row for file in (folder / where).glob("*") for row in json.loads(file.read_text())]
