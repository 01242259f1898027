"""Rows for PostgreSQL's COPY: in its binary format where each column has one here (see ``binary``),
which the server reads in two thirds of the time; else as CSV text that Arrow writes. A task encodes
them, the driver sends them. Where only the server knows which values a column takes, the task
leaves Arrow to the driver: see ``judged``.

In this text a null is an empty field and every string is quoted, so an empty string stays one. What
Arrow cannot write as PostgreSQL reads it (bytes, arrays, structs, days of odd years) is turned into
text before, by ``text``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from exactum.sql.arrow_frame import unpacked
from exactum.sql.dialect import ROW, ServerFailure, SqlFailure
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.postgres.statements import quote, quote_table, regclass, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, TableName

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame, FrameWriter
    from exactum.sql.checks import Broken
    from exactum.sql.postgres.binary import BinaryRows

CHUNK_ROWS = 65_536
"""Most rows that are encoded at once."""
MISREAD = frozenset({"22P03", "22P04", "08P01"})
"""SQLSTATEs of binary data that are not what the server expects of a column's type. It names the
COPY then; a pooler that lost its server has the last code as well, and names none.
"""


class CopyEncoder:
    """See ``RowEncoder``. ``kinds`` are the columns' Arrow types, which choose the format."""

    def __init__(
        self, columns: Sequence[Column], kinds: Sequence[Any] | None, first_row: int | None
    ) -> None:
        from exactum.sql.postgres.binary import binary_rows
        from exactum.sql.postgres.judged import ArrowRows

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
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            chunk = batch.slice(start, CHUNK_ROWS)
            frames.write(self._rows.encoded(chunk, self._numbered(chunk.num_rows)), chunk.num_rows)
        return None

    def _numbered(self, count: int) -> Any:
        """The row numbers of the next so many rows, or None."""
        import numpy as np

        if self._next_row is None:
            return None
        numbers = np.arange(self._next_row, self._next_row + count, dtype=np.int64)
        self._next_row += count
        return numbers


def load(session: PostgresSession, table: TableName, header: str, frames: Iterator[Frame]) -> None:
    """See ``Dialect.load``: one ``COPY table (column, ...) FROM STDIN (FORMAT ...)``."""
    from exactum.sql.postgres.binary import HEAD, TAIL
    from exactum.sql.postgres.judged import csv_of

    said = json.loads(header)
    names = said["names"]
    if said["format"] == "arrow":
        rows = (csv_of(unpacked(frame), len(names)) for frame, _ in frames)
        copied(session, statement_of(table, names, "csv"), rows)
        return
    statement = statement_of(table, names, said["format"])
    sent = (frame for frame, _ in frames)
    if said["format"] != "binary":
        copied(session, statement, sent)
        return
    with _understood(table):
        copied(session, statement, chain([HEAD], sent, [TAIL]))
    # From the COPY until the transaction's end nobody can change a column, so what the catalog says
    # now is what the COPY went by. A bigint would be read as a double without a word.
    listed = session.query(sql("list_readers"), (regclass(table),))
    # One that the search path does not find is named with its schema.
    readers = {name: str(reader).rpartition(".")[2] for name, reader in listed}
    for name, wanted in said["readers"].items():
        if readers.get(name) not in wanted:
            raise _changed(table, f"column {name!r}", "")


def statement_of(table: TableName, names: Sequence[str], form: str) -> bytes:
    listed = ", ".join(map(quote, names))
    return unsubstituted(
        f"COPY {quote_table(table)} ({listed}) FROM STDIN (FORMAT {form})"
    ).encode()


def copied(session: PostgresSession, statement: bytes, data: Iterable[Any]) -> None:
    """Run a COPY with these pieces of data."""

    def sent() -> None:
        with session.connection.cursor().copy(statement) as copy:
            for piece in data:
                copy.write(piece)

    session.call(sent)


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


class CsvRows:
    """The rows of one task as a COPY of CSV takes them."""

    format = "csv"
    readers: Mapping[str, Sequence[str]] = {}

    def __init__(self, columns: Sequence[Column], numbered: bool) -> None:
        self._columns = tuple(columns)
        self.names = (*(column.name for column in columns), *([ROW] if numbered else []))

    def encoded(self, batch: Any, numbers: Any) -> memoryview:
        """The text of a batch whose columns are those of the COPY; ``numbers`` (NumPy) if the rows
        are numbered.
        """
        return csv_text(self.sent(batch.columns, numbers))

    def sent(self, arrays: Sequence[Any], numbers: Any) -> list[Any]:
        """What COPY is sent of each column, as Arrow's CSV writer can write it."""
        import pyarrow as pa

        from exactum.sql.postgres.text import sendable

        sent = [sendable(c, values) for c, values in zip(self._columns, arrays, strict=True)]
        return sent if numbers is None else [*sent, pa.array(numbers)]


def csv_text(arrays: Sequence[Any]) -> memoryview:
    import pyarrow as pa
    from pyarrow import csv

    table = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
    return memoryview(sink.getvalue())
