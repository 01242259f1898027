"""What docs/targets.md says of MariaDB's column types is what the rules say, and what the server
does.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from exactum.errors import FrameRefused
from exactum.sql.columns import matched
from exactum.sql.mysql.dialect import MySQLDialect
from exactum.sql.mysql.session import address_of
from exactum.sql.session import Role
from exactum.sql.table import Column, Table, TableName
from tests.abuse.test_mariadb_rows import WAYS, Tally, played
from tests.kit.abuse.frames import ALL, BIGINT, Frame, edges
from tests.kit.abuse.kinds import Kind, Raw
from tests.kit.abuse.mariadb_columns import TARGETS_AND_JSON, Target
from tests.kit.abuse.type_table import check_page, refused, tables_of
from tests.kit.errors import raised
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database

DIALECT = MySQLDialect()
SHOWN = {
    **{
        t: t
        for t in ("tinyint", "tinyint unsigned", "smallint", "int", "bigint", "bigint unsigned")
    },
    **{
        t: t
        for t in (
            "bit(1)",
            "decimal(9,2)",
            "decimal(9,2) unsigned",
            "decimal(38,0)",
            "float",
            "double",
        )
    },
    "double unsigned": "double unsigned",
    "char(5)": "char(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "varchar(5)": "varchar(5) CHARACTER SET utf8mb4",
    "varchar(9), utf8mb3": "varchar(9) CHARACTER SET utf8mb3",
    "varchar(9), ascii": "varchar(9) CHARACTER SET ascii",
    "tinytext": "tinytext CHARACTER SET utf8mb4",
    "longtext": "longtext CHARACTER SET utf8mb4",
    "enum(...)": r"enum('a','it''s','c\\d','é','3','x y')",
    **{t: t for t in ("json", "binary(4)", "varbinary(4)", "longblob", "date", "datetime(6)")},
    **{
        t: t
        for t in (
            "datetime",
            "timestamp(6) NULL",
            "timestamp NULL",
            "inet4",
        )
    },
}
"""How the page calls a column, and its declaration among the oracle's."""
NOTES = {
    **dict.fromkeys(("float", "double"), "-0.0 as 0"),
    "double unsigned": "-0.0 as 0",
    "char(5)": "no blanks at the end",
    "inet4": "the same value, in the server's spelling",
    **dict.fromkeys(
        ("timestamp(6) NULL", "timestamp NULL"), "the instant, in its session's time zone"
    ),
    **dict.fromkeys(("datetime(6)", "datetime"), "of a timestamp, its time in UTC"),
}


@pytest.fixture(scope="module")
def database(mariadb: LocalMariaDB) -> Iterator[Database]:
    with Database.made(mariadb) as made:
        yield made


@pytest.fixture(scope="module")
def columns(database: Database) -> dict[str, Column]:
    """As the sink reads them from the server's catalog, by their declarations."""
    listed = ", ".join(f"c{n} {target.declared}" for n, target in enumerate(TARGETS_AND_JSON))
    database.run(f"CREATE TABLE every_type ({listed})")
    session = DIALECT.connect(address_of(database.url, None, "test"), Role.DRIVER, "test", 5.0)
    try:
        table = DIALECT.read_table(session, TableName(None, "every_type"))
    finally:
        session.close()
    assert table is not None
    return {
        target.declared: column
        for target, column in zip(TARGETS_AND_JSON, table.columns, strict=True)
    }


def test_the_page_says_what_the_rules_say(columns: dict[str, Column]) -> None:
    """The tables in docs/targets.md are those that the rules make."""
    shown = {label: columns[declared] for label, declared in SHOWN.items()}
    check_page("MariaDB", tables_of(DIALECT, shown, NOTES))


def test_what_a_column_does_not_take_is_refused_before_the_first_row(
    columns: dict[str, Column],
) -> None:
    """Each type of Spark that the oracle knows no reading for is refused for its column, and no
    other is.
    """
    for target in TARGETS_AND_JSON:
        column = columns[target.declared]
        for kind in ALL:
            if DIALECT.takes(column, kind.simple) != (kind in target.kinds):
                pytest.fail(f"{kind} into {target.declared}: the oracle and the rules differ")
            if kind not in target.kinds:
                with raised(FrameRefused, "SQL_TYPE", column.name):
                    matched(table_with(column), [(column.name, kind.simple)], DIALECT, "sink")


def table_with(column: Column) -> Table:
    return Table(TableName(None, "t"), (column,))


def test_each_cell_on_the_server(database: Database, columns: dict[str, Column]) -> None:
    """Every odd value of every type, into every column that takes it: as it is, or refused; and
    where the page says that every value is taken, none is refused."""
    cells = [(target, kind) for target in TARGETS_AND_JSON for kind in target.kinds]
    tally = Tally(0)
    for start in range(0, len(cells), 8):
        group = cells[start : start + 8]
        frame = one_by_one(group)
        played(
            database,
            f"cells{start}",
            [t for t, _ in group],
            frame,
            WAYS[start // 8 % len(WAYS)],
            tally,
        )
    print(tally)
    for target, kind in cells:
        good = [
            v
            for v in odd(target, kind)
            if v is not None and isinstance(target.reading(v), str | float | int)
        ]
        assert refused(columns[target.declared], kind, good) == [], f"{kind} into {target.declared}"


def odd(target: Target, kind: Kind) -> list[Raw]:
    rng = random.Random(7)
    own = [] if target.make is None else [target.make(rng) for _ in range(40)]
    return [None, *edges(kind), *own]


def one_by_one(group: list[tuple[Target, Kind]]) -> Frame:
    """A row for each value of each column, with null in the other columns."""
    values = [odd(target, kind) for target, kind in group]
    count = sum(map(len, values))
    columns: list[list[Raw]] = []
    for mine in values:
        before = sum(len(column) for column in values[: len(columns)])
        columns.append([None] * before + mine + [None] * (count - before - len(mine)))
    names = ("id", *(f"c{n}" for n in range(len(group))))
    return Frame(
        names, (BIGINT, *(kind for _, kind in group)), (list(range(count)), *columns), count
    )
