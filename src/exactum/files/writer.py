"""The executor half of the file sink: one task writes its rows into files of its own under staging
names.

Rows are gathered into runs, sorted by partition folder and appended to that folder's file, so that
a file has few, large row groups however small Spark's Arrow batches are. At most ``open_files_max``
files are open: the one used longest ago is closed. Files are made durable by a few threads while
the task goes on.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from exactum.errors import EpochAborted, SettingRefused, Unavailable
from exactum.files.format import Encoder, FileFormat
from exactum.files.partition import Partitioning
from exactum.files.place import Area, FilePlace, NameLimits, StagedFolder
from exactum.files.refusal import Refusal
from exactum.files.transaction import (
    MANIFEST,
    PAYLOAD_BYTES_MAX,
    FileTransaction,
    PartFile,
    manifest_of,
    sizes_of,
    staged_name,
)
from exactum.protocol.model import PreparedTransaction
from exactum.protocol.sink import Guarantee, Rejection, TaskName, WriteOrder
from exactum.storage.storage import NewFile

log = logging.getLogger("exactum.files")

RUN_BYTES_MAX = 32 * 1024 * 1024
RUN_ROWS_MAX = 262_144
FINISHERS = 8
FINISHING_MAX = 64
"""Files that are closed and not yet durable; more than these are waited for."""


@dataclass(frozen=True)
class FilePlan:
    """What a task needs to know: picklable."""

    place: FilePlace
    limits: NameLimits
    format: FileFormat
    partition_by: tuple[str, ...]
    rows_per_file_max: int | None
    bytes_per_file_max: int


@dataclass(frozen=True)
class FileWriterFactory:
    """Goes to the executors; opens a writer there."""

    plan: FilePlan

    def open(self, order: WriteOrder, task: TaskName) -> FileWriter:
        return FileWriter(self.plan, order, task)


@dataclass
class _Open:
    """A file that takes rows."""

    number: int
    folder: str
    file: NewFile
    encoder: Encoder
    rows: int = 0


class FileWriter:
    """See the port ``Writer``. Under the weaker guarantees ``prepare`` also publishes, and returns
    None.
    """

    def __init__(self, plan: FilePlan, order: WriteOrder, task: TaskName) -> None:
        exactly_once = order.run.guarantee is Guarantee.EXACTLY_ONCE
        area = Area.STAGED if exactly_once else Area.PLAIN
        self._plan = plan
        self._order = order
        self._task = task
        self._staging = StagedFolder(area, order.run.incarnation, secrets.token_hex(16))
        self._partitioning = Partitioning(plan.partition_by, plan.limits)
        self._refusal = Refusal(plan.format.name, self._partitioning, plan.partition_by)
        self._begun = False
        self._run: list[pa.RecordBatch] = []
        self._run_bytes = 0
        self._run_rows = 0
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._created = 0
        self._pool: ThreadPoolExecutor | None = None
        self._finishing: list[tuple[int, Future[int]]] = []
        self._parts: dict[int, PartFile] = {}

    def write(self, batch: pa.RecordBatch) -> Rejection | None:
        """See the port. Rejects rows that no file of this kind holds as they are, and says why of
        each.
        """
        batch, rejection = self._refusal.split(batch)
        if batch.num_rows:
            self._run.append(batch)
            self._run_bytes += batch.nbytes
            self._run_rows += batch.num_rows
            if self._run_bytes >= RUN_BYTES_MAX or self._run_rows >= RUN_ROWS_MAX:
                with self._explained():
                    self._write_run()
        return rejection

    def prepare(self) -> PreparedTransaction | None:
        """See the port. Every file, its name and its folder are durable when this returns."""
        if not self._run and not self._created:
            return None
        with self._explained():
            self._write_run()
            for part in list(self._open.values()):
                self._close(part)
            self._collect(0)
            files = tuple(self._parts[n] for n in range(self._created))
            transaction = self._transaction(files)
            payload = transaction.payload()
            sizes = dict(sizes_of(files))
            if self._staging.area is Area.STAGED and len(payload.encode()) > PAYLOAD_BYTES_MAX:
                manifest = manifest_of(files)
                place = self._plan.place
                place.storage.put(place.path(self._staging, MANIFEST), manifest)
                sizes[MANIFEST] = len(manifest)
                payload = self._transaction(None).payload()
            self._plan.place.seal(self._staging, sizes)
            self._end_pool()
        if self._staging.area is Area.PLAIN:
            self._publish(transaction, files)
            return None
        rows = sum(f.rows for f in files)
        return PreparedTransaction(
            self._plan.place.scope.participant, self._staging.identity, rows, payload
        )

    def abort(self) -> None:
        """See the port. Removes what this task has staged. Idempotent."""
        self._run = []
        while self._open:
            _, part = self._open.popitem()
            # Its end goes to where it failed before, perhaps; the file is removed anyway.
            with contextlib.suppress(Exception):
                part.encoder.close()
            part.file.discard()
        self._end_pool()
        if self._begun:
            try:
                self._plan.place.discard(self._staging)
            except Exception as error:  # noqa: BLE001  (the driver sweeps what is left)
                log.warning("%s could not remove what it has staged: %s", self._who(), error)

    # ---- runs and files ----------------------------------------------------------------------

    def _write_run(self) -> None:
        if not self._run:
            return
        table = pa.Table.from_batches(self._run).combine_chunks()
        self._run, self._run_bytes, self._run_rows = [], 0, 0
        for folder, rows in self._partitioning.split(table):
            self._append(folder, rows)

    def _append(self, folder: str, table: pa.Table) -> None:
        plan = self._plan
        at_once = table.num_rows
        if table.nbytes > plan.bytes_per_file_max:
            at_once = max(1, table.num_rows * plan.bytes_per_file_max // table.nbytes)
        start = 0
        while start < table.num_rows:
            part = self._part(folder, table.schema)
            count = min(at_once, table.num_rows - start)
            if plan.rows_per_file_max is not None:
                count = min(count, plan.rows_per_file_max - part.rows)
            part.encoder.write(table.slice(start, count))
            part.rows += count
            start += count
            if part.rows == plan.rows_per_file_max or part.file.tell() >= plan.bytes_per_file_max:
                self._close(part)

    def _part(self, folder: str, schema: pa.Schema) -> _Open:
        """The open file of a folder; a new one if there is none, in the place of the one used
        longest ago.
        """
        part = self._open.get(folder)
        if part is not None:
            self._open.move_to_end(folder)
            return part
        if len(self._open) >= self._plan.place.storage.streams_max:
            self._close(next(iter(self._open.values())))
        if not self._begun:
            self._begin()
        place = self._plan.place
        file = place.storage.create(place.path(self._staging, staged_name(self._created)))
        try:
            stream = pa.PythonFile(file, mode="w")
            part = _Open(self._created, folder, file, self._plan.format.encoder(stream, schema))
        except BaseException:
            file.discard()
            raise
        self._created += 1
        self._open[folder] = part
        return part

    def _begin(self) -> None:
        place = self._plan.place
        try:
            place.storage.make(place.path(self._staging))
        except FileNotFoundError as error:
            raise SettingRefused(
                "FILES_NOT_SHARED",
                f"{self._who()}: the machine {socket.gethostname()} does not see the folder that "
                f"the driver made at {self._plan.place.where} ({error}). It must be the same "
                "shared folder on the driver and on every executor: mount it there, or write to "
                "an object store.",
            ) from error
        self._begun = True

    def _close(self, part: _Open) -> None:
        """End a file; a thread makes it durable."""
        del self._open[part.folder]
        try:
            part.encoder.close()
        except BaseException:
            part.file.discard()
            raise
        if self._pool is None:
            self._pool = ThreadPoolExecutor(FINISHERS, "exactum-finish")
        self._parts[part.number] = PartFile(part.folder, part.rows, -1)
        self._finishing.append((part.number, self._pool.submit(part.file.finish)))
        self._collect(FINISHING_MAX)

    def _collect(self, left: int) -> None:
        """Wait until at most ``left`` files are not yet durable."""
        while len(self._finishing) > left:
            number, future = self._finishing.pop(0)
            part = self._parts[number]
            self._parts[number] = PartFile(part.folder, part.rows, future.result())

    def _end_pool(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    # ---- the end -----------------------------------------------------------------------------

    def _transaction(self, files: tuple[PartFile, ...] | None) -> FileTransaction:
        plan, order = self._plan, self._order
        return FileTransaction(
            self._staging,
            order.batch_id,
            order.attempt,
            plan.format.extension,
            plan.place.where,
            self._created,
            files,
        )

    def _publish(self, transaction: FileTransaction, files: tuple[PartFile, ...]) -> None:
        """The weaker guarantees: visible at once."""
        lost = self._plan.place.publish(transaction.moves(files))
        if lost:
            raise EpochAborted(
                f"{self._who()}: {len(lost)} of its files vanished before they were published, the "
                f"first being {lost[0].target}. Something else removes files from "
                f"{self._plan.place.where}/.exactum."
            )
        self._plan.place.discard(self._staging)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """What a failure of the place means: nothing of the task becomes visible."""
        try:
            yield
        except FileNotFoundError as error:
            raise EpochAborted(
                f"{self._who()}: its staged files are gone ({error}). A newer run of the query has "
                "aborted them, or something else removes them. Nothing of this attempt is visible."
            ) from error
        except (OSError, Unavailable) as error:
            failure: Unavailable | SettingRefused | OSError = error
            if isinstance(failure, OSError):
                failure = self._plan.place.storage.failure("could not be written", failure)
            if isinstance(failure, SettingRefused):
                raise failure.with_message(
                    f"{self._who()}: {failure.args[-1]} Nothing of this epoch is visible."
                ) from error
            raise EpochAborted(
                f"{self._who()}: {failure} Nothing of this attempt is visible and its files are "
                "removed."
            ) from error

    def _who(self) -> str:
        task = self._task
        participant = self._plan.place.scope.participant
        return (
            f"batch {self._order.batch_id}, task {task.partition_id} (attempt "
            f"{task.attempt_number}) of sink {participant!r}"
        )
