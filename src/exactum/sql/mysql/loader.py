"""Bulk load into MySQL: LOAD DATA LOCAL INFILE where the server allows it, else INSERTs of many
rows. A task makes the text of either, the driver sends it.

LOAD DATA LOCAL never fails for a bad row: it warns, and skips or changes the row. So the server's
count of rows must be the one that was sent, and a warning is an error. Its "file" is memory of this
process (memfd), or a temporary file.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import ROW, ServerFailure, SqlFailure
from exactum.sql.mysql.errors import failure_of
from exactum.sql.mysql.session import MySQLSession
from exactum.sql.mysql.statements import quote, quote_table, sql
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Kind, TableName

if TYPE_CHECKING:
    from exactum.sinks.frames import Frame, FrameWriter
    from exactum.sql.rows import Broken

CHUNK_BYTES = 8 * 2**20
"""How much text is sent in one LOAD DATA."""
PIECE_BYTES = 64 * 2**20
"""How much of a batch becomes text at once: it takes some times as much memory."""
INSERT_BYTES_MAX = 2 * 2**20
"""Longest INSERT, where max_allowed_packet allows it: longer ones are not quicker."""
HEADROOM_BYTES = 1_024
"""Room in a packet for what is not rows."""
MEMORY_FILES = hasattr(os, "memfd_create") and Path("/proc/self/fd").exists()
LINES, TUPLES = "lines", "tuples"
_CONVERTED = {Kind.BYTES: "UNHEX({})", Kind.BOOLEAN: "CAST({} AS UNSIGNED)"}
"""What LOAD DATA cannot read from a field as it is."""


def load_facts(session: MySQLSession) -> dict[str, Any]:
    """``files``: whether LOAD DATA LOCAL is allowed; ``packet_bytes``: how long a statement may
    be.
    """
    allowed, packet_bytes = session.query(sql("read_load_settings"))[0]
    return {
        "files": bool(int(allowed)) and session.takes_files,
        "packet_bytes": int(packet_bytes),
    }


class Lines:
    """See ``RowEncoder``: lines for LOAD DATA (see ``text``), in frames of some ``CHUNK_BYTES``. A
    packet bounds no row: the "file" goes to the server in small pieces.
    """

    def __init__(self, columns: Sequence[Column], first_row: int | None) -> None:
        self._columns = tuple(columns)
        self._next_row = first_row

    @property
    def header(self) -> Mapping[str, Any]:
        """``converted``: by which expression a field becomes the column's value, where it is none
        as it is.
        """
        return {
            "format": LINES,
            "names": _names(self._columns, self._next_row),
            "converted": {
                c.name: _CONVERTED[c.kind] for c in self._columns if c.kind in _CONVERTED
            },
        }

    def write(self, batch: Any, frames: FrameWriter) -> Broken | None:
        """See the port."""
        from exactum.sql.mysql import text as mysql_text

        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            frames.write(mysql_text.lines(piece, self._columns, self._next_row), piece.num_rows)
            if self._next_row is not None:
                self._next_row += piece.num_rows
        return None


class Tuples:
    """See ``RowEncoder``: ``(1,'text',x'ff',NULL),`` for INSERT, in frames that fit a packet."""

    def __init__(self, columns: Sequence[Column], first_row: int | None, packet_bytes: int) -> None:
        self._columns = tuple(columns)
        self._next_row = first_row
        self._packet_bytes = packet_bytes
        head = len(_insert(TableName("x" * 64, "x" * 64), self.header["names"]))
        self._room = packet_bytes - 2 * head - HEADROOM_BYTES

    @property
    def header(self) -> Mapping[str, Any]:
        return {"format": TUPLES, "names": _names(self._columns, self._next_row)}

    def write(self, batch: Any, frames: FrameWriter) -> Broken | None:
        """See the port. A row is too large when it does not fit into a packet."""
        import numpy as np
        import pyarrow as pa

        from exactum.sql.mysql import text as mysql_text
        from exactum.sql.rows import Broken

        text, ends = mysql_text.tuples(batch, self._columns, self._next_row)
        sizes = np.diff(ends, prepend=0)
        too_large = None
        if sizes.max() > self._room:
            mask = sizes > self._room
            rule = (
                f"one INSERT takes {self._room} bytes (raise the server's max_allowed_packet, "
                f"{self._packet_bytes}, or let it take LOAD DATA LOCAL by local_infile)"
            )
            too_large = Broken(rule, mask, pa.array(sizes))
            batch = batch.filter(pa.array(~mask))
            text, ends = mysql_text.tuples(batch, self._columns, self._next_row)
        if self._next_row is not None:
            self._next_row += batch.num_rows
        start, row = 0, 0
        longest = min(self._room, INSERT_BYTES_MAX)
        while row < len(ends):
            last = int(np.searchsorted(ends, start + longest, side="right"))
            last = max(last, row + 1)  # a long row goes alone
            end = int(ends[last - 1])
            frames.write(memoryview(text)[start : end - 1], last - row)
            start, row = end, last
        return too_large


def encoder(
    columns: Sequence[Column], first_row: int | None, facts: Mapping[str, Any]
) -> Lines | Tuples:
    """See ``Dialect.encoder``. ``facts`` as ``load_facts`` says them."""
    if facts["files"]:
        return Lines(columns, first_row)
    return Tuples(columns, first_row, int(facts["packet_bytes"]))


def load(session: MySQLSession, table: TableName, header: str, frames: Iterator[Frame]) -> None:
    """See ``Dialect.load``."""
    said = json.loads(header)
    if said["format"] == TUPLES:
        _load_tuples(session, table, said["names"], frames)
    else:
        _load_lines(session, _load_clauses(table, said["names"], said["converted"]), frames)


def _load_lines(session: MySQLSession, clauses: str, frames: Iterator[Frame]) -> None:
    """One statement for some ``CHUNK_BYTES``. Even nothing is sent once: that shows whether the
    user may write.
    """
    chunks: list[memoryview] = []
    size = rows = 0
    sent = False
    for frame, count in frames:
        chunks.append(frame)
        size += len(frame)
        rows += count
        if size >= CHUNK_BYTES:
            _send_lines(session, clauses, chunks, rows)
            chunks, size, rows, sent = [], 0, 0, True
    if chunks or not sent:
        _send_lines(session, clauses, chunks, rows)


def _send_lines(
    session: MySQLSession, clauses: str, chunks: Sequence[memoryview], rows: int
) -> None:
    with _file_of(chunks) as path:
        named = path.replace("\\", "\\\\").replace("'", "\\'")
        statement = f"LOAD DATA LOCAL INFILE '{named}' {clauses}"
        affected, warnings = session.send(statement.encode(), path)
    if warnings or affected != rows:
        raise _refused(session, affected, rows)


def _load_tuples(
    session: MySQLSession,
    table: TableName,
    names: Sequence[str],
    frames: Iterator[Frame],
) -> None:
    head = _insert(table, names)
    sent = False
    for frame, rows in frames:
        affected, warnings = session.send(head + bytes(frame))
        sent = True
        if warnings or affected != rows:
            raise _refused(session, affected, rows)
    if not sent:
        listed = ", ".join(map(quote, names))
        nulls = ", ".join(["NULL"] * len(names))
        session.execute(
            f"INSERT INTO {quote_table(table)} ({listed}) SELECT {nulls} FROM DUAL WHERE FALSE"
        )


def _insert(table: TableName, names: Sequence[str]) -> bytes:
    listed = ", ".join(map(quote, names))
    return unsubstituted(f"INSERT INTO {quote_table(table)} ({listed}) VALUES ").encode()


def _names(columns: Sequence[Column], first_row: int | None) -> list[str]:
    return [*(c.name for c in columns), *([ROW] if first_row is not None else [])]


def _load_clauses(table: TableName, names: Sequence[str], converted: Mapping[str, str]) -> str:
    """``INTO TABLE table CHARACTER SET utf8mb4 FIELDS ... LINES ... (column, ..., @exactum_0) SET
    column = UNHEX(@exactum_0), ...``.
    """
    fields: list[str] = []
    settings: list[str] = []
    for place, name in enumerate(names):
        if name in converted:
            fields.append(f"@exactum_{place}")
            settings.append(f"{quote(name)} = {converted[name].format(f'@exactum_{place}')}")
        else:
            fields.append(quote(name))
    return unsubstituted(
        f"INTO TABLE {quote_table(table)} CHARACTER SET utf8mb4 "
        "FIELDS TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' "
        f"({', '.join(fields)})" + (f" SET {', '.join(settings)}" if settings else "")
    )


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
def _file_of(chunks: Sequence[memoryview]) -> Iterator[str]:
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


def _write_all(descriptor: int, data: memoryview) -> None:
    view = data
    while view:
        view = view[os.write(descriptor, view) :]
