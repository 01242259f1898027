"""COPY of Arrow batches into PostgreSQL: as CSV text that Arrow writes, which was the fastest of
all ways measured.

In this text a null is an empty field and every string is quoted, so an empty string stays one. What
Arrow cannot write as PostgreSQL reads it (bytes, arrays, structs, days of odd years) is turned into
text before, by ``postgres_text``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import PART, ROW, ServerFailure, SqlFailure
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.postgres.statements import quote, quote_table, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, TableName

if TYPE_CHECKING:
    from exactum.sql.checks import Broken

CHUNK_ROWS = 65_536
"""Most rows that are turned into text at once."""
SAVEPOINT = "exactum_rows"
OF_ONE_ROW = ("22", "23514", "54")
"""SQLSTATEs, or how they begin, of what a row's own values are refused for: data, a domain's
CHECK, a limit.
"""


class CopyLoader:
    """See ``Loader``. One ``COPY table (column, ..., exactum_part, exactum_row) FROM STDIN (FORMAT
    csv)`` for the whole task.

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
        self._columns = tuple(columns)
        self._part = part
        self._next_row = first_row
        names = [quote(c.name) for c in columns]
        names += [PART] if part is not None else []
        names += [ROW] if first_row is not None else []
        self._stack = ExitStack()
        copy = f"COPY {quote_table(name)} ({', '.join(names)}) FROM STDIN (FORMAT csv)"
        self._sql = unsubstituted(copy).encode()
        self._copy: Any = None
        if not any(column.judged for column in columns):
            self._copy = self._begun()

    def write(self, batch: Any) -> Broken | None:
        """See the port."""
        refused: dict[int, str] = {}
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            chunk = batch.slice(start, CHUNK_ROWS)
            rows = self._numbered(chunk.num_rows)
            if self._copy is None:
                self._tried(chunk, rows, start, refused)
            else:
                data = self._csv(chunk, rows)
                self._session.call(lambda data=data: self._copy.write(data))  # type: ignore[misc]
        return _refused(refused, batch.num_rows) if refused else None

    def finish(self) -> None:
        if self._copy is None:
            self._copy = self._begun()  # even nothing, once: that shows whether the user may write
        self._session.call(self._stack.close)

    def abandon(self) -> None:
        """Tell the server to forget the COPY, as far as it listens; then the connection goes, and
        its transaction.
        """
        reason = EOFError("the task was aborted")
        with suppress(SqlFailure, EOFError), self._session.failing():
            self._stack.__exit__(EOFError, reason, None)
        self._session.close()

    def _begun(self) -> Any:
        session = self._session
        return session.call(
            lambda: self._stack.enter_context(session.connection.cursor().copy(self._sql))
        )

    def _numbered(self, count: int) -> Any:
        """The row numbers of the next so many rows, or None."""
        import pyarrow as pa

        if self._next_row is None:
            return None
        numbers = pa.array(range(self._next_row, self._next_row + count), pa.int64())
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
        import pyarrow as pa

        from exactum.sql.postgres.checks import no_json

        known = no_json(batch, self._columns)  # the server says it of one row at a time
        refused.update((first + place, why) for place, why in known.items())
        places = np.array(
            [place for place in range(batch.num_rows) if place not in known], np.int64
        )
        batch, rows = batch.take(places), None if rows is None else rows.take(pa.array(places))
        start, size = 0, len(places)
        while start < len(places):
            part = batch.slice(start, size)
            failure = self._is_taken(part, None if rows is None else rows.slice(start, size))
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
            data = self._csv(batch, rows)
            session.call(lambda: self._copied(data))
        except SqlFailure as failure:
            if failure.failure is not ServerFailure.ROWS or not failure.code.startswith(OF_ONE_ROW):
                raise
            session.execute(sql("undo", savepoint=SAVEPOINT))
            return failure.text
        session.execute(sql("keep", savepoint=SAVEPOINT))
        return None

    def _copied(self, data: Any) -> None:
        with self._session.connection.cursor().copy(self._sql) as copy:
            copy.write(data)

    def _csv(self, batch: Any, rows: Any) -> memoryview:
        import pyarrow as pa
        from pyarrow import csv

        from exactum.sql.postgres.text import sendable

        arrays = [sendable(c, batch.column(i)) for i, c in enumerate(self._columns)]
        if self._part is not None:
            arrays.append(pa.repeat(pa.scalar(self._part, pa.int64()), batch.num_rows))
        if rows is not None:
            arrays.append(rows)
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
        "PostgreSQL refuses it", mask, told=tuple(texts[place] for place in sorted(texts))
    )
