"""COPY of Arrow batches into PostgreSQL: in its binary format where each column has one here (see
``binary``), which the server reads in two thirds of the time; else as CSV text that Arrow writes.

In this text a null is an empty field and every string is quoted, so an empty string stays one. What
Arrow cannot write as PostgreSQL reads it (bytes, arrays, structs, days of odd years) is turned into
text before, by ``text``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import PART, ROW, ServerFailure, SqlFailure
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.postgres.statements import quote, quote_table, regclass, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, TableName

if TYPE_CHECKING:
    from exactum.sql.checks import Broken
    from exactum.sql.postgres.binary import BinaryRows

CHUNK_ROWS = 65_536
"""Most rows that are turned into text at once."""
SAVEPOINT = "exactum_rows"
MISREAD = frozenset({"22P03", "22P04", "08P01"})
"""SQLSTATEs of binary data that are not what the server expects of a column's type. It names the
COPY then; a pooler that lost its server has the last code as well, and names none.
"""
OF_ONE_ROW = ("22", "23514", "54")
"""SQLSTATEs, or how they begin, of what a row's own values are refused for: data, a domain's
CHECK, a limit.
"""


class CopyLoader:
    """See ``Loader``. One ``COPY table (column, ..., exactum_part, exactum_row) FROM STDIN (FORMAT
    ...)`` for the whole task. It begins with the first batch, whose types choose the format.

    Where only the server knows which values a column takes, there is one for each Arrow batch,
    within a savepoint, so that the rows which it refuses are found by halves and put aside.
    """

    def __init__(
        self,
        session: PostgresSession,
        name: TableName,
        columns: Sequence[Column],
        part: int | None,
        first_row: int | None,
    ) -> None:
        self._session = session
        self._name = name
        self._columns = tuple(columns)
        self._part = part
        self._next_row = first_row
        self._judged = any(column.judged for column in columns)
        self._kinds: list[Any] | None = None
        self._rows: CsvRows | BinaryRows = CsvRows(columns, part, first_row is not None)
        self._stack = ExitStack()
        self._copy: Any = None

    def write(self, batch: Any) -> Broken | None:
        """See the port."""
        refused: dict[int, str] = {}
        if not self._judged:
            self._begin_for(batch.schema.types)
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            chunk = batch.slice(start, CHUNK_ROWS)
            numbers = self._numbered(chunk.num_rows)
            if self._judged:
                self._tried(chunk, numbers, start, refused)
            else:
                self._send(self._rows.encoded(chunk, numbers))
        return _refused(refused, batch.num_rows) if refused else None

    def finish(self) -> None:
        if self._copy is None:
            self._begin()  # even nothing, once: that shows whether the user may write
        self._end()

    def abandon(self) -> None:
        """Tell the server to forget the COPY, as far as it listens; then the connection goes, and
        its transaction.
        """
        reason = EOFError("the task was aborted")
        with suppress(SqlFailure, EOFError), self._session.failing():
            self._stack.__exit__(EOFError, reason, None)
        self._session.close()

    def _begin_for(self, kinds: list[Any]) -> None:
        """Have a COPY under way for batches of these Arrow types. All of a frame's batches have the
        same.
        """
        if self._copy is not None and kinds == self._kinds:
            return
        from exactum.sql.postgres.binary import binary_rows

        if self._copy is not None:
            self._end()
        numbered = self._next_row is not None
        rows = binary_rows(self._columns, kinds, self._part, numbered)
        self._rows = rows or CsvRows(self._columns, self._part, numbered)
        self._kinds = kinds
        self._begin()

    def _begin(self) -> None:
        cursor = self._session.connection.cursor()
        statement = self._statement()
        self._copy = self._session.call(lambda: self._stack.enter_context(cursor.copy(statement)))
        if self._rows.head:
            self._send(self._rows.head)

    def _send(self, data: Any) -> None:
        with self._understood():
            self._session.call(lambda: self._copy.write(data))

    def _end(self) -> None:
        if self._rows.tail:
            self._send(self._rows.tail)
        with self._understood():
            self._session.call(self._stack.close)
        self._copy = None
        if isinstance(self._rows, CsvRows):
            return
        # From the COPY until the transaction's end nobody can change a column, so what the catalog
        # says now is what the COPY went by. A bigint would be read as a double without a word.
        listed = self._session.query(sql("list_readers"), (regclass(self._name),))
        # One that the search path does not find is named with its schema.
        readers = {name: str(reader).rpartition(".")[2] for name, reader in listed}
        column = self._rows.misread(readers)
        if column is not None:
            raise self._changed(f"column {column!r}", "")

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Binary data that the server cannot read are no fault of a row."""
        try:
            yield
        except SqlFailure as failure:
            is_misread = failure.code in MISREAD and "COPY" in failure.text
            if is_misread and not isinstance(self._rows, CsvRows):
                raise self._changed("a column", failure.code) from failure
            raise

    def _changed(self, what: str, code: str) -> SqlFailure:
        return SqlFailure(
            ServerFailure.CHANGED,
            code,
            f"{what} of {self._name} has another type than at the query's start.",
        )

    def _statement(self) -> bytes:
        names = ", ".join(map(quote, self._rows.names))
        table = quote_table(self._name)
        return unsubstituted(
            f"COPY {table} ({names}) FROM STDIN (FORMAT {self._rows.format})"
        ).encode()

    def _numbered(self, count: int) -> Any:
        """The row numbers of the next so many rows, or None."""
        import numpy as np

        if self._next_row is None:
            return None
        numbers = np.arange(self._next_row, self._next_row + count, dtype=np.int64)
        self._next_row += count
        return numbers

    def _tried(self, batch: Any, rows: Any, first: int, refused: dict[int, str]) -> None:
        """Send the rows; those that the server refuses go into ``refused``, by their place counted
        from ``first``.

        What is refused is tried again in halves, and what is taken is followed by twice as much.
        """
        if batch.num_rows == 0 or self._is_taken(batch, rows) is None:
            return
        import numpy as np

        from exactum.sql.postgres.checks import no_json

        known = no_json(batch, self._columns)  # the server says it of one row at a time
        refused.update((first + place, why) for place, why in known.items())
        places = np.array(
            [place for place in range(batch.num_rows) if place not in known], np.int64
        )
        batch, rows = batch.take(places), None if rows is None else rows[places]
        start, size = 0, len(places)
        while start < len(places):
            part = batch.slice(start, size)
            failure = self._is_taken(part, None if rows is None else rows[start : start + size])
            if failure is None:
                start, size = start + part.num_rows, 2 * size
            elif part.num_rows == 1:
                refused[first + int(places[start])] = failure
                start, size = start + 1, 1
            else:
                size = part.num_rows // 2

    def _is_taken(self, batch: Any, rows: Any) -> str | None:
        """None once the rows are in the table; else why the server does not take one of them, and
        none is.
        """
        session = self._session
        session.execute(sql("save", savepoint=SAVEPOINT))
        try:
            data = self._rows.encoded(batch, rows)
            session.call(lambda: self._copied(data))
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.ROWS or not failure.code.startswith(OF_ONE_ROW):
                raise
            session.execute(sql("undo", savepoint=SAVEPOINT))
            return failure.text
        session.execute(sql("keep", savepoint=SAVEPOINT))
        return None

    def _copied(self, data: Any) -> None:
        with self._session.connection.cursor().copy(self._statement()) as copy:
            copy.write(data)


