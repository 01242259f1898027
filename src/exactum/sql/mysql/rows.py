"""A task's rows as text for MySQL: lines for LOAD DATA LOCAL INFILE where the server allows it,
else rows of literals for INSERT. The driver sends it. By whole arrays, no loop over rows.

LOAD DATA reads lines that end with ``\\n``, with fields between tabs: a backslash escapes, ``\\N``
is NULL, and binary values are hexadecimal. INSERT reads ``(1,'text',x'ff',NULL)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.sql.mysql.session import quote, quote_table
from exactum.sql.rows import Broken
from exactum.sql.statements import unsubstituted
from exactum.sql.table import Column, Kind, TableName
from exactum.values.nested import Numbers, bytes_of, data_of, hex_texts, is_bytes, is_text
from exactum.values.texts import TEXT, concatenated, without_nulls

if TYPE_CHECKING:
    from exactum.sinks.frames import FrameWriter


# ---- text ------------------------------------------------------------------------------------


_UNQUOTED = frozenset({Kind.INTEGER, Kind.FLOAT, Kind.BOOLEAN})


def lines(batch: pa.RecordBatch, columns: Sequence[Column]) -> Numbers:
    """The batch as LOAD DATA reads it."""
    fields = [_field(batch.column(i), column) for i, column in enumerate(columns)]
    fields[-1] = concatenated(fields[-1], "\n")
    return data_of(without_nulls(*fields, between="\t"))


def tuples(batch: pa.RecordBatch, columns: Sequence[Column]) -> tuple[Numbers, Numbers]:
    """The batch as INSERT reads it, each row followed by a comma, and where each row ends (both
    NumPy's).
    """
    fields = [_literal(batch.column(i), column) for i, column in enumerate(columns)]
    text, ends = bytes_of(concatenated("(", without_nulls(*fields, between=","), "),"))
    return text, ends[1:]


def _field(values: pa.Array, column: Column) -> pa.Array:
    text = _text(values)
    if is_text(values.type):
        for character, escaped in (("\\", "\\\\"), ("\t", "\\\t"), ("\n", "\\\n")):
            text = _replaced(text, character, escaped)
    return pc.fill_null(text, "\\N") if text.null_count else text


def _literal(values: pa.Array, column: Column) -> pa.Array:
    text = _text(values)
    if is_bytes(values.type):
        text = concatenated("x'", text, "'")
    elif column.kind not in _UNQUOTED:
        text = concatenated("'", _replaced(_replaced(text, "\\", "\\\\"), "'", "\\'"), "'")
    return pc.fill_null(text, "NULL") if text.null_count else text


def _text(values: pa.Array) -> pa.Array:
    """Each value as a large_string, without quotes and escapes; null stays null."""
    kind = values.type
    if is_bytes(kind):
        return hex_texts(values)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif pa.types.is_float32(kind):
        # As a double: the shortest text of the largest float is above it, and servers read text as
        # a double.
        values = values.cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        # Without its zone an instant is its UTC time.
        values = values.cast(pa.timestamp("us"))
    return values.cast(TEXT)


def _replaced(text: pa.Array, character: str, by: str) -> pa.Array:
    """Looks first whether the character is there at all, which is cheap."""
    if not np.count_nonzero(data_of(text) == ord(character)):
        return text
    return pc.replace_substring(text, character, by)


# ---- a task's rows ---------------------------------------------------------------------------


PIECE_BYTES = 64 * 2**20
"""How much of a batch becomes text at once: it takes some times as much memory."""
INSERT_BYTES_MAX = 2 * 2**20
"""Longest INSERT, where max_allowed_packet allows it: longer ones are not quicker."""
HEADROOM_BYTES = 1_024
"""Room in a packet for what is not rows."""
LINES, TUPLES = "lines", "tuples"
_CONVERTED = {Kind.BYTES: "UNHEX({})", Kind.BOOLEAN: "CAST({} AS UNSIGNED)"}
"""What LOAD DATA cannot read from a field as it is."""


class Lines:
    """See ``RowEncoder``: lines for LOAD DATA, in frames of some ``PIECE_BYTES``. A
    packet bounds no row: the "file" goes to the server in small pieces.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]

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

    def write(self, batch: pa.RecordBatch, frames: FrameWriter) -> Broken | None:
        """See the port."""
        rows = max(1, batch.num_rows * PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            piece = batch.slice(start, rows)
            frames.write(lines(piece, self._columns), piece.num_rows)
        return None


class Tuples:
    """See ``RowEncoder``: ``(1,'text',x'ff',NULL),`` for INSERT, in frames that fit a packet."""

    def __init__(self, columns: Sequence[Column], packet_bytes: int) -> None:
        self._columns = tuple(columns)
        self._names = [column.name for column in columns]
        self._packet_bytes = packet_bytes
        head = len(insert_head(TableName("x" * 64, "x" * 64), self._names))
        self._room = packet_bytes - 2 * head - HEADROOM_BYTES

    @property
    def header(self) -> Mapping[str, Any]:
        return {"format": TUPLES, "names": self._names}

    def write(self, batch: pa.RecordBatch, frames: FrameWriter) -> Broken | None:
        """See the port. A row is too large when it does not fit into a packet."""
        text, ends = tuples(batch, self._columns)
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
            text, ends = tuples(batch, self._columns)
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
