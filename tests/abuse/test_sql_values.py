"""The matrix of values in databases: every type of Spark into every type of column, on real servers.
Each value is in the table to the bit, or its row among the dead letters, and nothing else is.

Written by the sink's own writers and a real coordinator, read by a plain client; what is right is
computed from the values alone (``tests.kit.abuse.columns``).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import event, example, given, settings

from exactum.errors import FrameRefused, Refused
from exactum.sql.columns import matched
from exactum.sql.table import Column, Table, TableName
from tests.kit.abuse.columns import REFUSED, Target
from tests.kit.abuse.frames import (
    ALL,
    DOUBLE,
    REFUSED_EVERYWHERE,
    SCALARS,
    TIMESTAMP,
    Frame,
    frames,
    seed_of_run,
)
from tests.kit.abuse.kinds import Kind, Raw
from tests.kit.abuse.sql_values import (
    COLUMNS,
    ZONE,
    Pair,
    Server,
    Tally,
    framed,
    mariadb_server_of,
    new_name,
    played,
    postgres_server_of,
)
from tests.kit.abuse.type_table import check_page, odd_values, tables_of
from tests.kit.errors import raised
from tests.kit.sql.sql_epochs import Query


def same_names(*names: str) -> dict[str, str]:
    return {name: name for name in names}


SHOWN: dict[str, dict[str, str]] = {
    "PostgreSQL": {
        **same_names("boolean", "smallint", "integer", "bigint", "numeric", "numeric(9,2)", "real",
                     "double precision", "text"),
        "varchar(3)": "character varying(3)", "char(3)": "character(3)",
        **same_names("name", "bytea", "date"),
        "timestamp": "timestamp without time zone", "timestamp(3)": "timestamp(3) without time zone",
        "timestamptz": "timestamp with time zone", "timestamptz(0)": "timestamp(0) with time zone",
        **same_names("uuid", "json", "jsonb", "inet", "interval"),
    },
    "MariaDB": {
        **same_names("tinyint", "tinyint unsigned", "smallint", "int", "bigint", "bigint unsigned", "bit(1)",
                     "decimal(9,2)", "decimal(9,2) unsigned", "decimal(38,0)", "float", "double", "double unsigned"),
        "char(5)": "char(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "varchar(5)": "varchar(5) CHARACTER SET utf8mb4",
        "varchar(9), utf8mb3": "varchar(9) CHARACTER SET utf8mb3",
        "varchar(9), ascii": "varchar(9) CHARACTER SET ascii",
        "tinytext": "tinytext CHARACTER SET utf8mb4", "longtext": "longtext CHARACTER SET utf8mb4",
        "enum(...)": r"enum('a','it''s','c\\d','é','3','x y')",
        **same_names("json", "binary(4)", "varbinary(4)", "longblob", "date", "datetime(6)", "datetime",
                     "timestamp(6) NULL", "timestamp NULL"),
    },
}  # fmt: skip
"""How the page calls a column, and its declaration among the oracle's."""
NOTES: dict[str, dict[str, str]] = {
    "PostgreSQL": {
        "char(3)": "no blanks at the end",
        "timestamptz": "the instant, in its session's time zone",
        "jsonb": "-0.0 as 0",
        "interval": "the same span, to the microsecond",
    },
    "MariaDB": {
        **dict.fromkeys(("float", "double", "double unsigned"), "-0.0 as 0"),
        "char(5)": "no blanks at the end",
        **dict.fromkeys(
            ("timestamp(6) NULL", "timestamp NULL"), "the instant, in its session's time zone"
        ),
        **dict.fromkeys(("datetime(6)", "datetime"), "of a timestamp, its time in UTC"),
    },
}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("mariadb", marks=pytest.mark.mariadb),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Each kind, with all its types of columns."""
    made = postgres_server_of if request.param == "postgres" else mariadb_server_of
    with made(request.getfixturevalue(request.param)) as found:
        yield found


@pytest.fixture(scope="module")
def columns(server: Server) -> dict[str, Column]:
    return server.columns()


def grouped(server: Server, rng: random.Random) -> list[list[Pair]]:
    """All pairs, some in each table, in another order for each seed. Those that are sent as text are
    apart from the others, which may then go in binary.
    """
    pairs = server.pairs()
    rng.shuffle(pairs)
    pairs.sort(key=lambda pair: pair[0].as_text)
    return [pairs[n : n + COLUMNS] for n in range(0, len(pairs), COLUMNS)]


def odd(target: Target, kind: Kind) -> list[Raw]:
    rng = random.Random(7)
    drawn = [target.draw(kind, rng) for _ in range(40)] if target.make or kind.of else []
    return [None, *odd_values(kind), *drawn]


def values_of(group: list[Pair], count: int, rng: random.Random) -> Frame:
    """A row for each odd value of each column, with null in the other columns; and ``count`` drawn."""
    alone = [odd(target, kind) for target, kind in group]
    total, before = sum(map(len, alone)), 0
    columns: list[list[Raw]] = []
    for mine, (target, kind) in zip(alone, group, strict=True):
        after = total - before - len(mine)
        drawn = [target.draw(kind, rng) for _ in range(count)]
        columns.append([None] * before + mine + [None] * after + drawn)
        before += len(mine)
    return framed(group, columns)


@pytest.mark.parametrize(
    "rows",
    [1_600, pytest.param(100_000, marks=[pytest.mark.deep, pytest.mark.timeout(1_800)])],
)
def test_every_type_takes_a_row_as_it_is_or_puts_it_aside(server: Server, rows: int) -> None:
    """Every odd value of every type into every column that takes it, and some thousand rows: each is
    in the table exactly, or put aside with the column that cannot hold it.
    """
    tally = Tally(seed_of_run())
    rng = random.Random(tally.seed)
    groups = grouped(server, rng)
    for number, group in enumerate(groups):
        frame = values_of(group, rows // len(groups) + 1, rng)
        played(server, group, frame, server.ways[number % len(server.ways)], tally)
    print(server.name, tally)
    assert tally.counts["rows"] >= rows
    assert tally.counts["stored"] > rows / 4 and tally.counts["put aside"] > rows / 20


def test_the_page_says_what_the_rules_say(server: Server, columns: dict[str, Column]) -> None:
    """The tables in docs/reference/types.md are those that the rules make."""
    shown = {label: columns[declared] for label, declared in SHOWN[server.name].items()}
    lines = tables_of(server.database.dialect, shown, NOTES[server.name])
    check_page(server.name, lines)


def test_what_a_column_does_not_take_is_refused_before_the_first_row(
    server: Server, columns: dict[str, Column]
) -> None:
    """Each type of Spark that the oracle knows no reading for is refused for its column, and no
    other is.
    """
    dialect = server.database.dialect
    never = [Kind(simple) for simple in REFUSED_EVERYWHERE]
    within = [Kind(text.format(k)) for k in never for text in ("array<{}>", "struct<a:int,b:{}>")]
    for target in server.targets:
        column = columns[target.declared]
        taken = {kind.simple for kind in (*target.kinds, *target.untried)}
        for kind in (*ALL, *never, *within):
            is_taken = dialect.takes(column, kind.simple)
            assert is_taken == (kind.simple in taken), f"{kind} into {target.declared}"
            if not is_taken:
                table = Table(TableName(None, "t"), (column,))
                with raised(FrameRefused, "SQL_TYPE", column.name):
                    matched(table, [(column.name, kind.simple)], dialect, "sink")


SHAPES = st.one_of(
    frames(columns_max=4, rows_max=8),
    frames(SCALARS, columns_min=1, columns_max=6, rows_max=8, duplicates=False),
)


MINUS_ZERO = Frame(("id",), (Kind("map", of=(TIMESTAMP, DOUBLE)),), ([[(0, -0.0)]],), 1)


@example(MINUS_ZERO, 0)
@settings(max_examples=40)
@given(frame=SHAPES, pick=st.integers(0, 1))
def test_frames_of_any_shape(server: Server, frame: Frame, pick: int) -> None:
    """Any names and types, no columns or no rows: refused before the first row, or each row is
    there or put aside.
    """
    database, table = server.database, new_name()
    way = [way for way in server.ways if "mode" not in way]
    sink = database.sink(table, create_table=True, **way[pick % len(way)])
    query = Query(lambda: sink, tuple(frame.columns))
    query.tasks = lambda batch_id: [[frame.part(0, 2).batch(ZONE), frame.part(2, 9).batch(ZONE)]]
    try:
        driver = query.start()
    except Refused:
        with pytest.raises(Exception, match=table):
            database.run(f"SELECT 1 FROM {table}")
        event("refused before the first row")
        return
    try:
        driver.run(0)
    finally:
        driver.close()
    targets = [server.created(kind) for kind in frame.kinds]
    readings: list[list[Any]] = [
        list(map(Target.read_of, targets, frame.kinds, frame.row(row)))
        for row in range(frame.count)
    ]
    names = map(server.quoted, frame.names)
    listed = ", ".join(t.read.replace("{c}", name) for t, name in zip(targets, names, strict=True))
    found = [
        list(map(Target.seen_of, targets, frame.kinds, row))
        for row in database.rows(f"SELECT {listed} FROM {table}")
    ]
    wanted = [reading for reading in readings if REFUSED not in reading]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert sum(r.rows.num_rows for r in driver.rejections) == frame.count - len(wanted)
    assert query.staged() == []
    database.run(f"DROP TABLE {table}")
    event("written")
