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

from exactum.files.place import NameLimits
from exactum.files.texts import instant_text, whole_column
from exactum.files.zone import local, zone_of
from exactum.values.nested import is_text
from exactum.values.times import DAY_FIRST, DAY_LAST, MICROS_FIRST, MICROS_LAST, day_text

NULL = "__HIVE_DEFAULT_PARTITION__"
VALUE_BYTES_MAX = 64
"""No value but a text is longer: digits, dates and times."""

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

    def __init__(self, columns: Sequence[str], limits: NameLimits) -> None:
        self._columns = tuple(columns)
        self._limits = limits

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

    def refused(self, batch: pa.RecordBatch) -> dict[int, str]:
        """Rows that no folder's name can say, or only one that is too long: row number and reason.

        Raises:
            SettingRefused: a timestamp is in a time zone that this machine does not know.
        """
        if not batch.num_rows:
            return {}
        reasons: dict[int, str] = {}
        for column in self._columns:
            values = batch.column(batch.schema.get_field_index(column))
            if (
                is_text(values.type)
                or pa.types.is_date(values.type)
                or pa.types.is_timestamp(values.type)
            ):
                encoded = pc.dictionary_encode(values, null_encoding="encode")
                for code, why in _unsayable(encoded.dictionary).items():
                    for row in pc.indices_nonzero(pc.equal(encoded.indices, code)).to_pylist():
                        reasons[row] = f"column {column!r}, which names the partition folder, {why}"
        if any(self._may_be_long(batch, c) for c in self._columns):
            folders, codes = self._codes(pa.Table.from_batches([batch]))
            for code in np.unique(codes).tolist():
                long = self._too_long(folders[code])
                if long:
                    reasons |= dict.fromkeys(np.flatnonzero(codes == code).tolist(), long)
        return reasons

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
        return whole_column(table.column(column))

    def _names(self, column: str, values: pa.Array) -> Sequence[str]:
        """How the folders of these values are called, without a slash."""
        return [folder_name(column, value) for value in _texts(values)]

    def _may_be_long(self, batch: pa.RecordBatch, column: str) -> bool:
        values = batch.column(batch.schema.get_field_index(column))
        longest = VALUE_BYTES_MAX
        if is_text(values.type):
            # Each byte becomes three at most.
            longest = max(3 * (pc.max(pc.binary_length(values)).as_py() or 0), len(NULL))
        allowed = min(
            self._limits.name_bytes_max, self._limits.folder_bytes_max // len(self._columns) - 1
        )
        return len(escape(column).encode()) + 1 + longest > allowed

    def _too_long(self, folder: str) -> str:
        for name in folder.split("/"):
            if len(name.encode()) > self._limits.name_bytes_max:
                return (
                    f"the partition folder {name[:60]!r}... is longer than "
                    f"{self._limits.name_bytes_max} bytes"
                )
        if len(folder.encode()) > self._limits.folder_bytes_max:
            return (
                f"the partition folder {folder[:60]!r}... is longer than "
                f"{self._limits.folder_bytes_max} bytes"
            )
        return ""


def _unsayable(values: pa.Array) -> dict[int, str]:
    """Values that readers of a folder's name would take for others, by their place, and why."""
    kind = values.type
    if is_text(kind):
        found = pc.indices_nonzero(pc.equal(values, pa.scalar(NULL, kind))).to_pylist()
        return dict.fromkeys(found, f"holds the text {NULL!r}, which readers take for null")
    reasons: dict[int, str] = {}
    if pa.types.is_date(kind):
        for place, days in enumerate(values.view(pa.int32()).to_pylist()):
            if days is not None and not DAY_FIRST <= days <= DAY_LAST:
                reasons[place] = f"is outside the years 1 to 9999, the row has {day_text(days)}"
        return reasons
    for place, seen in enumerate(_clocks(values)):
        if seen is None:
            continue
        clock, again = seen
        if not MICROS_FIRST <= clock <= MICROS_LAST:
            reasons[place] = f"is outside the years 1 to 9999, the row has {instant_text(clock)}"
        elif not again:
            reasons[place] = (
                f"is {instant_text(clock)} for the second time, when the clock of {kind.tz} was "
                "set back, and readers take that for the first"
            )
    return reasons


def _clocks(values: pa.Array) -> Iterator[tuple[int, bool] | None]:
    """What the clock of the column's zone shows, and whether that names the instant."""
    micros = values.view(pa.int64()).to_pylist()
    if values.type.tz is None:
        return (None if m is None else (m, True) for m in micros)
    zone = zone_of(values.type.tz)
    return (None if m is None else local(m, zone) for m in micros)


def _texts(values: pa.Array) -> list[str | None]:
    """Each value as Spark casts it to text. Raises for none that ``refused`` lets through."""
    kind = values.type
    if pa.types.is_date(kind):
        return [None if d is None else day_text(d) for d in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [None if seen is None else instant_text(seen[0]) for seen in _clocks(values)]
    if pa.types.is_boolean(kind):
        return [None if v is None else str(v).lower() for v in values.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if v is None else format(v, "f") for v in values.to_pylist()]
    return [None if v is None else str(v) for v in values.to_pylist()]
