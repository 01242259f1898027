"""Bulk load into MySQL: LOAD DATA LOCAL INFILE where the server allows it, else INSERTs of many
rows.

LOAD DATA LOCAL never fails for a bad row: it warns, and skips or changes the row. So the server's
count of rows must be the one that was sent, and a warning is an error. Its "file" is memory of this
process (memfd), or a temporary file.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import PART, ROW, ServerFailure, SqlFailure
from exactum.sql.mysql.errors import failure_of
from exactum.sql.mysql.pieces import by_pieces
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import quote, quote_table, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Kind, TableName

if TYPE_CHECKING:
    from exactum.sql.checks import Broken

CHUNK_BYTES = 8 * 2**20
"""How much text is gathered before it is sent in one statement."""
INSERT_BYTES_MAX = 2 * 2**20
"""Longest INSERT, where max_allowed_packet allows it: longer ones are not quicker."""
HEADROOM_BYTES = 1_024
MEMORY_FILES = hasattr(os, "memfd_create") and Path("/proc/self/fd").exists()


def loader(
    session: MySQLSession,
    name: TableName,
    columns: Sequence[Column],
    part: int | None,
    first_row: int | None,
) -> LoadData | InsertRows:
    """See ``dialect``."""
    if session.loading is None:
        rows = session.query(sql("read_load_settings"))
        wanted = session.address.option("local_infile", "true").lower() in (
            "true",
            "1",
            "yes",
            "on",
        )
        session.loading = (
            bool(int(rows[0][0])) and wanted and session.takes_files,
            int(rows[0][1]),
        )
    if part is not None and first_row is None:
        first_row = 0  # the staging table's primary key asks for it
    allowed, packet_bytes = session.loading
    if allowed:
        return LoadData(session, name, columns, part, first_row)
    return InsertRows(
        session, name, columns, part=part, first_row=first_row, packet_bytes=packet_bytes
    )


class LoadData:
    """LOAD DATA LOCAL INFILE of lines (see ``mysql_text``), one statement for each
    ``CHUNK_BYTES``.
    """

    def __init__(
        self,
        session: MySQLSession,
        name: TableName,
        columns: Sequence[Column],
        part: int | None,
        first_row: int | None,
    ) -> None:
        self._session = session
        self._columns = tuple(columns)
        self._next_row = first_row
        self._clauses = unsubstituted(_load_clauses(name, columns, part, first_row is not None))
        self._chunks: list[bytes] = []
        self._chunk_bytes = 0
        self._chunk_rows = 0
        self._sent = False

    def write(self, batch: Any) -> Broken | None:
        """See the port. A packet bounds no row here: the file goes to the server in small
        pieces.
        """
        return by_pieces(batch, self._gather)

    def _gather(self, batch: Any) -> None:
        from exactum.sql.mysql import text as mysql_text

        if batch.num_rows == 0:
            return
        text = mysql_text.lines(batch, self._columns, self._next_row)
        if self._next_row is not None:
            self._next_row += batch.num_rows
        self._chunks.append(text)
        self._chunk_bytes += len(text)
        self._chunk_rows += batch.num_rows
        if self._chunk_bytes >= CHUNK_BYTES:
            self._send()

    def finish(self) -> None:
        """Sends even nothing once: that shows whether the user may write."""
        if self._chunks or not self._sent:
            self._send()

    def abandon(self) -> None:
        self._chunks.clear()

    def _send(self) -> None:
        chunks, self._chunks = self._chunks, []
        rows, self._chunk_rows, self._chunk_bytes = self._chunk_rows, 0, 0
        with _file_of(chunks) as path:
            named = path.replace("\\", "\\\\").replace("'", "\\'")
            statement = f"LOAD DATA LOCAL INFILE '{named}' {self._clauses}"
            affected, warnings = self._session.send(statement.encode(), path)
        self._sent = True
        if warnings or affected != rows:
            raise _refused(self._session, affected, rows)


class InsertRows:
    """``INSERT INTO table (column, ..., exactum_row, exactum_part) VALUES (...), ...`` of as many
    rows as fit a packet.
    """

    def __init__(
        self,
        session: MySQLSession,
        name: TableName,
        columns: Sequence[Column],
        *,
        part: int | None,
        first_row: int | None,
        packet_bytes: int,
    ) -> None:
        self._session = session
        self._columns = tuple(columns)
        self._part = part
        self._next_row = first_row
        names = [c.name for c in columns]
        names += [ROW] if first_row is not None else []
        names += [PART] if part is not None else []
        listed = ", ".join(map(quote, names))
        self._head = unsubstituted(f"INSERT INTO {quote_table(name)} ({listed}) VALUES ").encode()
        self._probe = (
            f"INSERT INTO {quote_table(name)} ({listed}) SELECT {_nulls(len(names))} FROM DUAL "
            "WHERE FALSE"
        )
        self._packet_bytes = packet_bytes
        self._sent = False

    def write(self, batch: Any) -> Broken | None:
        """See the port. A row is too large when it does not fit into a packet."""
        return by_pieces(batch, self._insert)

    def _insert(self, batch: Any) -> Broken | None:
        import numpy as np
        import pyarrow as pa

        from exactum.sql.checks import Broken
        from exactum.sql.mysql import text as mysql_text

        if batch.num_rows == 0:
            return None
        text, ends = mysql_text.tuples(batch, self._columns, self._part, self._next_row)
        room = self._packet_bytes - len(self._head) - HEADROOM_BYTES
        sizes = np.diff(ends, prepend=0)
        too_large = None
        if sizes.max() > room:
            mask = sizes > room
            rule = (
                f"one INSERT takes {room} bytes (raise the server's max_allowed_packet, "
                f"{self._packet_bytes}, or let it take LOAD DATA LOCAL by local_infile)"
            )
            too_large = Broken(rule, mask, pa.array(sizes))
            batch = batch.filter(pa.array(~mask))
            text, ends = mysql_text.tuples(batch, self._columns, self._part, self._next_row)
        if self._next_row is not None:
            self._next_row += batch.num_rows
        self._send(text, ends, room)
        return too_large

    def _send(self, text: bytes, ends: Any, room: int) -> None:
        """``ends``: where each row ends, none of them longer than ``room``."""
        import numpy as np

        start, row = 0, 0
        while row < len(ends):
            last = int(np.searchsorted(ends, start + min(room, INSERT_BYTES_MAX), side="right"))
            last = max(last, row + 1)  # a long row goes alone
            end = int(ends[last - 1])
            affected, warnings = self._session.send(self._head + text[start : end - 1])
            self._sent = True
            if warnings or affected != last - row:
                raise _refused(self._session, affected, last - row)
            start, row = end, last

    def finish(self) -> None:
        """Sends even nothing once: that shows whether the user may write."""
        if not self._sent:
            self._session.execute(self._probe)

    def abandon(self) -> None:
        """Nothing is gathered."""


def _load_clauses(
    name: TableName, columns: Sequence[Column], part: int | None, numbered: bool
) -> str:
    """``INTO TABLE table CHARACTER SET utf8mb4 FIELDS ... LINES ... (column, ..., @exactum_0,
    exactum_row) SET column = UNHEX(@exactum_0), ..., exactum_part = part``.
    """
    fields: list[str] = []
    settings: list[str] = []
    for place, column in enumerate(columns):
        converted = _CONVERTED.get(column.kind)
        if converted is None:
            fields.append(quote(column.name))
        else:
            fields.append(f"@exactum_{place}")
            settings.append(f"{quote(column.name)} = {converted.format(f'@exactum_{place}')}")
    if numbered:
        fields.append(quote(ROW))
    if part is not None:
        settings.append(f"{quote(PART)} = {part}")
    return (
        f"INTO TABLE {quote_table(name)} CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
        f"({', '.join(fields)})" + (f" SET {', '.join(settings)}" if settings else "")
    )


_CONVERTED = {Kind.BYTES: "UNHEX({})", Kind.BOOLEAN: "CAST({} AS UNSIGNED)"}
"""What LOAD DATA cannot read from a field as it is."""


def _nulls(count: int) -> str:
    return ", ".join(["NULL"] * count)


def _refused(session: MySQLSession, affected: int, sent: int) -> SqlFailure:
    """What the server warned of, or that rows are missing."""
    found = session.query(sql("read_warnings"))
    text = "; ".join(str(message) for _, _, message in found)
    code = int(found[0][1]) if found else 0
    if affected != sent:
        text = f"{sent - affected} of {sent} rows were not taken{': ' if text else ''}{text}"
    failure = failure_of(code) if found else ServerFailure.ROWS
    if failure is ServerFailure.OTHER:
        failure = ServerFailure.ROWS
    return SqlFailure(failure, str(code or ""), session.address.scrub(text))


@contextlib.contextmanager
def _file_of(chunks: Sequence[bytes]) -> Iterator[str]:
    """A path by which this process reads the chunks one after another."""
    if MEMORY_FILES:
        descriptor = os.memfd_create("exactum-load")
        try:
            for chunk in chunks:
                _write_all(descriptor, chunk)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile(prefix="exactum-load-") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        yield file.name


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
