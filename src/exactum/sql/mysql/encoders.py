"""A task's rows as text for MySQL: lines for LOAD DATA LOCAL INFILE where the server allows it,
else rows of literals for INSERT. The driver sends it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from exactum.sql.dialect import ROW
from exactum.sql.mysql.statements import quote, quote_table
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Kind, TableName

if TYPE_CHECKING:
    from exactum.sinks.frames import FrameWriter
    from exactum.sql.rows import Broken

PIECE_BYTES = 64 * 2**20
"""How much of a batch becomes text at once: it takes some times as much memory."""
INSERT_BYTES_MAX = 2 * 2**20
"""Longest INSERT, where max_allowed_packet allows it: longer ones are not quicker."""
HEADROOM_BYTES = 1_024
"""Room in a packet for what is not rows."""
LINES, TUPLES = "lines", "tuples"
_CONVERTED = {Kind.BYTES: "UNHEX({})", Kind.BOOLEAN: "CAST({} AS UNSIGNED)"}
"""What LOAD DATA cannot read from a field as it is."""


class _Rows:
    """Of one task; ``first_row`` numbers them."""

    def __init__(self, columns: Sequence[Column], first_row: int | None) -> None:
        self._columns = tuple(columns)
        self._next_row = first_row
        own = [] if first_row is None else [ROW]
        self._names = [*(column.name for column in columns), *own]

    def _count(self, rows: int) -> None:
        if self._next_row is not None:
            self._next_row += rows


class Lines(_Rows):
    """See ``RowEncoder``: lines for LOAD DATA (see ``text``), in frames of some ``PIECE_BYTES``. A
    packet bounds no row: the "file" goes to the server in small pieces.
    """

    @property
    def header(self) -> Mapping[str, Any]:
        """``converted``: by which expression a field becomes the column's value, where it is none
        as it is.
        """
        return {
            "format": LINES,
            "names": self._names,
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
            self._count(piece.num_rows)
        return None


class Tuples(_Rows):
    """See ``RowEncoder``: ``(1,'text',x'ff',NULL),`` for INSERT, in frames that fit a packet."""

    def __init__(self, columns: Sequence[Column], first_row: int | None, packet_bytes: int) -> None:
        super().__init__(columns, first_row)
        self._packet_bytes = packet_bytes
        head = len(insert_head(TableName("x" * 64, "x" * 64), self._names))
        self._room = packet_bytes - 2 * head - HEADROOM_BYTES

    @property
    def header(self) -> Mapping[str, Any]:
        return {"format": TUPLES, "names": self._names}

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
        self._count(batch.num_rows)
        start, row = 0, 0
        longest = min(self._room, INSERT_BYTES_MAX)
        while row < len(ends):
            last = int(np.searchsorted(ends, start + longest, side="right"))
            last = max(last, row + 1)  # a long row goes alone
            end = int(ends[last - 1])
            frames.write(memoryview(text)[start : end - 1], last - row)
            start, row = end, last
        return too_large


def insert_head(table: TableName, names: Sequence[str]) -> bytes:
    """What stands before the rows."""
    listed = ", ".join(map(quote, names))
    return unsubstituted(f"INSERT INTO {quote_table(table)} ({listed}) VALUES ").encode()
