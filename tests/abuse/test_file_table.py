"""The table of types in docs/reference/types.md, cell by cell: what it calls exact is read back by Spark
itself.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from exactum.errors import FrameRefused
from exactum.files.sink import FileSink
from tests.kit.abuse.file_target import FileTarget, refuses
from tests.kit.abuse.frames import (
    ALL,
    DATE,
    DOUBLE,
    INT,
    RARE,
    REFUSED_EVERYWHERE,
    STRING,
    Frame,
    bulk,
)
from tests.kit.abuse.kinds import Kind, Raw, from_arrow, map_, same, scalars, struct_
from tests.kit.errors import raised

FORMATS = ("parquet", "json", "csv")
TARGETS = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
ZONE = "America/New_York"
READ = {
    "parquet": {},
    "json": {},
    "csv": {"header": True, "multiLine": True, "escape": '"', "nullValue": "\0"},
}
"""As the page says that Spark reads them."""


def cells() -> Iterator[tuple[str, str, str]]:
    """Type, format and what the page says of the two."""
    lines = (
        TARGETS.read_text().partition("| Spark's type | Parquet | JSON | CSV |")[2].splitlines()[2:]
    )
    for line in lines:
        if not line.startswith("|"):
            break
        types, *said = (cell.strip() for cell in line.strip("|").split("|"))
        for kind in re.findall(r"`([^`]+)`", types):
            yield from ((kind, format_, text) for format_, text in zip(FORMATS, said, strict=True))


CELLS = list(cells())
KINDS = {kind.simple: kind for kind in (*ALL, map_(STRING, DOUBLE), struct_({"a": INT, "b": DATE}))}


def test_the_page_has_every_type() -> None:
    """Those that are written, and those that never are."""
    named = {kind.partition("<")[0].partition("(")[0] for kind, _, _ in CELLS}
    wanted = {kind.name.partition("(")[0] for kind in ALL if kind is not RARE[-1]}
    wanted |= {k.partition("(")[0] for k in REFUSED_EVERYWHERE if k != "calendar_interval"}
    assert wanted <= named


@pytest.mark.parametrize(
    ("kind", "format_"), [(k, f) for k, f, said in CELLS if said.startswith("refused")]
)
def test_what_the_page_calls_refused(kind: str, format_: str) -> None:
    """With the frame, before the first row."""
    with raised(FrameRefused, "FILES_TYPE", "'c'"):
        FileSink("/tmp/x", format=format_).check_columns([("id", "bigint"), ("c", kind)])


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.unset("spark.sql.session.timeZone")


NAME_CHARACTERS_MAX = 50_000
"""Of a field's name in JSON: longer ones Spark's parser does not read (Jackson's
StreamReadConstraints), as docs/files.md says.
"""


def unread(format_: str, kinds: Sequence[Kind], row: tuple[Raw, ...]) -> bool:
    """Whether Spark's reader takes the line for a corrupt one, for a map has so long a text."""
    in_maps = [
        scalar
        for kind, value in zip(kinds, row, strict=True)
        if kind.name == "map"
        for scalar in scalars(kind, value)
    ]
    texts = [value for _, value in in_maps if isinstance(value, bytes)]
    return format_ == "json" and any(len(text) > NAME_CHARACTERS_MAX for text in texts)


@pytest.mark.variants(1)
@pytest.mark.spark
@pytest.mark.parametrize("format_", FORMATS)
def test_spark_reads_what_the_page_calls_exact(
    session: SparkSession, tmp_path: Path, format_: str
) -> None:
    """All types of the format in one frame, half of the values odd; Spark's own reader finds
    every value again.
    """
    kinds = [KINDS[k] for k, f, said in CELLS if f == format_ and not said.startswith("refused")]
    names = [f"c{n}" for n in range(len(kinds))]
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    wanted: dict[str, tuple[Raw, ...]] = {}
    frames = []
    for number in range(300):  # row by row, so that one odd value keeps no others out
        row = bulk(names, kinds, 1, rng, edge_share=0.05)
        if not refuses(format_, kinds, row.row(0)) and not unread(format_, kinds, row.row(0)):
            wanted[str(number)] = row.row(0)
            values = ([str(number).encode()], *row.values)
            frames.append(Frame(("id", *names), (Kind("string"), *kinds), values, 1))
    folder = tmp_path / uuid.uuid4().hex
    target = FileTarget(FileSink(folder, format=format_))
    target.write(frame.batch(ZONE) for frame in frames)
    assert target.refused == []
    schema = ", ".join(
        ["id string", *(f"{n} {k.simple}" for n, k in zip(names, kinds, strict=True))]
    )
    read = (
        session.read.options(**READ[format_])
        .schema(schema)
        .format(format_)
        .load(str(folder))
        .toArrow()
    )
    ids = [v.decode() for v in from_arrow(Kind("string"), read.column(0))]
    assert sorted(ids) == sorted(wanted)
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        for number, value in zip(ids, from_arrow(kind, read.column(place + 1)), strict=True):
            there = wanted[number][place]
            assert same(kind, value, there), f"{name} ({kind}): {value!r} instead of {there!r}"
