"""Rows made to break the PostgreSQL sink: each is in the table exactly, or refused with its key,
column and reason.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings

from exactum.errors import FrameRefused, SettingRefused
from exactum.sql.postgres.rows import binary_rows
from tests.kit.abuse.frames import SCALARS, Frame, draw, frames
from tests.kit.abuse.kinds import Kind, Raw, has_bad_text
from tests.kit.abuse.postgres_columns import cells, columns_of
from tests.kit.abuse.postgres_oracle import canonical, found, holds, shown
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql.postgres_server import Database, database
from tests.kit.sql.sql_epochs import Query

__all__ = ["database"]

pytestmark = pytest.mark.postgres

_queries = itertools.count(1)
SEED = int(os.environ.get("EXACTUM_SEED", random.SystemRandom().randrange(2**32)))
SETTINGS: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"mode": "upsert", "key": "n"},
}
BATCH_ROWS = 1_000
TASK_BATCHES = 3


def play(
    database: Database, pairs: list[tuple[Kind, str]], values: list[Raw], way: str
) -> Counter[str]:
    """Write row n with ``values[n]`` in column n modulo the number of pairs and null elsewhere;
    compare every row.
    """
    names = [f"c{place}" for place in range(len(pairs))]
    columns = ", ".join(f"{name} {type_}" for name, (_, type_) in zip(names, pairs, strict=True))
    table = database.table(f"n integer PRIMARY KEY, {columns}")
    count, width = len(values), len(pairs)
    held = tuple(
        [value if n % width == place else None for n, value in enumerate(values)]
        for place in range(width)
    )
    frame = Frame(
        ("n", *names),
        (Kind("int"), *(kind for kind, _ in pairs)),
        (list(range(count)), *held),
        count,
    )
    batches = list(frame.batches(BATCH_ROWS, "America/New_York"))
    tasks = [
        batches[start : start + TASK_BATCHES] for start in range(0, len(batches), TASK_BATCHES)
    ]
    query = Query(
        lambda: database.sink(table, **SETTINGS[way]),
        frame.columns,
        lambda batch_id: tasks,
    )
    rejections = query.run(0)
    assert query.staged() == []
    refused = {
        n: why
        for r in rejections
        for n, why in zip(r.rows.column("n").to_pylist(), r.reasons, strict=True)
    }
    assert sum(r.rows.num_rows for r in rejections) == len(refused)
    expressions = ", ".join(
        shown(type_, name) for name, (_, type_) in zip(names, pairs, strict=True)
    )
    stored = {row[0]: row[1:] for row in database.rows(f"SELECT n, {expressions} FROM {table}")}
    assert (
        stored.keys() | refused.keys() == set(range(count)) and not stored.keys() & refused.keys()
    )
    for n, value in enumerate(values):
        place = n % width
        kind, type_ = pairs[place]
        what = f"seed {SEED}, row {n}: {kind} {value!r} into {type_}"
        if not holds(kind, type_, value):
            assert n in refused, f"{what}: stored as {stored[n][place]!r}"
            assert refused[n].startswith(f"the row with n={n}: column {names[place]!r} ("), what
            continue
        assert n in stored, f"{what}: {refused[n]}"
        assert found(type_, stored[n][place]) == canonical(kind, type_, value), (
            f"{what}: {stored[n][place]!r}"
        )
        assert all(text is None for other, text in enumerate(stored[n]) if other != place), what
    return Counter(stored=len(stored), refused=len(refused), altered=0)


def odd_values(pairs: list[tuple[Kind, str]], count: int, edge_share: float) -> list[Raw]:
    rng = random.Random(SEED)
    return [draw(pairs[n % len(pairs)][0], rng, edge_share) for n in range(count)]


def test_rows_of_every_type(database: Database) -> None:
    """Half of them odd: every row is in its column to the bit, or comes back with its key and
    column.
    """
    pairs = cells(database)
    assert {kind for kind, _ in pairs} >= set(SCALARS)
    way = random.Random(SEED).choice(list(SETTINGS))
    counts = play(database, pairs, odd_values(pairs, 6_000, 0.5), way)
    print(f"PostgreSQL, {way}, seed {SEED}: {len(pairs)} pairs of types, {dict(counts)}")
    assert counts["stored"] > 1_000 and counts["refused"] > 500


def test_rows_of_types_that_go_in_binary(database: Database) -> None:
    """The same of those columns alone that have a binary form: beside one that has none, all go as
    text.
    """
    columns = columns_of(database)
    pairs = [
        (kind, type_)
        for kind, type_ in cells(database)
        if binary_rows([columns[type_]], [kind.arrow()], False) is not None
    ]
    assert len(pairs) > 25
    way = random.Random(SEED).choice(list(SETTINGS))
    counts = play(database, pairs, odd_values(pairs, 6_000, 0.5), way)
    print(f"PostgreSQL, {way}, seed {SEED}: {len(pairs)} binary pairs of types, {dict(counts)}")
    assert counts["stored"] > 1_000 and counts["refused"] > 500


@pytest.mark.deep
@pytest.mark.parametrize("way", SETTINGS)
def test_a_hundred_thousand_rows(database: Database, way: str) -> None:
    """The same at length, in every way that rows go."""
    pairs = cells(database)
    counts = play(database, pairs, odd_values(pairs, 100_000, 0.3), way)
    print(f"PostgreSQL, {way}, seed {SEED}: {len(pairs)} pairs of types, {dict(counts)}")


REFUSALS = (FrameRefused, SettingRefused)


@settings(max_examples=25)
@given(frame=frames(rows_max=6))
def test_frames_of_any_shape(postgres: LocalPostgres, frame: Frame) -> None:
    """Any names and types, no columns or no rows: refused before the first row, or each row is
    there or put aside.
    """
    database = Database(postgres)
    name = f"any_{next(_queries)}"
    try:
        query = Query(
            lambda: database.sink(name, create_table=True),
            frame.columns,
            lambda batch_id: [[frame.part(0, 2).batch(), frame.part(2, 9).batch()]],
        )
        try:
            driver = query.start()
        except REFUSALS:
            assert database.value("SELECT count(*) FROM pg_class WHERE relname = %s", (name,)) == 0
            return
        try:
            rows = driver.run(0).rows
        finally:
            driver.close()
        refused = sum(r.rows.num_rows for r in driver.write.rejections)
        assert database.value(f"SELECT count(*) FROM {name}") == rows == frame.count - refused
        for n, column in enumerate(frame.names):
            quoted = '"' + column.replace('"', '""') + '"'
            nulls = sum(value is None for value in frame.values[n])
            assert (
                database.value(
                    f"SELECT count(*) FROM {name} WHERE {quoted.replace('%', '%%')} IS NULL", ()
                )
                <= nulls
            )
        good = sum(not any(map(spoils, frame.kinds, frame.row(n))) for n in range(frame.count))
        assert rows == good, driver.write.rejections
        assert query.staged() == []
    finally:
        database.close()


def spoils(kind: Kind, value: Raw) -> bool:
    """Whether no column that ``create_table`` makes can hold the value."""
    if value is None:
        return False
    if kind.name == "array":
        return any(spoils(kind.of[0], v) for v in value) or has_bad_text(kind, value)
    wide = {
        "date": "date",
        "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
    }
    return not holds(
        kind,
        "jsonb" if kind.of else wide.get(kind.name, "text" if kind.is_text else "boolean"),
        value,
    )
