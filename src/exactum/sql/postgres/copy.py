"""Rows for PostgreSQL's COPY: in its binary format where each column has one here (see ``binary``),
which the server reads in two thirds of the time; else as CSV text that Arrow writes. A task encodes
them, the driver sends them.

In this text a null is an empty field and every string is quoted, so an empty string stays one. What
Arrow cannot write as PostgreSQL reads it (bytes, arrays, structs, days of odd years) is turned into
text before, by ``text``.

Where only the server knows what values a column takes (``Column.judged``: JSON, inet, a domain with
a CHECK, ...), a task stages Arrow, of which the driver makes the text: so it finds a row that the
server refuses, and has it as it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from exactum.sql.arrow_frame import packed, unpacked
from exactum.sql.dialect import ROW, RefusedRow, ServerFailure, SqlFailure
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.postgres.statements import quote, quote_table, regclass, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, TableName

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame, FrameWriter
    from exactum.sql.postgres.binary import BinaryRows
    from exactum.sql.rows import Broken

CHUNK_ROWS = 65_536
"""Most rows that are encoded at once."""
MISREAD = frozenset({"22P03", "22P04", "08P01"})
"""SQLSTATEs of binary data that are not what the server expects of a column's type. It names the
COPY then; a pooler that lost its server has the last code as well, and names none.
"""
OF_ONE_ROW = ("22", "23514", "54")
"""SQLSTATEs, or how they begin, of what a row's own values are refused for by a table that has
nothing but types: data, a domain's CHECK, a limit.
"""


# ---- in a task -------------------------------------------------------------------------------


class CopyEncoder:
    """See ``RowEncoder``. ``kinds`` are the columns' Arrow types, which choose the format."""

    def __init__(
        self, columns: Sequence[Column], kinds: Sequence[Any] | None, first_row: int | None
    ) -> None:
        from exactum.sql.postgres.binary import binary_rows

        numbered = first_row is not None
        binary = None if kinds is None else binary_rows(columns, kinds, numbered)
        text = ArrowRows if any(column.judged for column in columns) else CsvRows
        self._rows: CsvRows | BinaryRows = binary or text(columns, numbered)
        self._next_row = first_row

    @property
    def header(self) -> Mapping[str, Any]:
        """``names``: the columns in the order of a row. ``readers``: by which functions of the
        server their binary form has to be read.
        """
        return {
            "format": self._rows.format,
            "names": self._rows.names,
            "readers": self._rows.readers,
        }

    def write(self, batch: Any, frames: FrameWriter) -> Broken | None:
        """See the port."""
        import numpy as np

        for start in range(0, batch.num_rows, CHUNK_ROWS):
            chunk = batch.slice(start, CHUNK_ROWS)
            numbers = None
            if self._next_row is not None:
                end = self._next_row + chunk.num_rows
                numbers = np.arange(self._next_row, end, dtype=np.int64)
                self._next_row = end
            frames.write(self._rows.encoded(chunk, numbers), chunk.num_rows)
        return None


class CsvRows:
    """The rows of one task as a COPY of CSV takes them."""

    format = "csv"
    readers: Mapping[str, Sequence[str]] = {}

    def __init__(self, columns: Sequence[Column], numbered: bool) -> None:
        self._columns = tuple(columns)
        self.names = (*(column.name for column in columns), *([ROW] if numbered else []))

    def encoded(self, batch: Any, numbers: Any) -> Any:
        """The text of a batch whose columns are those of the COPY; ``numbers`` (NumPy) if the rows
        are numbered.
        """
        return csv_text(self._sent(batch.columns, numbers))

    def _sent(self, arrays: Sequence[Any], numbers: Any) -> list[Any]:
        """What COPY is sent of each column, as Arrow's CSV writer can write it."""
        import pyarrow as pa

        from exactum.sql.postgres.text import sendable

        sent = [sendable(c, values) for c, values in zip(self._columns, arrays, strict=True)]
        return sent if numbers is None else [*sent, pa.array(numbers)]


class ArrowRows(CsvRows):
    """The rows of one task. The first columns of a frame are what COPY is sent, in the order of
    ``names``. What the batch had has its name there: such a column if it is sent as it was, else
    one behind them.
    """

    format = "arrow"

    def encoded(self, batch: Any, numbers: Any) -> Any:
        import pyarrow as pa

        sent = self._sent(batch.columns, numbers)
        names = [""] * len(sent)
        changed = {}
        for place, (name, had) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
            if sent[place] is had:
                names[place] = name
            else:
                changed[name] = had
        arrays, names = [*sent, *changed.values()], [*names, *changed]
        return packed(pa.RecordBatch.from_arrays(arrays, names=names))


