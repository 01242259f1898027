"""COPY of Arrow batches into PostgreSQL: as CSV text that Arrow writes, which was the fastest of all ways measured.

In this text a null is an empty field and every string is quoted, so an empty string stays one. What Arrow cannot write
as PostgreSQL reads it (bytes, arrays, structs, days of odd years) is turned into text before, by ``postgres_text``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any

from exactum.sql.dialect import PART, ROW, SqlFailure
from exactum.sql.postgres_catalog import quote, quote_table
from exactum.sql.postgres_session import PostgresSession
from exactum.sql.table import Column, TableName

CHUNK_ROWS = 65_536
"""Most rows that are turned into text at once."""


class CopyLoader:
    """See ``Loader``. One COPY for the whole task."""

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
        sql = f"COPY {quote_table(name)} ({', '.join(names)}) FROM STDIN (FORMAT csv)".replace("%%", "%")
        self._copy = session.call(lambda: self._stack.enter_context(session.connection.cursor().copy(sql.encode())))

    def write(self, batch: Any) -> None:
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            data = self._csv(batch.slice(start, CHUNK_ROWS))
            self._session.call(lambda data=data: self._copy.write(data))  # type: ignore[misc]

    def finish(self) -> None:
        self._session.call(self._stack.close)

    def abandon(self) -> None:
        """Tell the server to forget the COPY, as far as it listens; then the connection goes, and its transaction."""
        reason = EOFError("the task was aborted")
        with suppress(SqlFailure, EOFError), self._session.failing():
            self._stack.__exit__(EOFError, reason, None)
        self._session.close()

    def _csv(self, batch: Any) -> memoryview:
        import pyarrow as pa
        from pyarrow import csv

        from exactum.sql.postgres_text import sendable

        arrays = [sendable(c, batch.column(i)) for i, c in enumerate(self._columns)]
        if self._part is not None:
            arrays.append(pa.repeat(pa.scalar(self._part, pa.int64()), batch.num_rows))
        if self._next_row is not None:
            arrays.append(pa.array(range(self._next_row, self._next_row + batch.num_rows), pa.int64()))
            self._next_row += batch.num_rows
        table = pa.RecordBatch.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="needed"))
        return memoryview(sink.getvalue())
