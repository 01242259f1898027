"""How the rows of one task of a file sink become files, and which rows cannot stand in them so that
every reader finds them as they were. All of that is known from the rows alone, before anything is
decided: a file that is published can be read.

Rows are gathered into runs, sorted by partition folder and appended to that folder's file, so that
a file has few, large row groups however small Spark's Arrow batches are. A limited number of files
is open: the one used longest ago is closed. Files are made durable while the task goes on.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from exactum.errors import FrameRefused
from exactum.files.format import Encoder, FileFormat
from exactum.files.partition import Partitioning
from exactum.protocol.sink import Rejection
from exactum.sinks.rows import RowCheck, together
from exactum.sinks.writer import TaskFile, TaskFiles, TaskRows
from exactum.values.nested import is_text, not_utf8, rows_where
from exactum.values.times import out_of_years

# ---- rows that are refused -------------------------------------------------------------------


class Refusal:
    """Tells the rows that files of one format hold from those that they do not. Used by one
    task.
    """

    def __init__(
        self, format_name: str, partitioning: Partitioning, partition_by: Sequence[str]
    ) -> None:
        self._format = format_name
        self._partitioning = partitioning
        self._partition_by = frozenset(partition_by)
        self._schema: pa.Schema | None = None

    def split(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rejection | None]:
        """The rows that can be written (``batch`` itself if all can), and the others with the
        reasons.

        Raises:
            FrameRefused: as ``check_schema``.
        """
        if batch.schema is not self._schema and batch.schema != self._schema:
            self.check_schema(batch.schema)
            self._schema = batch.schema
        check = RowCheck(batch)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            self._check_column(check, name, values)
        self.check_rows(check)
        texts, rejection = check.outcome()  # a folder is named by what is text
        check = RowCheck(texts)
        self._partitioning.check(check)
        taken, unnamed = check.outcome()
        return taken, together(rejection, unnamed)

    def check_schema(self, schema: pa.Schema) -> None:
        """
        Raises:
            FrameRefused: two fields of a struct have one name.
        """
        check_fields(schema)

    def check_rows(self, check: RowCheck) -> None:
        """Refuse rows for what their single values do not say."""
        names = [name for name in check.batch.schema.names if name not in self._partition_by]
        if self._format == "csv" and len(names) == 1:
            check.refuse(
                check.batch.column(names[0]).is_null(),
                f"column {names[0]!r} is null, and readers of CSV skip the empty line of a file "
                "with one column",
            )

    def _check_column(self, check: RowCheck, name: str, values: pa.Array) -> None:
        column = f"column {name!r}"
        # Spark's cast from binary does not check it.
        check.refuse(not_utf8(values), f"{column} is no text in UTF-8", values)
        if name in self._partition_by or self._format == "parquet":
            return
        if self._format == "csv" and is_text(values.type):
            alone = pc.equal(values, pa.scalar("\0", values.type))
            check.refuse(alone, f"{column} is U+0000 alone, which Spark reads as null")
        check.refuse(
            rows_where(values, out_of_years),
            f"{column} is outside the years 1 to 9999, for which readers of {self._format} have "
            "no text",
            values,
        )


def check_fields(schema: pa.Schema) -> None:
    """Structs whose fields readers cannot tell apart.

    Raises:
        FrameRefused: two fields of a struct differ in case only, or not at all.
    """
    for column in schema:
        waiting = [column.type]
        while waiting:
            kind = waiting.pop()
            fields = [kind.field(n) for n in range(kind.num_fields)]
            waiting.extend(f.type for f in fields)
            names = [f.name.lower() for f in fields]
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice and pa.types.is_struct(kind):
                raise FrameRefused(
                    "FILES_COLUMNS",
                    f"The column {column.name!r} holds structs with two fields {twice[0]!r} that "
                    "differ in case only, or not at all, and readers like Spark take them for "
                    "one. Rename one of them. Nothing of the epoch is visible.",
                )


# ---- files -----------------------------------------------------------------------------------


RUN_BYTES_MAX = 32 * 1024 * 1024
RUN_ROWS_MAX = 262_144


@dataclass(frozen=True)
class FilePlan:
    """What a task needs to know: picklable."""

    format: FileFormat
    partition_by: tuple[str, ...]
    bytes_per_file_max: int


@dataclass
class _Open:
    """A file that takes rows."""

    folder: str
    file: TaskFile
    encoder: Encoder


class FileRows(TaskRows):
    """See the base class."""

    _plan: FilePlan

    def __init__(self, plan: FilePlan) -> None:
        super().__init__(plan)
        self._partitioning = Partitioning(plan.partition_by)
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
        bytes_max = self._plan.bytes_per_file_max
        at_once = max(1, table.num_rows * bytes_max // max(table.nbytes, bytes_max))
        for start in range(0, table.num_rows, at_once):
            rows = table.slice(start, at_once)
            part = self._part(folder, table.schema, files)
            part.encoder.write(rows)
            part.file.rows += rows.num_rows
            if part.file.stream.tell() >= bytes_max:
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
