"""Partition folders as Hive and Spark name them: ``day=2026-01-01/city=K%C3%B6ln`` has no place
here, for only ASCII characters with a meaning of their own are escaped, and ``Köln`` stays
``Köln``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exactum.files.place import FOLDER_BYTES_MAX, NAME_BYTES_MAX
from exactum.sinks.rows import RowCheck
from exactum.values import times
from exactum.values.nested import is_text
from exactum.values.texts import decimals

NULL = "__HIVE_DEFAULT_PARTITION__"
VALUE_BYTES_MAX = 64
"""No value but a text is longer: digits and dates."""

# ExternalCatalogUtils.charToEscape of Spark; NUL, which no path may hold, is ours.
_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")


def escape(text: str) -> str:
    """A column name or a value as Spark writes it into a path."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def folder_name(column: str, value: str | None) -> str:
    """``column=value`` for one level. Null and the empty text are both Hive's default partition, as
    in Spark.
    """
    return f"{escape(column)}={escape(value) if value else NULL}"


class Partitioning:
    """The partition columns of a sink, outermost first; without any, every row goes to the folder
    ''.
    """

    names_folders = True
    """False: what a partition is called stands in a table's log, and in no file's name."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = tuple(columns)

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Each folder with its rows, in their order, without the partition columns."""
        if not self._columns:
            yield "", table
            return
        folders, codes = self._codes(table)
        data = self._kept(table)
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

    def check(self, check: RowCheck) -> None:
        """Refuse rows that no folder's name can say, or only one that is too long."""
        batch = check.batch
        for column in self._columns if batch.num_rows else ():
            values = batch.column(column)
            where = f"column {column!r}, which names the partition folder,"
            if is_text(values.type):
                is_null = pc.equal(values, pa.scalar(NULL, values.type))
                check.refuse(
                    is_null, f"{where} holds the text {NULL!r}, which readers take for null"
                )
            else:
                outside = times.out_of_years(values)
                check.refuse(outside, f"{where} is outside the years 1 to 9999", values)
        if (
            self.names_folders
            and batch.num_rows
            and any(self._may_be_long(batch.column(c), c) for c in self._columns)
        ):
            folders, codes = self._codes(pa.Table.from_batches([batch]))
            for code in np.unique(codes).tolist():
                if long := self._too_long(folders[code]):
                    check.refuse(codes == code, long, again=False)

    def _codes(self, table: pa.Table) -> tuple[list[str], np.ndarray[Any, Any]]:
        """The folders there are, and for each row which of them it belongs to."""
        folders: list[str] = []
        codes = np.zeros(table.num_rows, np.int64)
        for column in self._columns:
            encoded = pc.dictionary_encode(self._level(table, column), null_encoding="encode")
            names: dict[str, int] = {}
            called = self._names(column, encoded.dictionary)
            ids = [names.setdefault(name, len(names)) for name in called]
            level = list(names)
            own = np.asarray(ids, np.int64)[encoded.indices.to_numpy()]
            if not folders:
                folders, codes = level, own
                continue
            pairs, codes = np.unique(codes * len(level) + own, return_inverse=True)
            folders = [
                f"{folders[pair // len(level)]}/{level[pair % len(level)]}"
                for pair in pairs.tolist()
            ]
        return folders, codes

    def _kept(self, table: pa.Table) -> pa.Table:
        """What goes into the files."""
        return table.drop_columns(list(self._columns))

    def _level(self, table: pa.Table, column: str) -> pa.Array:
        """What the rows are parted by."""
        return table.column(column).combine_chunks()

    def _names(self, column: str, values: pa.Array) -> Sequence[str]:
        """How the folders of these values are called, without a slash."""
        return [folder_name(column, value) for value in _texts(values)]

    def _may_be_long(self, values: pa.Array, column: str) -> bool:
        longest = VALUE_BYTES_MAX
        if is_text(values.type):
            # Each byte becomes three at most.
            longest = max(3 * (pc.max(pc.binary_length(values)).as_py() or 0), len(NULL))
        allowed = min(NAME_BYTES_MAX, FOLDER_BYTES_MAX // len(self._columns) - 1)
        return len(escape(column).encode()) + 1 + longest > allowed

    def _too_long(self, folder: str) -> str:
        longest = max(len(name.encode()) for name in folder.split("/"))
        for size, size_max in (
            (longest, NAME_BYTES_MAX),
            (len(folder.encode()), FOLDER_BYTES_MAX),
        ):
            if size > size_max:
                return f"the partition folder {folder[:60]!r}... is longer than {size_max} bytes"
        return ""


def _texts(values: pa.Array) -> list[str | None]:
    """Each value as Spark casts it to text."""
    kind = values.type
    if pa.types.is_date(kind):
        made = times.texts(values)
    else:
        made = decimals(values) if pa.types.is_decimal(kind) else values.cast(pa.string())
    found: list[str | None] = made.to_pylist()
    return found
