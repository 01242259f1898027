"""Any frame into files: each row is read back as it was by readers of their own, or put aside
with its reason.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactum.errors import FrameRefused
from exactum.files.sink import FileSink
from tests.kit.abuse.file_target import (
    FileTarget,
    files_of,
    read_csv,
    read_json,
    read_parquet,
    refuses,
)
from tests.kit.abuse.frames import (
    BIGINT,
    NESTED,
    RARE,
    SCALARS,
    STRING,
    Frame,
    bulk,
    frames,
    seed_of_run,
)
from tests.kit.abuse.kinds import (
    DAYS_MAX,
    DAYS_MIN,
    Kind,
    Raw,
    from_arrow,
    is_utf8,
    same,
)
from tests.kit.abuse.texts import of_text
from tests.kit.memory import memory_folder

pytestmark = pytest.mark.slow

ZONE = "America/New_York"
FLAT = tuple(k for k in SCALARS if k.name != "binary")
TAKEN = {"parquet": (*SCALARS, *NESTED), "json": (*SCALARS, *NESTED), "csv": FLAT}
FORMATS = tuple(TAKEN)
SEED = seed_of_run()


def read(
    path: Path, format_: str, names: Sequence[str], kinds: Sequence[Kind]
) -> list[tuple[Raw, ...]]:
    if format_ == "parquet":
        return read_parquet(path, kinds)
    return read_json(path, names, kinds) if format_ == "json" else read_csv(path, names, kinds)


def check(folder: Path, format_: str, frame: Frame, size: int) -> tuple[int, int]:
    """Write a frame, read it with others' readers, and compare every value. Returns rows stored
    and put aside.
    """
    target = FileTarget(FileSink(folder, format=format_))
    target.sink.check_columns(frame.columns)
    stored = target.write(frame.batches(size, ZONE))
    found = [
        row for path in files_of(folder) for row in read(path, format_, frame.names, frame.kinds)
    ]
    expected: list[tuple[Raw, ...]] = []
    aside: list[tuple[Raw, ...]] = []
    for row in map(frame.row, range(frame.count)):
        (aside if refuses(format_, frame.kinds, row) else expected).append(row)
    assert len(found) == len(expected) == stored
    frame.check(found, expected)
    for (row, why), other in zip(target.refused, aside, strict=True):
        kept = [from_arrow(k, row.column(n))[0] for n, k in enumerate(frame.kinds)]
        assert all(map(same, frame.kinds, kept, other))
        assert re.search(r"column (['\"]).*\1 (at .* )?is ", why), why
    return len(found), len(aside)


LONG = (pytest.mark.deep, pytest.mark.timeout(1_800))


@pytest.mark.parametrize(
    ("rows", "count", "columns"), [(250, 4, 13), pytest.param(10_000, 10, 12, marks=LONG)]
)
@pytest.mark.parametrize("format_", FORMATS)
def test_many_rows_of_every_type(
    format_: str, rows: int, count: int, columns: int, memory: Path
) -> None:
    """In ``count`` frames, every type in some of them: each row is read back to the last bit, or
    put aside for a reason that names the column.
    """
    rng = random.Random(SEED)
    kinds = list(TAKEN[format_])
    rng.shuffle(kinds)
    share = 0.01 if format_ == "csv" else 0.002
    stored = aside = 0
    for number in range(count):
        chosen = [kinds[(number * columns + n) % len(kinds)] for n in range(columns)]
        frame = bulk([f"c{n}" for n in range(columns)], chosen, rows, rng, edge_share=share)
        counts = check(memory / str(number), format_, frame, 3_000)
        stored, aside = stored + counts[0], aside + counts[1]
    print(f"{format_}: {stored} rows stored, {aside} put aside, 0 altered; EXACTUM_SEED={SEED}")
    assert stored > rows * count // 10
    assert aside > 0 or rows * count < 50_000, "the few rows of a short run may all be good"


@pytest.mark.parametrize("format_", FORMATS)
@settings(max_examples=50)
@given(data=st.data())
def test_any_frame(format_: str, data: st.DataObject) -> None:
    """Any columns of any type under any names: refused before the first row, or each row stored
    or put aside.
    """
    frame = data.draw(frames((*TAKEN[format_], *RARE), duplicates=data.draw(st.booleans())))
    with memory_folder() as folder:
        lowered = [n.lower() for n in frame.names]
        foreign = {k.name for k in frame.kinds} - {k.name for k in TAKEN[format_]} - {RARE[-1].name}
        if foreign or not lowered or len(set(lowered)) < len(lowered):
            with pytest.raises(FrameRefused):
                FileSink(folder, format=format_).check_columns(frame.columns)
        else:
            check(folder, format_, frame, data.draw(st.integers(1, 12)))


# ---- partitions ------------------------------------------------------------------------------

PARTS = tuple(k for k in FLAT if k.name not in ("float", "double", "timestamp", "timestamp_ntz"))
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def folder_says(kind: Kind, folder: str) -> Raw:
    """The value that a folder's name tells a reader of the zone's clock."""
    name, _, value = folder.partition("=")
    assert name == "part"
    text = unquote(value, errors="strict")
    if text == DEFAULT:
        return None
    return of_text(kind, text)


def names_no_folder(kind: Kind, value: Raw) -> bool:
    """Whether a value can be no partition, by the words of the documentation."""
    if value is None:
        return False
    if kind.is_text:
        if not is_utf8(value) or value == DEFAULT.encode():
            return True
        escaped = sum(3 if c in ESCAPED else len(c.encode()) for c in value.decode())
        return len("part=") + escaped > 255
    if kind.name == "date":
        return not DAYS_MIN <= value <= DAYS_MAX
    return False


ESCAPED = set("\"#%'*/:=?\\\x7f{[]^") | set(map(chr, range(0x20)))


@pytest.mark.parametrize("kind", [*PARTS, RARE[-1]], ids=str)
def test_any_value_as_a_partition(kind: Kind, memory: Path) -> None:
    """The folder's name says the value, or the row is put aside; the empty text is null, as in
    Spark.
    """
    values = [
        None if v == b"" else v
        for v in bulk(["part"], [kind], 300, random.Random(SEED), edge_share=0.5).values[0]
    ]
    frame = Frame(("id", "part"), (BIGINT, kind), (list(range(300)), values), 300)
    target = FileTarget(FileSink(memory, format="parquet", partition_by="part"))
    target.sink.check_columns(frame.columns)
    target.write(frame.batches(100, ZONE))
    found = {row[0]: p.parent.name for p in files_of(memory) for row in read_parquet(p, [BIGINT])}
    for number, value in enumerate(values):
        assert (number not in found) == names_no_folder(kind, value), (
            f"{value!r}; EXACTUM_SEED={SEED}"
        )
        if number in found:
            told = folder_says(kind, found[number])
            assert same(kind, told, value), f"{found[number]!r} for {value!r}; EXACTUM_SEED={SEED}"
    assert len(target.refused) == 300 - len(found)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_text_of_any_letter_stands_beside_others(format_: str, memory: Path) -> None:
    """Each letter below U+3000 in a text of its own, and all others in long ones."""
    letters = [chr(n) for n in range(0x3000)] + [
        "".join(map(chr, [*range(0x3000, 0xD800), *range(0xE000, 0x110000)]))
    ]
    texts = [letter.encode() for letter in letters]
    frame = Frame(("id", "text"), (BIGINT, STRING), (list(range(len(texts))), texts), len(texts))
    aside = 1 if format_ == "csv" else 0  # U+0000 alone
    assert check(memory, format_, frame, 5_000) == (len(texts) - aside, aside)
