"""Dead letters in a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from exactum.protocol.sink import DEAD_LETTER_COLUMNS
from exactum.sql.dialect import Role, Session, SqlFailure
from exactum.sql.failure import port_error
from exactum.sql.sink import SqlSink

TIMEOUT_S = 10.0


def rows_of(sink: SqlSink) -> Iterator[dict[str, Any]]:
    """
    Raises:
        ExactumError: the server did not answer, or refused; there is no table.
    """
    try:
        session = sink.dialect.connect(sink.address, Role.DRIVER, "exactum dead letters", TIMEOUT_S)
        try:
            yield from _rows(sink, session)
        finally:
            session.close()
    except SqlFailure as failure:
        raise port_error(failure, f"the dead letters at {sink.address.where}") from failure


def _rows(sink: SqlSink, session: Session) -> Iterator[dict[str, Any]]:
    table = sink.dialect.read_table(session, sink.target)
    if table is None:
        raise sink.missing_table()
    there = {column.name.lower(): column.name for column in table.columns}
    names = [name for name, _ in DEAD_LETTER_COLUMNS if name in there]
    columns = ", ".join(sink.quoted(there[name]) for name in names)
    for row in session.query(f"SELECT {columns} FROM {sink.quoted(table.name)}"):
        yield dict(zip(names, row, strict=True))
