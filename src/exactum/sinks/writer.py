"""The executor half of every sink whose rows wait in staged files: one task, one file or many."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from exactum.errors import EpochAborted, ExactumError, SettingRefused, Unavailable
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Rejection, TaskName, WriteOrder
from exactum.sinks.frames import FrameWriter
from exactum.sinks.staged import StagedFile, StagedPart
from exactum.sinks.staging import StagedName, Staging
from exactum.storage.storage import NewFile

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("exactum.sinks")

FINISHERS = 8
FINISHING_MAX = 64
"""Files that are written and not yet durable; more than these are waited for."""


@dataclass
class TaskFile:
    """A file of one task. ``rows`` and ``facts`` go on record as they are at the end;
    ``size_bytes`` is known when it is durable.
    """

    name: str
    stream: NewFile
    rows: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    size_bytes: int = -1


class TaskFiles:
    """The files of one task, in the order in which they were begun."""

    def __init__(self, staging: Staging, name: StagedName) -> None:
        self._staging = staging
        self._name = name
        self._files: list[TaskFile] = []
        self._frames: FrameWriter | None = None
        self._finishing: deque[tuple[TaskFile, Future[int]]] = deque()
        self._pool: ThreadPoolExecutor | None = None

    @property
    def task(self) -> int:
        """The number of its partition."""
        return self._name.task

    @property
    def open_max(self) -> int:
        """How many of them may be open at a time."""
        return self._staging.storage.streams_max

    def create(self) -> TaskFile:
        """Begin the next one. Raises OSError."""
        name = self._name.file(len(self._files))
        file = TaskFile(name, self._staging.create(name))
        self._files.append(file)
        return file

    def finish(self, file: TaskFile) -> None:
        """All was written into it; a thread makes it durable. Raises OSError."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(FINISHERS, "exactum-finish")
        self._finishing.append((file, self._pool.submit(file.stream.finish)))
        self._wait(FINISHING_MAX)

    def frames(self, header: Mapping[str, Any]) -> FrameWriter:
        """Of a task that writes frames into one file; the first call begins it, with this header.
        Raises OSError.
        """
        if self._frames is None:
            file = self.create()
            self._frames = FrameWriter(file.stream, header)
            file.facts = {"header": self._frames.header_digest}
        return self._frames

    def end(self) -> tuple[StagedFile, ...]:
        """Every file is durable. Raises OSError."""
        if self._frames is not None:
            (file,) = self._files
            file.rows, file.size_bytes = self._frames.rows, file.stream.finish()
        self._wait(0)
        self._end_pool()
        return tuple(StagedFile(file.size_bytes, file.rows, file.facts) for file in self._files)

    def discard(self) -> None:
        """What cannot be removed is swept by the driver. Idempotent."""
        self._end_pool()
        for file in self._files:
            file.stream.discard()
        names = [file.name for file in self._files]
        self._files = []
        try:
            self._staging.delete(names)
        except ExactumError as error:
            log.warning("what a task has staged could not be removed: %s", error)

    def _wait(self, left: int) -> None:
        """Until at most ``left`` files are not yet durable."""
        while len(self._finishing) > left:
            file, size_bytes = self._finishing.popleft()
            file.size_bytes = size_bytes.result()

    def _end_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)


class TaskRows(ABC):
    """How one task's rows become files: what a staged sink writes of its own. Each task has one,
    made there of the sink's plan.
    """

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    @abstractmethod
    def write(self, batch: pa.RecordBatch, files: TaskFiles) -> Rejection | None:
        """See ``Writer.write``. Where no row is taken, no file is begun."""

    def finish(self, files: TaskFiles) -> None:  # noqa: B027  (most gather nothing)
        """All rows were written: what was gathered is written, too, and every file finished."""

    def discard(self) -> None:  # noqa: B027
        """The task has failed: let go of what was gathered. Idempotent."""


@dataclass(frozen=True)
class StagedWriters:
    """Goes to the executors; opens a writer there. ``plan`` is what ``rows`` is made of, picklable.
    ``at`` and ``facts`` go on record, see ``StagedPart``.
    """

    staging: Staging
    rows: Callable[[Any], TaskRows]
    plan: Any = None
    at: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def open(self, order: WriteOrder, task: TaskName) -> StagedWriter:
        rows = self.rows(self.plan)
        return StagedWriter(self.staging, order, task, rows, at=self.at, facts=self.facts)


class StagedWriter:
    """See ``protocol.sink.Writer``. Also under the weaker guarantees rows become visible when the
    driver brings them into the target.
    """

    def __init__(
        self,
        staging: Staging,
        order: WriteOrder,
        task: TaskName,
        rows: TaskRows,
        *,
        at: str,
        facts: Mapping[str, Any],
    ) -> None:
        """``at`` and ``facts`` go on record, see ``StagedPart``."""
        self._staging = staging
        self._name = StagedName.new(order, task)
        self._rows = rows
        self._at = at
        self._facts = facts
        self._files = TaskFiles(staging, self._name)
        self._prepared: PreparedTransaction | None = None

    def write(self, batch: pa.RecordBatch) -> Rejection | None:
        with self._explained():
            return self._rows.write(batch, self._files)

    def prepare(self) -> PreparedTransaction | None:
        """See the port. Idempotent."""
        if self._prepared is None:
            with self._explained():
                self._rows.finish(self._files)
                files = self._files.end()
                if not files:
                    return None
                payload = StagedPart.payload(self._at, self._facts, files)
                self._staging.sync()
            rows = sum(file.rows for file in files)
            self._prepared = PreparedTransaction(
                self._staging.scope.participant, self._name.identity, rows, payload
            )
        return self._prepared

    def abort(self) -> None:
        """See the port."""
        self._files.discard()  # first: what an encoder writes at its end goes nowhere
        self._rows.discard()
        self._prepared = None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """What a failure of the storage means: nothing of the task becomes visible."""
        name = self._name
        who = (
            f"Task {name.task} of batch {name.batch_id} of sink {self._staging.scope.participant!r}"
        )
        try:
            yield
        except FileNotFoundError as error:
            raise EpochAborted(
                f"{who}: its staged files are gone ({error}). A newer run of the query has aborted "
                "them, or something else removes them. Nothing of this attempt is visible; start "
                "the query again."
            ) from error
        except (OSError, Unavailable) as error:
            failure = error if isinstance(error, Unavailable) else self._staging.failure(error)
            if isinstance(failure, SettingRefused):
                raise failure.with_message(
                    f"{who}: {failure.args[-1]} Nothing of this attempt is visible."
                ) from error
            raise EpochAborted(f"{who}: {failure} Nothing of this attempt is visible.") from error
