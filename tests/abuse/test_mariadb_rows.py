"""Odd rows into every type of MariaDB: each is in the table to the bit, or among the dead letters,
and nothing else is.

Written by the sink's own writers and a real coordinator, read by a plain client; what is right is
computed from the values alone (``mariadb_columns``).
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import event, given, settings

from exactum.errors import Refused
from tests.kit.abuse.frames import BIGINT, SCALARS, Frame, frames
from tests.kit.abuse.kinds import Kind, Raw
from tests.kit.abuse.mariadb_columns import REFUSED, TARGETS_AND_JSON, Target, exact
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import Query


@dataclass(frozen=True)
class Way:
    """By LOAD DATA or by INSERT, and how rows get into the table."""

    infile: bool = True
    key: str | None = None

    def query(self, database: Database, table: str, frame: Frame, **options: Any) -> Query:
        settings = {"connect": {"local_infile": self.infile}, **options}
        if self.key is not None:
            settings |= {"mode": "upsert", "key": self.key}
        return Query(
            lambda: database.sink(table, **settings),
            tuple(frame.columns),
            query_id=f"abuse-{table}",
        )


APPENDS = (Way(), Way(False))
WAYS = (*APPENDS, Way(key="id"))
PAIRS = [(target, kind) for target in TARGETS_AND_JSON for kind in target.kinds]
ROWS = 3_300
ROWS_DEEP = 100_000
COLUMNS = 4
ZONE = "America/New_York"


@pytest.fixture
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as made:
        yield made


@dataclass
class Tally:
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        c = self.counts
        return (
            f"seed {self.seed}: {c['rows']} rows, {c['stored']} stored, {c['put aside']} put "
            "aside, 0 altered"
        )


def test_every_type_takes_a_row_as_it_is_or_puts_it_aside(database: Database) -> None:
    """Of some thousand rows each is in the table exactly, or put aside with the column that
    cannot hold it.
    """
    everything(database, ROWS, seed_of_run())


@pytest.mark.deep
def test_a_hundred_thousand_rows(database: Database) -> None:
    """The same at length."""
    everything(database, ROWS_DEEP, seed_of_run())


def seed_of_run() -> int:
    return int(os.environ.get("EXACTUM_SEED") or random.SystemRandom().randrange(2**31))


def everything(database: Database, rows: int, seed: int) -> None:
    """All pairs of a column and a type of Spark, some in each table, until there were ``rows``
    rows.
    """
    print(f"EXACTUM_SEED={seed}")
    rng = random.Random(seed)
    tally = Tally(seed)
    pairs = rng.sample(PAIRS, len(PAIRS))
    groups = [pairs[n : n + COLUMNS] for n in range(0, len(pairs), COLUMNS)]
    for number, group in enumerate(groups):
        frame = drawn(group, rows // len(groups) + 1, rng)
        played(
            database,
            f"t{number}",
            [target for target, _ in group],
            frame,
            WAYS[number % len(WAYS)],
            tally,
        )
    print(tally)
    assert tally.counts["rows"] >= rows
    assert tally.counts["stored"] > rows / 4 and tally.counts["put aside"] > rows / 20


def drawn(group: list[tuple[Target, Kind]], count: int, rng: random.Random) -> Frame:
    values = tuple([target.draw(kind, rng) for _ in range(count)] for target, kind in group)
    names = ("id", *(f"c{n}" for n in range(len(group))))
    return Frame(
        names, (BIGINT, *(kind for _, kind in group)), (list(range(count)), *values), count
    )


def played(
    database: Database, table: str, targets: list[Target], frame: Frame, way: Way, tally: Tally
) -> None:
    """Write the frame as two epochs of two tasks, and compare what a plain client finds."""
    declared = ", ".join(f"c{n} {target.declared}" for n, target in enumerate(targets))
    database.run(f"CREATE TABLE {table} (id bigint PRIMARY KEY, {declared})")
    one = way.query(database, table, frame).start()
    try:
        quarter = -(-frame.count // 4)
        batches = [frame.part(n * quarter, quarter).batch(ZONE) for n in range(4)]
        one.epoch(0, batches[0], batches[1])
        one.epoch(1, batches[2], batches[3])
    finally:
        one.close()
    compare(database, table, targets, frame, reasons_of(one.rejections), tally)


def reasons_of(rejections: list[Any]) -> dict[int, str]:
    reasons: dict[int, str] = {}
    for rejection in rejections:
        ids = rejection.rows.column("id").to_pylist()
        assert len(ids) == len(rejection.reasons)
        for row, reason in zip(ids, rejection.reasons, strict=True):
            assert row not in reasons, f"row {row} was put aside twice"
            reasons[row] = reason
    return reasons


def compare(
    database: Database,
    table: str,
    targets: list[Target],
    frame: Frame,
    reasons: dict[int, str],
    tally: Tally,
) -> None:
    found = read(database, table, targets)
    assert len(found) + len(reasons) == frame.count, "a row is missing, or there are too many"
    for row in range(frame.count):
        values = frame.row(row)[1:]
        readings = [
            None if raw is None else t.reading(raw) for t, raw in zip(targets, values, strict=True)
        ]
        seen = found.get(row)
        told = f"seed {tally.seed}, {table}, row {row}: {described(targets, frame, values)}"
        tally.counts["rows"] += 1
        if seen is None:
            reason = reasons[row]
            tally.counts["put aside"] += 1
            guilty = [
                f"'c{n}'" for n, r in enumerate(readings) if r is REFUSED or isinstance(r, tuple)
            ]
            assert any(name in reason for name in guilty), (
                f"{told}: put aside without need: {reason}"
            )
            continue
        assert row not in reasons, f"{told}: both stored and put aside"
        tally.counts["stored"] += 1
        wanted = [r[1] if isinstance(r, tuple) else r for r in readings]
        assert REFUSED not in wanted, f"{told}: stored as {seen}, and cannot be held: {readings}"
        assert seen == wanted, f"{told}: reads {seen} for {wanted}"


def described(targets: list[Target], frame: Frame, values: tuple[Raw, ...]) -> str:
    parts = zip(targets, frame.kinds[1:], values, strict=True)
    return "; ".join(
        f"{str(raw)[:200]} ({kind} into {target.declared})" for target, kind, raw in parts
    )


def read(database: Database, table: str, targets: list[Target]) -> dict[int, list[Any]]:
    columns = ", ".join(target.read.format(c=f"c{n}") for n, target in enumerate(targets))
    found: dict[int, list[Any]] = {}
    for number, *values in database.run(f"SELECT id, {columns} FROM {table}"):
        assert number not in found
        found[number] = [
            None if v is None else t.seen(v) for t, v in zip(targets, values, strict=True)
        ]
    return found


CREATED = {
    "boolean": "tinyint", "tinyint": "tinyint", "smallint": "smallint", "int": "int", "bigint": "bigint",
    "float": "float", "double": "double", "string": "longtext CHARACTER "
                                                    "SET utf8mb4", "binary": "longblob",
    "date": "date", "timestamp": "datetime(6)", "timestamp_ntz": "datetime(6)",
}  # fmt: skip
"""The column that ``create_table`` makes of each type, decimals apart."""
_tables = itertools.count(1)


@settings(max_examples=60)
@given(
    frame=st.one_of(
        frames(columns_max=4, rows_max=8),
        frames(SCALARS, columns_min=1, columns_max=6, rows_max=8, duplicates=False),
    ),
    way=st.sampled_from(APPENDS),
)
def test_frames_of_any_shape(shared: Database, frame: Frame, way: Way) -> None:
    """Any names and types, no columns or no rows: refused before the first row, or each row is
    there or put aside.
    """
    table = f"shape{next(_tables)}"
    try:
        one = way.query(shared, table, frame, create_table=True).start()
    except Refused:
        assert not any(
            f == table and shared.run(f"SELECT 1 FROM {f}") for f in shared.tables("shape")
        )
        event("refused before the first row")
        return
    try:
        one.epoch(0, frame.batch(ZONE))
    finally:
        one.close()
    targets = [target_of(kind) for kind in frame.kinds]
    wanted, aside = [], 0
    for row in range(frame.count):
        readings = [
            None if raw is None else t.reading(raw)
            for t, raw in zip(targets, frame.row(row), strict=True)
        ]
        if REFUSED in readings:
            aside += 1
        else:
            wanted.append(readings)
    names = [f"`{name.replace('`', '``')}`".replace("%", "%%") for name in frame.names]
    listed = ", ".join(t.read.format(c=name) for t, name in zip(targets, names, strict=True))
    found = [list(row) for row in shared.run(f"SELECT {listed} FROM {table}", ())]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert sum(r.rows.num_rows for r in one.rejections) == aside
    shared.run(f"DROP TABLE {table}")
    event("written")


@pytest.fixture(scope="module")
def shared(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as made:
        yield made


def target_of(kind: Kind) -> Target:
    if kind.name == "decimal":
        return exact(kind.simple, kind.precision, kind.scale)
    declared = CREATED["string" if kind.is_text else kind.name]
    return next(t for t in TARGETS_AND_JSON if t.declared == declared)
