"""A file sink without Spark, and readers of what it has published that know nothing of it: raw
values come back.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from exactum.files.sink import FileSink
from tests.kit.abuse.kinds import (
    DAYS_MAX,
    DAYS_MIN,
    MICROS_PER_DAY,
    Kind,
    Raw,
    from_arrow,
    has_bad_text,
    scalars,
)
from tests.kit.abuse.texts import STRICT, of_json, of_text
from tests.kit.opened_sink import OpenedSink

HOUR = 3_600_000_000


@dataclass
class FileTarget:
    """One run of a query with one file sink: batches in, files out. ``refused`` has each refused
    row's reason.
    """

    sink: FileSink
    refused: list[tuple[Any, str]] = field(default_factory=list)

    def write(self, batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch]) -> int:
        """All batches in one epoch of one task, decided and committed. Returns how many rows
        stand.
        """
        opened = OpenedSink(self.sink)
        writer = opened.writer()
        for batch in batches:
            rejection = writer.write(batch)
            if rejection is not None:
                assert rejection.rows.num_rows == len(rejection.reasons) > 0
                assert rejection.rows.schema == batch.schema
                self.refused += [
                    (rejection.rows.slice(n, 1), why) for n, why in enumerate(rejection.reasons)
                ]
        one = writer.prepare()
        if one is None:
            return 0
        permit = opened.permit(opened.participant.verify([one]))
        assert opened.commit(permit).committed == permit.record.prepared
        assert opened.participant.list_open() == []
        return int(one.rows)


def refuses(format_: str, kinds: Sequence[Kind], row: Sequence[Raw]) -> bool:
    """Whether a row has no place in such files, by the words of the documentation."""
    if any(map(has_bad_text, kinds, row)):
        return True
    if format_ == "parquet":
        return False
    if format_ == "csv" and len(row) == 1 and row[0] is None:
        return True
    if format_ == "csv" and any(k.is_text and v == b"\0" for k, v in zip(kinds, row, strict=True)):
        return True
    return not all(
        _has_text(k, v)
        for kind, value in zip(kinds, row, strict=True)
        for k, v in scalars(kind, value)
    )


def _has_text(kind: Kind, value: Raw) -> bool:
    if kind.name == "date":
        return DAYS_MIN <= value <= DAYS_MAX
    if not kind.name.startswith("timestamp"):
        return True
    early, late = (14 * HOUR, 12 * HOUR) if kind.name == "timestamp" else (0, 0)
    return DAYS_MIN * MICROS_PER_DAY - early <= value < (DAYS_MAX + 1) * MICROS_PER_DAY + late


# ---- readers ---------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.rglob("part-*") if not p.relative_to(folder).parts[0].startswith(".")
    )


def read_parquet(path: Path, kinds: Sequence[Kind]) -> list[tuple[Raw, ...]]:
    """By pyarrow, without a schema."""
    table = pq.ParquetFile(path).read()
    columns = [from_arrow(k, table.column(n)) for n, k in enumerate(kinds)]
    return list(zip(*columns, strict=True))


def read_json(path: Path, names: Sequence[str], kinds: Sequence[Kind]) -> list[tuple[Raw, ...]]:
    """By Python's json, which takes no constant that JSON does not have, and no name twice."""
    rows = []
    for line in path.read_bytes().decode().split("\n")[:-1]:
        found = json.loads(line, **STRICT)
        assert found.keys() <= set(names)
        rows.append(tuple(of_json(k, found.get(n)) for n, k in zip(names, kinds, strict=True)))
    return rows


def read_csv(path: Path, names: Sequence[str], kinds: Sequence[Kind]) -> list[tuple[Raw, ...]]:
    """By pyarrow, which tells null from the empty text, and by Python's csv, which must find the
    same texts.
    """
    plain = pa.csv.ReadOptions(autogenerate_column_names=True, block_size=1 << 26)
    parse = pa.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=True)
    types = {f"f{n}": pa.string() for n in range(len(names))}
    convert = pa.csv.ConvertOptions(
        column_types=types,
        strings_can_be_null=True,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )
    table = pa.csv.read_csv(path, plain, parse, convert)
    rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
    csv.field_size_limit(1 << 26)
    with path.open(newline="") as file:
        seen = list(csv.reader(file, strict=True))
    assert seen == [["" if text is None else text for text in row] for row in rows]
    assert rows[0] == tuple(names)
    return [
        tuple(None if t is None else of_text(k, t) for k, t in zip(kinds, row, strict=True))
        for row in rows[1:]
    ]
