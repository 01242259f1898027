"""Rows for columns of which only the server knows what values they take (``Column.judged``): JSON,
inet, a domain with a CHECK, ...

A task stages them as Arrow, so that the driver finds a row that the server refuses, and has it as
it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from exactum.sql.arrow_frame import packed, unpacked
from exactum.sql.dialect import RefusedRow, ServerFailure, SqlFailure
from exactum.sql.postgres.copy import CsvRows, copied, csv_text, statement_of
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.postgres.statements import sql
from exactum.sql.table import TableName

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame

OF_ONE_ROW = ("22", "23514", "54")
"""SQLSTATEs, or how they begin, of what a row's own values are refused for by a table that has
nothing but types: data, a domain's CHECK, a limit.
"""


class ArrowRows(CsvRows):
    """The rows of one task. The first columns of a frame are what COPY is sent, in the order of
    ``names``. What the batch had has its name there: such a column if it is sent as it was, else
    one behind them.
    """

    format = "arrow"

    def encoded(self, batch: Any, numbers: Any) -> Any:
        import pyarrow as pa

        had = batch.columns
        sent = self.sent(had, numbers)
        same = [one is other for one, other in zip(sent, had, strict=False)]
        named = list(zip(batch.schema.names, had, same, strict=True))
        names = [name if is_same else "" for name, _, is_same in named]
        names += [""] * (len(sent) - len(had))
        changed = [(name, values) for name, values, is_same in named if not is_same]
        return packed(
            pa.RecordBatch.from_arrays(
                [*sent, *(values for _, values in changed)],
                names=[*names, *(name for name, _ in changed)],
            )
        )


def csv_of(batch: Any, count: int) -> memoryview:
    """What COPY is sent of a frame's batch, which is its first ``count`` columns."""
    return csv_text(batch.columns[:count])


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
    statement = statement_of(table, names, "csv")
    refused: list[RefusedRow] = []
    first = 0
    for frame, count in frames:
        batch = unpacked(frame)
        start, size = 0, count
        while start < count:
            part = batch.slice(start, size)
            why = _refusal(session, statement, csv_of(part, len(names)))
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


def _refusal(session: PostgresSession, statement: bytes, rows: memoryview) -> str | None:
    """None once the rows are in the table; else why the server does not take one of them, and none
    is.
    """
    session.execute(sql("save"))
    why = None
    try:
        copied(session, statement, [rows])
    except SqlFailure as failure:
        if failure.failure is not ServerFailure.ROWS or not failure.code.startswith(OF_ONE_ROW):
            raise
        session.execute(sql("undo"))
        why = failure.text
    session.execute(sql("keep"))
    return why
