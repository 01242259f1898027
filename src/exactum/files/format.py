"""The file formats: their options, which column types they can hold, and their encoders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from gzip import GzipFile
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exactum.errors import FrameRefused, SettingRefused
from exactum.files.partition import escape
from exactum.files.place import NAME_BYTES_MAX
from exactum.values import times
from exactum.values.json_text import json_texts
from exactum.values.nested import data_of, is_text
from exactum.values.texts import TEXT, concatenated, decimals, floats, instants, without_nulls

_NONE = ("none", "uncompressed")
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "parquet": {"compression": "snappy", "compression_level": None},
    "json": {"compression": "none"},
    "csv": {"compression": "none", "header": True, "delimiter": ","},
}
_COMPRESSIONS: Mapping[str, Sequence[str]] = {
    "parquet": ("snappy", "gzip", "zstd", "lz4", "brotli", *_NONE),
    "json": ("gzip", *_NONE),
    "csv": ("gzip", *_NONE),
}

# Not what numbers, dates, times, true, false, NaN and Infinity are made of; not what quotes,
# escapes or ends.
_DELIMITER = re.compile(r"[\x01-\x09\x0b\x0c\x0e-\x1f!#-*,/;-@\[\]-`{-~]")

# A type's own word, not the name of a struct's field (which a colon follows).
_UNWRITABLE = re.compile(
    r"(?:^|[<,:])\s*"
    r"(interval[\w ]*|void|null|variant|geometry[^,>]*|geography[^,>]*|time\(\d\)|struct<>)"
    r"(?![\w:])"
)
_NESTED = re.compile(r"^(struct|array|map)<")
_PARTITION_TYPE = re.compile(
    r"(string|varchar\(|char\(|boolean|tinyint|smallint|int$|bigint|date$|decimal)",
    re.ASCII,
)


class Encoder(Protocol):
    """Turns tables into the bytes of one file. ``close`` ends the file, not the stream. Both raise
    OSError.
    """

    def write(self, table: pa.Table) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class FileFormat:
    """A format with all of its options. ``name`` is parquet, json or csv."""

    name: str
    options: tuple[tuple[str, Any], ...]

    @staticmethod
    def of(name: str, options: Mapping[str, Any] | None, where: str) -> FileFormat:
        """Raises ``SettingRefused`` for an unknown format, option or value."""
        given: Any = options or {}
        known = _OPTIONS.get(name) if isinstance(name, str) else None
        if known is None:
            why = f"format={name!r} must be one of {', '.join(_OPTIONS)}."
        elif not isinstance(given, Mapping):
            why = f"options={options!r} must be a dictionary."
        else:
            chosen = {**known, **given}
            chosen["compression"] = str(chosen["compression"] or "none").lower()
            if not (why := _wrong(name, chosen)):
                return FileFormat(name, tuple(sorted(chosen.items())))
        raise SettingRefused("FILES_ARGUMENT", f"{where}: {why}")

    @property
    def extension(self) -> str:
        zipped = self.name != "parquet" and self._option("compression") == "gzip"
        return f"{self.name}.gz" if zipped else self.name

    def check_columns(self, columns: Sequence[tuple[str, str]], where: str) -> None:
        """``columns`` are those that go into the files, with Spark's simple type strings.

        Raises:
            FrameRefused: a type that these files cannot hold.
        """
        for name, kind in columns:
            found = _UNWRITABLE.search(kind)
            if found:
                raise FrameRefused(
                    "FILES_TYPE",
                    f"{where}: the column {name!r} has the type {kind}, and {self.name} files that "
                    f"every reader understands hold no {found[1].strip()}. Cast it or drop it "
                    "before the sink.",
                )
            if self.name == "csv" and (kind == "binary" or _NESTED.match(kind)):
                raise FrameRefused(
                    "FILES_TYPE",
                    f"{where}: the column {name!r} has the type {kind}, which CSV cannot hold. "
                    "Make it text (to_json, base64), select its fields, or write Parquet or JSON.",
                )

    def encoder(self, stream: Any, schema: pa.Schema) -> Encoder:
        """An encoder of one file with these columns, onto a binary stream."""
        compression = self._option("compression")
        if self.name == "parquet":
            level = self._option("compression_level")
            return ParquetEncoder(stream, schema, compression, level)
        is_zipped = compression == "gzip"
        if self.name == "json":
            return LinesEncoder(stream, b"", None, is_zipped=is_zipped)
        delimiter = self._option("delimiter")
        header = csv_header(schema.names, delimiter) if self._option("header") else b""
        return LinesEncoder(stream, header, delimiter, is_zipped=is_zipped)

    def _option(self, name: str) -> Any:
        return dict(self.options)[name]


def _counted(schema: pa.Schema) -> list[str]:
    """The columns that get statistics, as paths. Of floats Arrow notes the least and the greatest
    without NaN, and readers who ask for more than the greatest leave the rows with NaN out.
    """
    paths: dict[bool, set[str]] = {True: set(), False: set()}

    def add(fields: Iterable[pa.Field], above: str) -> None:
        for field in fields:
            path = f"{above}{field.name}"
            if pa.types.is_struct(field.type):
                add(field.type, f"{path}.")
            elif not pa.types.is_nested(field.type):
                paths[pa.types.is_floating(field.type)].add(path)

    add(schema, "")
    return sorted(paths[False] - paths[True])


class ParquetEncoder:
    """One row group for each table that is written."""

    def __init__(self, stream: Any, schema: pa.Schema, compression: str, level: int | None) -> None:
        codec = "none" if compression in _NONE else compression
        # Without Arrow's own schema beside Parquet's: an instant's type has the name of Spark's
        # session time zone there, and pandas refuses what Python does not know, such as GMT+2.
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            compression=codec,
            compression_level=level,
            store_schema=False,
            write_statistics=_counted(schema),
        )

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def close(self) -> None:
        self._writer.close()


class LinesEncoder:
    """A line for each row, in UTF-8: a JSON object, or CSV with a ``delimiter``."""

    def __init__(
        self, stream: Any, header: bytes, delimiter: str | None, *, is_zipped: bool
    ) -> None:
        # Its end is not yet the end of the file.
        self._zipped = GzipFile(fileobj=stream, mode="wb", mtime=0) if is_zipped else None
        self._stream = self._zipped or stream
        self._delimiter = delimiter
        if header:
            self._stream.write(header)

    def write(self, table: pa.Table) -> None:
        for rows in table.to_batches():
            if self._delimiter is None:
                lines = json_texts(rows.to_struct_array())
            else:
                lines = csv_lines(rows, self._delimiter)
            self._stream.write(data_of(concatenated(lines, "\n")))

    def close(self) -> None:
        if self._zipped is not None:
            self._zipped.close()


def _wrong(name: str, options: Mapping[str, Any]) -> str:
    """What is wrong with the options of a format; empty: nothing."""
    if unknown := sorted(options.keys() - _OPTIONS[name].keys()):
        return (
            f"{name} files have no option {', '.join(map(repr, unknown))}; there are "
            f"{', '.join(_OPTIONS[name])}."
        )
    if options["compression"] not in _COMPRESSIONS[name]:
        taken = ", ".join(_COMPRESSIONS[name])
        return f"compression={options['compression']!r} is none that {name} files take: {taken}."
    if not isinstance(options.get("header", True), bool):
        return f"the option header={options['header']!r} must be True or False."
    delimiter = options.get("delimiter", ",")
    if not isinstance(delimiter, str) or not _DELIMITER.fullmatch(delimiter):
        return (
            f"the option delimiter={delimiter!r} must be one ASCII character that stands in no "
            "number, date or time and has no other meaning to readers: a comma, ';', '|' or a "
            'tab, say; not a letter, a digit, a blank, a line break, NUL, nor any of + - . : " \\'
        )
    level = options.get("compression_level")
    if level is None:
        return ""
    if type(level) is not int:
        return f"the option compression_level={level!r} must be a whole number."
    try:
        pa.Codec(codec := options["compression"], compression_level=level)
    except (ValueError, OverflowError, OSError) as error:
        return f"compression={codec!r} takes no compression_level={level} ({error})."
    return ""


def check_frame(
    columns: Sequence[tuple[str, str]], partition_by: Sequence[str], where: str
) -> None:
    """What every format asks: distinct names, partition columns that exist and can name a folder.

    Raises:
        FrameRefused: one of these is not so.
    """
    kinds = dict(columns)
    seen: dict[str, str] = {}
    for name, _ in columns:
        other = seen.setdefault(name.lower(), name)
        if other is not name or [n for n, _ in columns].count(name) > 1:
            raise FrameRefused(
                "FILES_COLUMNS",
                f"{where}: the columns {other!r} and {name!r} differ in case only, or not at all, "
                "and readers like Spark take them for one. Rename one of them.",
            )
    for name in partition_by:
        if name not in kinds:
            raise FrameRefused(
                "FILES_COLUMNS",
                f"{where}: partition_by names the column {name!r}, and the frame has "
                f"{', '.join(map(repr, kinds))}.",
            )
        if not _PARTITION_TYPE.match(kinds[name]):
            raise FrameRefused(
                "FILES_COLUMNS",
                f"{where}: the partition column {name!r} has the type {kinds[name]}; a folder is "
                "named by a string, boolean, integer, decimal or date. Cast it (of a time to_date,"
                " or date_format).",
            )
        if len(escape(name).encode()) + len("=0") > NAME_BYTES_MAX:
            raise FrameRefused(
                "FILES_COLUMNS",
                f"{where}: the partition column {name[:60]!r}... has so long a name that no folder "
                f"can be called by it ({NAME_BYTES_MAX} bytes, with the value). Rename it.",
            )
    if len(kinds) == len(set(partition_by)):
        raise FrameRefused(
            "FILES_COLUMNS",
            f"{where}: all columns are partition columns, so nothing is left to write into the "
            "files.",
        )


# ---- CSV -------------------------------------------------------------------------------------


def csv_header(names: Sequence[str], delimiter: str) -> bytes:
    """The first line of a file."""
    doubled = (name.replace('"', '""') for name in names)
    return (delimiter.join(f'"{name}"' for name in doubled) + "\n").encode()


def csv_lines(rows: pa.RecordBatch, delimiter: str) -> pa.Array:
    """Rows as CSV after RFC 4180, whole columns at a time: each row, without the end of its line.

    Texts are quoted, null is an empty field, the empty text is ``""``. NaN and the infinities are
    spelled as Spark spells them, decimals have no exponent, timestamps are those of JSON. What has
    no such text (``writer.Refusal``) is not among the rows.
    """
    return without_nulls(*map(_csv_values, rows.columns), between=delimiter)


def _csv_values(values: pa.Array) -> pa.Array:
    """Each value as a field, null where it is null."""
    kind = values.type
    if is_text(kind):
        return concatenated('"', pc.replace_substring(values.cast(TEXT), '"', '""'), '"')
    if pa.types.is_floating(kind):
        return floats(values, "")
    if pa.types.is_decimal(kind):
        return decimals(values)
    if pa.types.is_date(kind):
        return times.texts(values).cast(TEXT)
    if pa.types.is_timestamp(kind):
        return instants(values)
    return values.cast(TEXT)
