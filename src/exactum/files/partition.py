"""Partition folders as Hive and Spark name them: ``day=2026-01-01/city=K%C3%B6ln`` has no place here, for only
ASCII characters with a meaning of their own are escaped, and ``Köln`` stays ``Köln``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX = 255
"""Longest name of one folder on the usual file systems."""
FOLDER_BYTES_MAX = 700
"""Longest partition folder in all its levels: object stores end at 1,024 bytes for the whole key."""

# ExternalCatalogUtils.charToEscape of Spark; NUL, which no path may hold, is ours.
_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")


def escape(text: str) -> str:
    """A column name or a value as Spark writes it into a path."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def folder_name(column: str, value: Any) -> str:
    """``column=value`` for one level. Null and the empty text are both Hive's default partition, as in Spark."""
    text = _text(value)
    return f"{escape(column)}={escape(text) if text else NULL}"


class Partitioning:
    """The partition columns of a sink, outermost first; without any, every row goes to the folder ''."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Each folder with its rows, in their order, without the partition columns."""
        if not self._columns:
            yield "", table
            return
        folders, codes = self._codes(table)
        data = table.drop_columns(list(self._columns))
        first = int(codes[0])
        if not (codes != first).any():
            yield folders[first], data
            return
        order = np.argsort(codes, kind="stable")
        sorted_ = codes[order]
        starts = np.concatenate(([0], np.flatnonzero(np.diff(sorted_)) + 1, [len(sorted_)]))
        data = data.take(pa.array(order))
        for start, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield folders[int(sorted_[start])], data.slice(start, end - start)

    def refused(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Rows whose partition folder would have too long a name: row number and reason."""
        if not any(self._may_be_long(batch, c) for c in self._columns):
            return {}
        folders, codes = self._codes(pa.Table.from_batches([batch]))
        reasons: dict[int, str] = {}
        for code in np.unique(codes).tolist():
            reason = _too_long(folders[code])
            if reason:
                reasons |= dict.fromkeys(np.flatnonzero(codes == code).tolist(), reason)
        return reasons

    def _codes(self, table: pa.Table) -> tuple[list[str], np.ndarray[Any, Any]]:
        """The folders there are, and for each row which of them it belongs to."""
        folders: list[str] = []
        codes = np.zeros(table.num_rows, np.int64)
        for column in self._columns:
            encoded = pc.dictionary_encode(_whole(table.column(column)), null_encoding="encode")
            names: dict[str, int] = {}
            ids = [names.setdefault(folder_name(column, v), len(names)) for v in encoded.dictionary.to_pylist()]
            level = list(names)
            own = np.asarray(ids, np.int64)[encoded.indices.to_numpy()]
            if not folders:
                folders, codes = level, own
                continue
            pairs, codes = np.unique(codes * len(level) + own, return_inverse=True)
            folders = [f"{folders[pair // len(level)]}/{level[pair % len(level)]}" for pair in pairs.tolist()]
        return folders, codes

    def _may_be_long(self, batch: pa.RecordBatch, column: str) -> bool:
        values = batch.column(batch.schema.get_field_index(column))
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            return False
        longest = pc.max(pc.binary_length(values)).as_py() or 0
        # Each byte becomes three at most.
        return len(escape(column).encode()) + 1 + 3 * longest > min(
            NAME_BYTES_MAX, FOLDER_BYTES_MAX // len(self._columns)
        )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _too_long(folder: str) -> str:
    for name in folder.split("/"):
        if len(name.encode()) > NAME_BYTES_MAX:
            return f"the partition folder {name[:60]!r}... is longer than {NAME_BYTES_MAX} bytes"
    if len(folder.encode()) > FOLDER_BYTES_MAX:
        return f"the partition folder {folder[:60]!r}... is longer than {FOLDER_BYTES_MAX} bytes"
    return ""


def _text(value: Any) -> str:
    """A value as Spark casts it to text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        text = value.strftime("%Y-%m-%d %H:%M:%S") if value.year >= 1000 else value.isoformat(" ", "seconds")[:19]
        return f"{text}.{value.microsecond:06d}".rstrip("0") if value.microsecond else text
    if isinstance(value, date):
        return value.isoformat()
    return str(value)
