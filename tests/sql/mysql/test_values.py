"""What goes in comes out: every type, by both ways of loading; and what does not fit is named,
not changed.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import FrameRefused, RowsRefused, SettingRefused
from exactum.protocol.sink import Guarantee
from exactum.sql.mysql.sink import MySQLSink
from tests.kit.sql.mysql_query import Query, numbers
from tests.kit.sql.mysql_server import Database

TEXTS = [
    "",
    None,
    "\\N",
    "N",
    "NULL",
    "\\",
    "\\\\N",
    "a\tb\nc\rd\\te",
    'it\'s "quoted", 100%s %',
    "zero\0byte\x1a",
    "𝄞 emoji 😀 ünïcödé 漢字",
    " blanks ",
    "`back`quote`",
]
BYTES = [None, b"", b"\\N", b"\x00\xff\xfe\n\t\\'", bytes(range(256))]
UTC = timezone.utc


def midnight(year: int, month: int, day: int) -> datetime:
    return datetime(year, month, day, tzinfo=UTC)


def table_of(database: Database, columns: str) -> None:
    database.run(f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


@pytest.fixture(
    params=["load data, staged", "insert, staged", "load data, prepared", "insert, direct"]
)
def way(request: pytest.FixtureRequest) -> tuple[bool, str, Guarantee]:
    loads, mechanism = request.param.split(", ")
    if mechanism == "direct":
        return loads == "load data", "staged", Guarantee.AT_LEAST_ONCE
    return loads == "load data", mechanism, Guarantee.EXACTLY_ONCE


def written(
    database: Database,
    way: tuple[bool, str, Guarantee],
    columns: tuple[tuple[str, str], ...],
    *batches: Any,
) -> Any:
    """Write the batches as one task; returns the incarnation."""
    infile, mechanism, guarantee = way
    query = Query(
        lambda: MySQLSink(
            database.url, table="t", mechanism=mechanism, connect={"local_infile": infile}
        ),
        columns,
        guarantee=guarantee,
    )
    one = query.started()
    try:
        one.epoch(0, list(batches))
    finally:
        one.die()
    return one


def test_texts(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """Every awkward text, in every place of a line, sliced as Spark slices."""
    table_of(database, "a longtext, i int NOT NULL, b varchar(200), c mediumtext")
    batch = pa.record_batch(
        [
            pa.array(TEXTS),
            pa.array(range(len(TEXTS)), pa.int32()),
            pa.array(TEXTS[::-1]),
            pa.array(TEXTS),
        ],
        ["a", "i", "b", "c"],
    )
    columns = (("a", "string"), ("i", "int"), ("b", "string"), ("c", "string"))
    written(database, way, columns, batch.slice(0, 5), batch.slice(5))
    assert database.run("SELECT a, i, b, c FROM t ORDER BY i") == [
        (text, i, TEXTS[-1 - i], text) for i, text in enumerate(TEXTS)
    ]


def test_one_column_of_text(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """A line that is one field, empty or null, is a row."""
    table_of(database, "a varchar(200), id bigint AUTO_INCREMENT PRIMARY KEY")
    written(database, way, (("a", "string"),), pa.record_batch([pa.array(TEXTS)], ["a"]))
    assert database.run("SELECT a FROM t ORDER BY id") == [(text,) for text in TEXTS]


def test_bytes(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """Binary values as they are."""
    table_of(database, "i int, a longblob, b varbinary(300)")
    batch = pa.record_batch(
        [
            pa.array(range(len(BYTES)), pa.int32()),
            pa.array(BYTES, pa.binary()),
            pa.array(BYTES, pa.binary()),
        ],
        ["i", "a", "b"],
    )
    written(
        database,
        way,
        (("i", "int"), ("a", "binary"), ("b", "binary")),
        batch.slice(1),
        batch.slice(0, 1),
    )
    assert database.run("SELECT a, b FROM t ORDER BY i") == [(b, b) for b in BYTES]


def test_numbers_dates_and_times(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """The extremes of every type, and nulls; an instant is written as its UTC time."""
    table_of(
        database,
        "i int, t1 tinyint, t2 smallint, t3 int, t4 bigint, u bigint unsigned, f float, d double, "
        "fd double, n decimal(38,10), n2 decimal(10,0), o boolean, bi bit(1), da date, ts "
        "timestamp(6) NULL, dt datetime(6), nt datetime(6)",
    )
    instant = datetime(2026, 7, 1, 12, 30, 59, 123456, tzinfo=UTC)
    plain = datetime(1000, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        (0, -128, -32768, -(2**31), -(2**63), Decimal(0), -1.5, 1e-300, 0.1, Decimal("-1E-10"), 1, True, True,
         date(1000, 1, 1), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), instant, plain),
        (1, 127, 32767, 2**31 - 1, 2**63 - 1, Decimal(2**64 - 1), 3.4e38, 1.7976931348623157e308, 1 / 3,
         Decimal("1234567890123456789012345678.0123456789"), -9, False, False, date(9999, 12, 31),
         datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC), instant, last),
        (2, *([None] * 16)),
    ]  # fmt: skip
    types = [
        ("i", "int", pa.int32()), ("t1", "tinyint", pa.int8()), ("t2", "smallint", pa.int16()),
        ("t3", "int", pa.int32()), ("t4", "bigint", pa.int64()), ("u", "decimal(20,0)", pa.decimal128(20, 0)),
        ("f", "float", pa.float32()), ("d", "double", pa.float64()), ("fd", "float", pa.float32()),
        ("n", "decimal(38,10)", pa.decimal128(38, 10)), ("n2", "int", pa.int32()), ("o", "boolean", pa.bool_()),
        ("bi", "boolean", pa.bool_()), ("da", "date", pa.date32()), ("ts", "timestamp", pa.timestamp("us", "UTC")),
        ("dt", "timestamp", pa.timestamp("us", "UTC")), ("nt", "timestamp_ntz", pa.timestamp("us")),
    ]  # fmt: skip
    values = zip(*rows, strict=True)
    arrays = [pa.array(list(v), kind) for v, (_, _, kind) in zip(values, types, strict=True)]
    assert arrays[-1].cast(pa.int64()).to_pylist()[0] < 0
    batch = pa.record_batch(arrays, [name for name, _, _ in types])
    written(database, way, tuple((name, kind) for name, kind, _ in types), batch)
    with (
        database.client(init_command="SET time_zone = '+00:00'") as client,
        client.cursor() as cursor,
    ):
        cursor.execute(
            "SELECT i, t1, t2, t3, t4, u, f, d, fd, n, n2, o, bi + 0, da, ts, dt, nt FROM t ORDER "
            "BY i"
        )
        got = list(cursor.fetchall())
    for found, row in zip(got, rows, strict=True):
        for (name, _, kind), value, expected in zip(types, found, row, strict=True):
            if name == "fd" and expected is not None:
                expected = pa.scalar(expected, kind).cast(pa.float64()).as_py()  # noqa: PLW2901
            if isinstance(expected, datetime):
                expected = expected.replace(tzinfo=None)  # noqa: PLW2901
            if name == "f" and expected is not None:
                assert value == pytest.approx(expected, rel=1e-6)
            else:
                assert value == expected, name


def test_other_types_take_text(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """json, uuid, inet6, enum, time: the server reads them from text."""
    table_of(database, "j json, u uuid, i inet6, e enum('a','it''s'), h time(6)")
    names = ["j", "u", "i", "e", "h"]
    row = [
        '{"a": "b\\\\n"}',
        "123e4567-e89b-12d3-a456-426614174000",
        "2001:db8::1",
        "it's",
        "12:30:00.000001",
    ]
    batch = pa.record_batch([pa.array([v, None]) for v in row], names)
    written(database, way, tuple((n, "string") for n in names), batch)
    got = database.run(
        "SELECT j, CAST(u AS char), CAST(i AS char), e, CAST(h AS char) FROM t ORDER BY j IS NULL"
    )
    assert got == [tuple(row), (None,) * 5]


def test_names(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """Names with backquotes, blanks, per cent signs, dots and letters of all kinds are names."""
    names = ["a`b", "c d", "100%", "%s", "e.f", "ü", "select", "x'y\"z"]
    quoted = [f"`{n.replace('`', '``')}`" for n in names]
    table = "`my ``table`` 100%s`"
    database.run(f"CREATE TABLE {table} ({', '.join(q + ' int' for q in quoted)})")
    infile, mechanism, guarantee = way
    query = Query(
        lambda: MySQLSink(
            database.url,
            table=f"{database.name}.my `table` 100%s",
            mechanism=mechanism,
            connect={"local_infile": infile},
        ),
        tuple((n, "int") for n in names),
        participant="mysql:my `table` 'x' 100%s",
        guarantee=guarantee,
    )
    one = query.started()
    one.epoch(0, pa.record_batch([pa.array([i], pa.int32()) for i in range(len(names))], names))
    assert database.run(f"SELECT * FROM {table}") == [tuple(range(len(names)))]
    one.die()


def test_an_upsert_with_awkward_names(database: Database) -> None:
    """The same in an upsert with order and deletes."""
    database.run("CREATE TABLE t (`a``b %s` int PRIMARY KEY, `c d%%` int)")
    query = Query(
        lambda: MySQLSink(
            database.url,
            table="t",
            mode="upsert",
            key="a`b %s",
            order_by="c d%%",
            delete_when="gone `%s`",
        ),
        (("a`b %s", "int"), ("c d%%", "int"), ("gone `%s`", "boolean")),
    )
    one = query.started()
    names = ["a`b %s", "c d%%", "gone `%s`"]
    arrays = [
        pa.array([1, 1, 2], pa.int32()),
        pa.array([5, 4, 1], pa.int32()),
        pa.array([False, True, True]),
    ]
    one.epoch(0, pa.record_batch(arrays, names))
    assert database.run("SELECT * FROM t") == [(1, 5)]
    one.die()


# ---- what does not fit
# -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "spark_type", "kind", "good", "bad"),
    [
        ("varchar(3)", "string", pa.string(), "ääß", "äääb"),
        ("varchar(3)", "string", pa.string(), "abc", "abc "),
        ("tinytext", "string", pa.string(), "x" * 255, "ä" * 128),
        ("varchar(9) CHARACTER SET utf8mb3", "string", pa.string(), "漢", "😀"),
        ("varchar(9) CHARACTER SET ascii", "string", pa.string(), "a", "ä"),
        ("int NOT NULL", "int", pa.int32(), 1, None),
        ("tinyint", "int", pa.int32(), -128, 128),
        ("tinyint unsigned", "int", pa.int32(), 255, -1),
        ("mediumint", "bigint", pa.int64(), 2**23 - 1, 2**23),
        ("int unsigned", "bigint", pa.int64(), 2**32 - 1, 2**32),
        ("bigint unsigned", "bigint", pa.int64(), 0, -1),
        (
            "decimal(4,1)",
            "decimal(10,1)",
            pa.decimal128(10, 1),
            Decimal("999.9"),
            Decimal("1000.0"),
        ),
        ("decimal(4,1)", "int", pa.int32(), 999, 1000),
        ("double", "double", pa.float64(), 1.5, float("nan")),
        ("float", "float", pa.float32(), 1.5, float("inf")),
        ("date", "date", pa.date32(), date(1000, 1, 1), date(999, 12, 31)),
        (
            "datetime",
            "timestamp",
            pa.timestamp("us", "UTC"),
            midnight(2026, 1, 1),
            midnight(999, 1, 1),
        ),
        (
            "timestamp NULL",
            "timestamp",
            pa.timestamp("us", "UTC"),
            midnight(2037, 1, 1),
            midnight(2039, 1, 1),
        ),
        (
            "timestamp NULL",
            "timestamp",
            pa.timestamp("us", "UTC"),
            midnight(1970, 1, 2),
            midnight(1969, 1, 1),
        ),
        ("varbinary(2)", "binary", pa.binary(), b"\xff\x00", b"abc"),
        ("enum('a','b')", "string", pa.string(), "b", "c"),
    ],
)
def test_a_value_that_does_not_fit_is_named(
    database: Database, declared: str, spark_type: str, kind: Any, good: Any, bad: Any
) -> None:
    """The rows that fit are written; the one that does not comes back with its column, and is
    not changed to fit.
    """
    table_of(database, f"i int PRIMARY KEY, x {declared}")
    batch = pa.record_batch(
        [pa.array([1, 2, 3], pa.int32()), pa.array([good, bad, good], kind)], ["i", "x"]
    )
    one = written(
        database, (True, "staged", Guarantee.EXACTLY_ONCE), (("i", "int"), ("x", spark_type)), batch
    )
    assert database.run("SELECT i FROM t ORDER BY i") == [(1,), (3,)]
    assert [r.rows.column("i").to_pylist() for r in one.rejections] == [[2]]
    assert "'x'" in one.rejections[0].reasons[0]
    assert "i=2" in one.rejections[0].reasons[0]


@pytest.mark.parametrize(
    ("columns", "bad"),
    [
        ("v bigint NOT NULL PRIMARY KEY", [1, 1]),
        ("v bigint NOT NULL CHECK (v < 10)", [1, 11]),
        ("v bigint NOT NULL UNIQUE", [7]),
    ],
)
def test_what_only_the_server_knows(
    database: Database, way: tuple[bool, str, Guarantee], columns: str, bad: Any
) -> None:
    """A duplicate key or a CHECK stops the epoch before the decision; nothing of it is visible."""
    table_of(database, columns)
    if bad == [7]:
        database.run("INSERT INTO t VALUES (7)")
    before = database.values("t")
    with pytest.raises(RowsRefused):
        written(database, way, (("v", "bigint"),), numbers(3), numbers(*bad))
    assert database.values("t") == before
    again = Query(lambda: MySQLSink(database.url, table="t", mechanism=way[1])).started()
    again.epoch(0, numbers(4))
    assert database.values("t") == sorted([*before, 4])
    assert database.staged() == 0
    assert database.xids() == []
    again.die()


def test_text_that_the_charset_lacks(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """LOAD DATA LOCAL would write a question mark and warn: such a row is put aside, and the
    others are written.
    """
    database.run("CREATE TABLE t (v varchar(9) CHARACTER SET latin1)")
    one = written(
        database, way, (("v", "string"),), pa.record_batch([pa.array(["ok", "漢"])], ["v"])
    )
    assert database.run("SELECT * FROM t") == [("ok",)]
    assert [r.rows.column("v").to_pylist() for r in one.rejections] == [["漢"]]


def test_json_that_is_none(database: Database, way: tuple[bool, str, Guarantee]) -> None:
    """A CHECK that LOAD DATA LOCAL skips rows for is an error, where it is not the one of a JSON
    column.
    """
    database.run("CREATE TABLE t (v longtext CHECK (json_valid(v) AND v <> ''))")
    with pytest.raises(RowsRefused):
        written(database, way, (("v", "string"),), pa.record_batch([pa.array(["{}", "{"])], ["v"]))
    assert database.run("SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("declared", "spark_type"),
    [
        ("int", "string"),
        ("varchar(9)", "int"),
        ("float", "double"),
        ("decimal(9,2)", "double"),
        ("date", "timestamp"),
        ("timestamp NULL", "timestamp_ntz"),
        ("longblob", "string"),
        ("longtext", "binary"),
        ("bit(8)", "bigint"),
        ("point", "binary"),
        ("json", "struct<a:int>"),
        ("longtext", "array<string>"),
        ("int AS (1)", "int"),
    ],
)
def test_types_that_do_not_fit_are_refused(
    database: Database, declared: str, spark_type: str
) -> None:
    """At start, with the column named."""
    table_of(database, f"x {declared}")
    with pytest.raises(FrameRefused, match="'x'"):
        Query(lambda: MySQLSink(database.url, table="t"), (("x", spark_type),)).started()


def test_columns_that_are_missing_are_refused(database: Database) -> None:
    """A column that the table lacks, and one that the table must have."""
    table_of(
        database,
        "a int NOT NULL, b int NOT NULL DEFAULT 3, c int, d int AUTO_INCREMENT PRIMARY KEY",
    )
    with pytest.raises(FrameRefused, match="'v'"):
        Query(lambda: MySQLSink(database.url, table="t"), (("a", "int"), ("v", "int"))).started()
    with pytest.raises(FrameRefused, match="'a'"):
        Query(lambda: MySQLSink(database.url, table="t"), (("b", "int"),)).started()
    Query(lambda: MySQLSink(database.url, table="t"), (("a", "int"),)).started().die()


def test_create_table(database: Database) -> None:
    """Only on request; it takes every type, and the key becomes the primary key."""
    columns = (
        ("k", "string"), ("b", "boolean"), ("t1", "tinyint"), ("t2", "smallint"), ("i", "int"), ("l", "bigint"),
        ("f", "float"), ("d", "double"), ("n", "decimal(38,18)"), ("s", "string"), ("y", "binary"), ("da", "date"),
        ("ts", "timestamp"), ("nt", "timestamp_ntz"),
    )  # fmt: skip
    with pytest.raises(SettingRefused, match="create_table"):
        Query(lambda: MySQLSink(database.url, table="made"), columns).started()
    query = Query(
        lambda: MySQLSink(database.url, table="made", mode="upsert", key="k", create_table=True),
        columns,
    )
    one, two = query.started(), query.started()
    one.die()
    two.die()
    assert database.run("SHOW KEYS FROM made WHERE Key_name = 'PRIMARY'")[0][4] == "k"
    with pytest.raises(FrameRefused, match="decimal"):
        Query(
            lambda: MySQLSink(database.url, table="other", create_table=True),
            (("n", "decimal(38,38)"),),
        ).started()


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        *(
            (f"CREATE TABLE t (v bigint NOT NULL) ENGINE={engine}", f"of the engine {engine}")
            for engine in ("Aria", "MyISAM", "MEMORY", "CSV", "MRG_MyISAM")
        ),
        ("CREATE VIEW t AS SELECT 1 AS v", "a view"),
        ("CREATE SEQUENCE t", "a sequence"),  # whose engine is InnoDB
    ],
)
def test_only_transactional_tables(database: Database, statement: str, kind: str) -> None:
    """Another engine, or what is no table, is refused at start by its true name."""
    database.run(statement)
    with pytest.raises(SettingRefused, match=f" is {kind}; only InnoDB") as caught:
        Query(lambda: MySQLSink(database.url, table="t")).started()
    assert ("Convert it" in str(caught.value)) == ("engine" in kind)


@pytest.mark.parametrize("mechanism", ["staged", "prepared"])
@pytest.mark.parametrize(
    "more",
    [
        ") WITH SYSTEM VERSIONING",
        ") WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION p HISTORY, PARTITION n CURRENT)",
        ", b timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) GENERATED ALWAYS AS ROW "
        "END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING",
        ") PARTITION BY HASH (v) PARTITIONS 3",
        ") ROW_FORMAT=COMPRESSED",
    ],
)
def test_tables_that_the_catalog_calls_by_another_name(
    database: Database, mechanism: str, more: str
) -> None:
    """MariaDB's tables that keep their former rows are tables as well."""
    database.run(f"CREATE TABLE t (v bigint NOT NULL{more}")
    one = Query(lambda: MySQLSink(database.url, table="t", mechanism=mechanism)).started()
    one.epoch(0, numbers(1, 2), numbers(3))
    one.die()
    assert database.values("t") == [1, 2, 3]


def test_an_upsert_into_a_table_that_keeps_its_former_rows(database: Database) -> None:
    database.run("CREATE TABLE t (k bigint PRIMARY KEY, v bigint) WITH SYSTEM VERSIONING")
    columns = (("k", "bigint"), ("v", "bigint"))
    query = Query(lambda: MySQLSink(database.url, table="t", mode="upsert", key="k"), columns)
    one = query.started()
    for epoch in range(2):
        one.epoch(epoch, pa.record_batch({"k": pa.array([1, 2]), "v": pa.array([epoch, epoch])}))
    one.die()
    assert sorted(database.run("SELECT k, v FROM t")) == [(1, 1), (2, 1)]
    assert database.run("SELECT count(*) FROM t FOR SYSTEM_TIME ALL")[0][0] == 4