def csv_text(arrays: Sequence[Any]) -> memoryview:
    import pyarrow as pa
    from pyarrow import csv

    table = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
    return memoryview(sink.getvalue())


# ---- on the driver ---------------------------------------------------------------------------


def load(session: PostgresSession, table: TableName, header: str, frames: Iterator[Frame]) -> None:
    """See ``Dialect.load``: one ``COPY table (column, ...) FROM STDIN (FORMAT ...)``."""
    from exactum.sql.postgres.binary import HEAD, TAIL

    said = json.loads(header)
    names = said["names"]
    sent: Iterator[Any] = (frame for frame, _ in frames)
    if said["format"] == "arrow":
        sent = (csv_text(unpacked(frame).columns[: len(names)]) for frame in sent)
    if said["format"] != "binary":
        _copy(session, table, names, "csv", sent)
        return
    with _understood(table):
        _copy(session, table, names, "binary", chain([HEAD], sent, [TAIL]))
    # From the COPY until the transaction's end nobody can change a column, so what the catalog says
    # now is what the COPY went by. A bigint would be read as a double without a word.
    listed = session.query(sql("list_readers"), (regclass(table),))
    # One that the search path does not find is named with its schema.
    readers = {name: str(reader).rpartition(".")[2] for name, reader in listed}
    for name, wanted in said["readers"].items():
        if readers.get(name) not in wanted:
            raise _changed(table, f"column {name!r}", "")


def _copy(
    session: PostgresSession, table: TableName, names: Sequence[str], form: str, data: Iterable[Any]
) -> None:
    listed = ", ".join(map(quote, names))
    statement = f"COPY {quote_table(table)} ({listed}) FROM STDIN (FORMAT {form})"
    sent = unsubstituted(statement).encode()
    with session.failing(), session.connection.cursor().copy(sent) as copy:
        for piece in data:
            copy.write(piece)


@contextmanager
def _understood(table: TableName) -> Iterator[None]:
    """Binary data that the server cannot read are no fault of a row."""
    try:
        yield
    except SqlFailure as failure:
        if failure.code in MISREAD and "COPY" in failure.text:
            raise _changed(table, "a column", failure.code) from failure
        raise


def _changed(table: TableName, what: str, code: str) -> SqlFailure:
    return SqlFailure(
        ServerFailure.CHANGED,
        code,
        f"{what} of {table} has another type than at the query's start.",
    )


def load_accepted(
    session: PostgresSession,
    table: TableName,
    header: str,
    frames: Iterator[Frame],
    refused_max: int,
) -> list[RefusedRow]:
    """See ``Dialect.load_accepted``. What is refused is tried again in halves, each within a
    savepoint, and what is taken is followed by twice as much.
    """
    import pyarrow as pa

    names = json.loads(header)["names"]
    refused: list[RefusedRow] = []
    first = 0
    for frame, count in frames:
        batch = unpacked(frame)
        start, size = 0, count
        while start < count:
            part = batch.slice(start, size)
            why = _refusal(session, table, names, part)
            if why is None:
                start, size = start + part.num_rows, 2 * size
            elif part.num_rows > 1:
                size = part.num_rows // 2
            else:
                row = part.take(pa.array([0]))  # a copy: the slice would keep the frame
                refused.append(RefusedRow(first + start, row, why))
                start, size = start + 1, 1
            if len(refused) > refused_max:
                return refused
        first += count
    return refused


def _refusal(
    session: PostgresSession, table: TableName, names: Sequence[str], batch: Any
) -> str | None:
    """None once the rows are in the table; else why the server does not take one of them, and none
    is.
    """
    session.execute(sql("save"))
    why = None
    try:
        _copy(session, table, names, "csv", [csv_text(batch.columns[: len(names)])])
    except SqlFailure as failure:
        if failure.failure is not ServerFailure.ROWS or not failure.code.startswith(OF_ONE_ROW):
            raise
        session.execute(sql("undo"))
        why = failure.text
    session.execute(sql("keep"))
    return why
