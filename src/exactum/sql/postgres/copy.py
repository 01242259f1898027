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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exactum.sinks.frames import packed
from exactum.sql.dialect import ROW
from exactum.sql.table import Column

if TYPE_CHECKING:
    from exactum.sinks.frames import FrameWriter
    from exactum.sql.postgres.binary import BinaryRows
    from exactum.sql.rows import Broken

CHUNK_ROWS = 65_536
"""Most rows that are encoded at once."""


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
