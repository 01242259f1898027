"""Many rows of every type into a target that is sent to, and into tables of a lakehouse: each is there
as it was, or put aside with its reason. (Tables of a server, files and Kafka: beside this.)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exactum.custom.write_ahead import WriteAheadSink
from exactum.protocol.sink import Sink
from exactum.storage.folder import Folder
from tests.kit.abuse.frames import BIGINT, NESTED, RARE, SCALARS, Frame, bulk, seed_of_run
from tests.kit.abuse.kinds import Kind, from_arrow, has_bad_text
from tests.kit.lake.iceberg import TABLE, Lake
from tests.kit.lake.tables import Delta
from tests.kit.opened_sink import OpenedSink

pytestmark = pytest.mark.slow

ZONE = "America/New_York"
SEED = seed_of_run()


class Sent:
    """A target without transactions, which keeps what comes."""

    kinds = (*SCALARS, *NESTED, *RARE)
    takes_any_text = True

    def __init__(self, folder: Path) -> None:
        self._came: list[pa.RecordBatch] = []

    def sink(self) -> Sink:
        return WriteAheadSink(lambda batch, key: self._came.append(batch), name="api")

    def read(self) -> pa.Table:
        return pa.Table.from_batches(self._came)

    def empty(self) -> None:
        self._came.clear()


class InDelta:
    kinds = (*SCALARS, *NESTED)
    takes_any_text = False

    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, 0
        self.empty()

    def sink(self) -> Sink:
        return self._table.sink()

    def read(self) -> pa.Table:
        return self._table.table.to_pyarrow_table()

    def empty(self) -> None:
        self._count += 1
        self._table = Delta(self._folder / str(self._count))


class InIceberg:
    """Which has no whole number of less than 32 bits."""

    kinds = tuple(
        kind for kind in InDelta.kinds if not any(n in kind.simple for n in ("tiny", "small"))
    )
    takes_any_text = False

    def __init__(self, folder: Path) -> None:
        self._lake = Lake(folder / "lake")
        self.close = self._lake.close

    def sink(self) -> Sink:
        return self._lake.sink()

    def read(self) -> pa.Table:
        """The files that the table names, by pyarrow: pyiceberg's own scan makes a null list or
        map of structs an empty one.
        """
        tasks = self._lake.table.scan().plan_files()
        paths = [task.file.file_path.removeprefix("file://") for task in tasks]
        return pa.concat_tables([pq.ParquetFile(path).read() for path in paths])

    def empty(self) -> None:
        self._lake.catalog.purge_table(TABLE)


Target = Sent | InDelta | InIceberg
TARGETS: dict[str, Callable[[Path], Target]] = {
    "write-ahead": Sent,
    "delta": InDelta,
    "iceberg": InIceberg,
}


def check(target: Target, frame: Frame, size: int, staging: Path) -> tuple[int, int]:
    """Write a frame in tasks of so many rows, read it with others' readers, and compare every value.
    Its first column has the number of the row. Returns rows stored and put aside.
    """
    query = OpenedSink(target.sink(), frame.columns, staging=Folder(staging))
    query.write(*frame.batches(size, ZONE))
    assert not query.participant.list_open()
    expected, aside = [], []
    for row in map(frame.row, range(frame.count)):
        is_bad = not target.takes_any_text and any(map(has_bad_text, frame.kinds, row))
        (aside if is_bad else expected).append(row)
    there = target.read().select(frame.names)
    columns = [from_arrow(k, there.column(n)) for n, k in enumerate(frame.kinds)]
    found = sorted(zip(*columns, strict=True), key=lambda row: row[0])
    assert [row[0] for row in found] == [row[0] for row in expected]
    frame.check(found, expected)
    refused = [
        (rejection.rows.column("id")[n].as_py(), why)
        for rejection in query.rejections
        for n, why in enumerate(rejection.reasons)
    ]
    assert sorted(number for number, _ in refused) == [row[0] for row in aside]
    assert all("UTF-8" in why for _, why in refused)
    query.participant.close()
    return len(found), len(aside)


LONG = (pytest.mark.deep, pytest.mark.timeout(1_800))


@pytest.mark.parametrize(
    ("rows", "count", "columns"), [(120, 3, 16), pytest.param(10_000, 10, 12, marks=LONG)]
)
@pytest.mark.parametrize("kind", TARGETS)
def test_many_rows_of_every_type(
    kind: str, rows: int, count: int, columns: int, tmp_path: Path
) -> None:
    """In ``count`` frames, every type in some of them: each row is read back to the last bit, or put
    aside for the text that is none.
    """
    rng = random.Random(SEED)
    target = TARGETS[kind](tmp_path)
    kinds = list(target.kinds)
    rng.shuffle(kinds)
    names = [f"c{n}" for n in range(columns)]
    stored = aside = 0
    for number in range(count):
        if number:
            target.empty()
        chosen: list[Kind] = [kinds[(number * columns + n) % len(kinds)] for n in range(columns)]
        made: Any = bulk(names, chosen, rows, rng, edge_share=0.005)
        numbered = [*range(rows)]
        frame = Frame(("id", *names), (BIGINT, *chosen), (numbered, *made.values), rows)
        counts = check(target, frame, rows // 3, tmp_path / f"staging-{number}")
        stored, aside = stored + counts[0], aside + counts[1]
    print(f"{kind}: {stored} rows stored, {aside} put aside, 0 altered; EXACTUM_SEED={SEED}")
    assert stored > rows * count // 2
    if rows * count >= 50_000:  # the few rows of a short run may all be good
        assert (aside > 0) is not target.takes_any_text
    if isinstance(target, InIceberg):
        target.close()