class CsvRows:
    """The rows of one task as a COPY of CSV takes them."""

    format = "csv"
    head = tail = b""

    def __init__(self, columns: Sequence[Column], part: int | None, numbered: bool) -> None:
        self._columns = tuple(columns)
        self._part = part
        own = [PART] if part is not None else []
        own += [ROW] if numbered else []
        self.names = (*(column.name for column in columns), *own)

    def encoded(self, batch: Any, numbers: Any) -> memoryview:
        """The text of a batch whose columns are those of the COPY; ``numbers`` (NumPy) if the rows
        are numbered.
        """
        import pyarrow as pa
        from pyarrow import csv

        from exactum.sql.postgres.text import sendable

        arrays = [sendable(c, batch.column(i)) for i, c in enumerate(self._columns)]
        if self._part is not None:
            arrays.append(pa.repeat(pa.scalar(self._part, pa.int64()), batch.num_rows))
        if numbers is not None:
            arrays.append(pa.array(numbers))
        table = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
        return memoryview(sink.getvalue())


def _refused(texts: dict[int, str], count: int) -> Broken:
    import numpy as np

    from exactum.sql.checks import Broken

    mask = np.zeros(count, bool)
    mask[list(texts)] = True
    return Broken(
        "PostgreSQL refuses it", mask, details=tuple(texts[place] for place in sorted(texts))
    )
