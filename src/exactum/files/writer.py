"""How the rows of one task of a file sink become files.

Rows are gathered into runs, sorted by partition folder and appended to that folder's file, so that
a file has few, large row groups however small Spark's Arrow batches are. A limited number of files
is open: the one used longest ago is closed. Files are made durable while the task goes on.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from exactum.files.format import Encoder, FileFormat
from exactum.files.partition import Partitioning
from exactum.files.place import NameLimits
from exactum.files.refusal import Refusal
from exactum.protocol.sink import Rejection, TaskName, WriteOrder, Writer
from exactum.sinks.staging import Staging
from exactum.sinks.writer import StagedWriter, TaskFile, TaskFiles, TaskRows

RUN_BYTES_MAX = 32 * 1024 * 1024
RUN_ROWS_MAX = 262_144


@dataclass(frozen=True)
class FilePlan:
    """What a task needs to know: picklable."""

    staging: Staging
    limits: NameLimits
    format: FileFormat
    partition_by: tuple[str, ...]
    rows_per_file_max: int | None
    bytes_per_file_max: int


@dataclass(frozen=True)
class FileWriterFactory:
    """Goes to the executors; opens a writer there."""

    plan: FilePlan

    def open(self, order: WriteOrder, task: TaskName) -> Writer:
        plan = self.plan
        return StagedWriter(
            plan.staging,
            order,
            task,
            FileRows(plan),
            at=plan.staging.storage.where,
            facts={"extension": plan.format.extension},
        )


@dataclass
class _Open:
    """A file that takes rows."""

    folder: str
    file: TaskFile
    encoder: Encoder


class FileRows(TaskRows):
    """See the base class."""

    def __init__(self, plan: FilePlan) -> None:
        self._plan = plan
        self._partitioning = Partitioning(plan.partition_by, plan.limits)
        self._refusal = Refusal(plan.format.name, self._partitioning, plan.partition_by)
        self._run: list[pa.RecordBatch] = []
        self._run_bytes = 0
        self._run_rows = 0
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def write(self, batch: pa.RecordBatch, files: TaskFiles) -> Rejection | None:
        """Rejects rows that no file of this kind holds as they are, and says why of each."""
        batch, rejection = self._refusal.split(batch)
        if batch.num_rows:
            self._run.append(batch)
            self._run_bytes += batch.nbytes
            self._run_rows += batch.num_rows
            if self._run_bytes >= RUN_BYTES_MAX or self._run_rows >= RUN_ROWS_MAX:
                self.write_run(files)
        return rejection

    def finish(self, files: TaskFiles) -> None:
        self.write_run(files)
        while self._open:
            self._close(next(iter(self._open.values())), files)

    def discard(self) -> None:
        self._run = []
        while self._open:
            _, part = self._open.popitem()
            with contextlib.suppress(Exception):  # it may have failed before
                part.encoder.close()

    def write_run(self, files: TaskFiles) -> None:
        """What was gathered goes into files."""
        if not self._run:
            return
        table = pa.Table.from_batches(self._run).combine_chunks()
        self._run, self._run_bytes, self._run_rows = [], 0, 0
        for folder, rows in self._partitioning.split(table):
            self._append(folder, rows, files)

    def facts(self, encoder: Encoder) -> Mapping[str, Any]:
        """What goes on record of a closed file, beside its folder: nothing."""
        return {}

    def _append(self, folder: str, table: pa.Table, files: TaskFiles) -> None:
        plan = self._plan
        at_once = table.num_rows
        if table.nbytes > plan.bytes_per_file_max:
            at_once = max(1, table.num_rows * plan.bytes_per_file_max // table.nbytes)
        start = 0
        while start < table.num_rows:
            part = self._part(folder, table.schema, files)
            file = part.file
            count = min(at_once, table.num_rows - start)
            if plan.rows_per_file_max is not None:
                count = min(count, plan.rows_per_file_max - file.rows)
            part.encoder.write(table.slice(start, count))
            file.rows += count
            start += count
            if file.rows == plan.rows_per_file_max or file.stream.tell() >= plan.bytes_per_file_max:
                self._close(part, files)

    def _part(self, folder: str, schema: pa.Schema, files: TaskFiles) -> _Open:
        """The open file of a folder; a new one if there is none, in the place of the one used
        longest ago.
        """
        part = self._open.get(folder)
        if part is not None:
            self._open.move_to_end(folder)
            return part
        if len(self._open) >= files.open_max:
            self._close(next(iter(self._open.values())), files)
        file = files.create()
        file.facts = {"folder": folder} if folder else {}
        stream = pa.PythonFile(file.stream, mode="w")
        part = _Open(folder, file, self._plan.format.encoder(stream, schema))
        self._open[folder] = part
        return part

    def _close(self, part: _Open, files: TaskFiles) -> None:
        del self._open[part.folder]
        part.encoder.close()
        part.file.facts = {**part.file.facts, **self.facts(part.encoder)}
        files.finish(part.file)
