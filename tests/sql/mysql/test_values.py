"""Texts, names, tables and constraints, by both ways of loading. (Every odd value of every type:
tests/abuse.)
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import FrameRefused, RowsRefused, SettingRefused
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


def table_of(database: Database, columns: str) -> None:
    database.run(f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


@pytest.fixture(params=["load data", "insert"])
def infile(request: pytest.FixtureRequest) -> bool:
    """Whether rows go by LOAD DATA, or by INSERT."""
    return bool(request.param == "load data")


def written(
    database: Database,
    infile: bool,
    columns: tuple[tuple[str, str], ...],
    *batches: Any,
) -> Any:
    """Write the batches as one task; returns the incarnation."""
    query = Query(
        lambda: MySQLSink(database.url, table="t", connect={"local_infile": infile}),
        columns,
    )
    one = query.start()
    try:
        one.epoch(0, list(batches))
    finally:
        one.close()
    return one


def test_texts(database: Database, infile: bool) -> None:
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
    written(database, infile, columns, batch.slice(0, 5), batch.slice(5))
    assert database.run("SELECT a, i, b, c FROM t ORDER BY i") == [
        (text, i, TEXTS[-1 - i], text) for i, text in enumerate(TEXTS)
    ]


def test_one_column_of_text(database: Database, infile: bool) -> None:
    """A line that is one field, empty or null, is a row."""
    table_of(database, "a varchar(200), id bigint AUTO_INCREMENT PRIMARY KEY")
    written(database, infile, (("a", "string"),), pa.record_batch([pa.array(TEXTS)], ["a"]))
    assert database.run("SELECT a FROM t ORDER BY id") == [(text,) for text in TEXTS]


def test_other_types_take_text(database: Database, infile: bool) -> None:
    """json, inet4, enum: the server reads them from text."""
    table_of(database, "j json, i inet4, e enum('a','it''s')")
    names = ["j", "i", "e"]
    row = ['{"a": "b\\\\n"}', "10.0.0.1", "it's"]
    batch = pa.record_batch([pa.array([v, None]) for v in row], names)
    written(database, infile, tuple((n, "string") for n in names), batch)
    got = database.run("SELECT j, CAST(i AS char), e FROM t ORDER BY j IS NULL")
    assert got == [tuple(row), (None,) * 3]


# ---- what does not fit
# -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "bad"),
    [
        ("v bigint NOT NULL PRIMARY KEY", [1, 1]),
        ("v bigint NOT NULL CHECK (v < 10)", [1, 11]),
        ("v bigint NOT NULL UNIQUE", [7]),
    ],
)
def test_what_only_the_server_knows(
    database: Database, infile: bool, columns: str, bad: Any
) -> None:
    """A duplicate key or a CHECK stops the epoch before the decision; nothing of it is visible."""
    table_of(database, columns)
    if bad == [7]:
        database.run("INSERT INTO t VALUES (7)")
    before = database.values("t")
    with pytest.raises(RowsRefused):
        written(database, infile, (("v", "bigint"),), numbers(3), numbers(*bad))
    assert database.values("t") == before
    again = Query(lambda: MySQLSink(database.url, table="t")).start()
    again.epoch(0, numbers(4))
    assert database.values("t") == sorted([*before, 4])
    assert again.query.staged() == []
    again.close()


def test_text_that_the_charset_lacks(database: Database, infile: bool) -> None:
    """LOAD DATA LOCAL would write a question mark and warn: such a row is put aside, and the
    others are written.
    """
    database.run("CREATE TABLE t (v varchar(9) CHARACTER SET utf8mb3)")
    one = written(
        database, infile, (("v", "string"),), pa.record_batch([pa.array(["漢", "😀"])], ["v"])
    )
    assert database.run("SELECT * FROM t") == [("漢",)]
    assert [r.rows.column("v").to_pylist() for r in one.rejections] == [["😀"]]


def test_json_that_is_none(database: Database, infile: bool) -> None:
    """A CHECK that LOAD DATA LOCAL skips rows for is an error, where it is not the one of a JSON
    column.
    """
    database.run("CREATE TABLE t (v longtext CHECK (json_valid(v) AND v <> ''))")
    with pytest.raises(RowsRefused):
        written(
            database, infile, (("v", "string"),), pa.record_batch([pa.array(["{}", "{"])], ["v"])
        )
    assert database.run("SELECT * FROM t") == []


def test_columns_that_are_missing_are_refused(database: Database) -> None:
    """A column that the table lacks, and one that the table must have."""
    table_of(
        database,
        "a int NOT NULL, b int NOT NULL DEFAULT 3, c int, d int AUTO_INCREMENT PRIMARY KEY",
    )
    with pytest.raises(FrameRefused, match="'v'"):
        Query(lambda: MySQLSink(database.url, table="t"), (("a", "int"), ("v", "int"))).start()
    with pytest.raises(FrameRefused, match="'a'"):
        Query(lambda: MySQLSink(database.url, table="t"), (("b", "int"),)).start()
    Query(lambda: MySQLSink(database.url, table="t"), (("a", "int"),)).start().close()


def test_create_table(database: Database) -> None:
    """Only on request; it takes every type, and the key becomes the primary key."""
    columns = (
        ("k", "string"), ("b", "boolean"), ("t1", "tinyint"), ("t2", "smallint"), ("i", "int"), ("l", "bigint"),
        ("f", "float"), ("d", "double"), ("n", "decimal(38,18)"), ("s", "string"), ("y", "binary"), ("da", "date"),
        ("ts", "timestamp"), ("nt", "timestamp_ntz"),
    )  # fmt: skip
    with pytest.raises(SettingRefused, match="create_table"):
        Query(lambda: MySQLSink(database.url, table="made"), columns).start()
    query = Query(
        lambda: MySQLSink(database.url, table="made", mode="upsert", key="k", create_table=True),
        columns,
    )
    one, two = query.start(), query.start()
    one.close()
    two.close()
    assert database.run("SHOW KEYS FROM made WHERE Key_name = 'PRIMARY'")[0][4] == "k"
    with pytest.raises(FrameRefused, match="decimal"):
        Query(
            lambda: MySQLSink(database.url, table="other", create_table=True),
            (("n", "decimal(38,38)"),),
        ).start()


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
        Query(lambda: MySQLSink(database.url, table="t")).start()
    assert ("Convert it" in str(caught.value)) == ("engine" in kind)


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
def test_tables_that_the_catalog_calls_by_another_name(database: Database, more: str) -> None:
    """MariaDB's tables that keep their former rows are tables as well."""
    database.run(f"CREATE TABLE t (v bigint NOT NULL{more}")
    one = Query(lambda: MySQLSink(database.url, table="t")).start()
    one.epoch(0, numbers(1, 2), numbers(3))
    one.close()
    assert database.values("t") == [1, 2, 3]


def test_an_upsert_into_a_table_that_keeps_its_former_rows(database: Database) -> None:
    database.run("CREATE TABLE t (k bigint PRIMARY KEY, v bigint) WITH SYSTEM VERSIONING")
    columns = (("k", "bigint"), ("v", "bigint"))
    query = Query(lambda: MySQLSink(database.url, table="t", mode="upsert", key="k"), columns)
    one = query.start()
    for epoch in range(2):
        one.epoch(epoch, pa.record_batch({"k": pa.array([1, 2]), "v": pa.array([epoch, epoch])}))
    one.close()
    assert sorted(database.run("SELECT k, v FROM t")) == [(1, 1), (2, 1)]
    assert database.run("SELECT count(*) FROM t FOR SYSTEM_TIME ALL")[0][0] == 4
