"""A row arrives as it is, or it is put aside with its key, the column and the rule; the others go on.
By both ways of loading. (Every odd value of every type: tests/abuse.)
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import RowsRefused
from exactum.protocol.sink import Rejection
from exactum.sql.mysql import rows as encoders
from exactum.sql.rows import is_json
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import NUMBERS, numbers

NEW_YORK = pa.timestamp("us", "America/New_York")
INVALID = b"caf\xe9"
FLOAT_MAX = 3.4028234663852886e38
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


def timestamps(*micros: int | None) -> Any:
    return pa.array(micros, pa.int64()).view(NEW_YORK)


def texts(*values: bytes | None) -> Any:
    """Strings as Spark casts bytes to them: nobody looks whether they are UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


def table_of(database: Database, columns: str) -> None:
    database.run(f"CREATE TABLE t ({columns}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")


@pytest.fixture(params=["load data", "insert"])
def infile(request: pytest.FixtureRequest) -> bool:
    """Whether rows go by LOAD DATA, or by INSERT."""
    return bool(request.param == "load data")


def written(
    database: Database, columns: list[tuple[str, str]], *arrays: Any, **options: Any
) -> list[Rejection]:
    """One epoch of one batch into the table ``t``."""
    batch = pa.RecordBatch.from_arrays(list(arrays), [name for name, _ in columns])
    return database.query("t", tuple(columns), **options).write(batch)


def by(infile: bool) -> dict[str, Any]:
    """Rows go by LOAD DATA, or by INSERT."""
    return {"connect": {"local_infile": infile}}


CASES: list[tuple[str, str, Any, list[str]]] = [
    # declared, Spark's type, values of which the first fits, the reasons of the others
    ("enum('a\\\\b','it''s')", "string", texts(b"a\\b", b"1", b"A\\B"), ["holds one of a\\b, it's"] * 2),
    ("inet4", "string", texts(b"10.0.0.1", b"10.0.0.256", b"1.2.3"), ["an IPv4 address"] * 2),
    ("varchar(9) CHARACTER SET ascii", "string", texts(b"e", "é".encode()), ["characters up to U+007F"]),
    ("varchar(9) CHARACTER SET utf8mb3", "string", texts("漢".encode(), "😀".encode()), ["characters up to U+FFFF"]),
    ("tinytext", "string", texts("é".encode() * 127, "é".encode() * 128), ["255 bytes"]),
    ("json", "string", texts(b'{"a": [1]}', b"{", b'"\\ud800"', b"[" * 32 + b"]" * 32), ["holds JSON"] * 3),
    ("decimal(5,2)", "decimal(9,4)", pa.array([Decimal("123.4500"), Decimal("1.2345")]), ["2 digits after the point"]),
    ("int", "decimal(38,0)", pa.array([Decimal(7), Decimal(2**31)], pa.decimal128(38, 0)), ["holds -2147483648 to"]),
    ("bigint unsigned", "decimal(38,0)", pa.array([Decimal(2**64 - 1), Decimal(-1)], pa.decimal128(38, 0)), ["holds"]),
    ("decimal(5,2) unsigned", "int", pa.array([7, -1], pa.int32()), ["no negative numbers"]),
    ("double unsigned", "double", pa.array([7.5, -0.5]), ["no negative numbers"]),
    ("double(9,2)", "double", pa.array([1234567.25, 0.125, 1e8]), ["2 digits after the point", "holds values up to"]),
    ("varchar(3)", "string", texts("äöü".encode(), b"abc ", INVALID, INVALID * 2), ["3 characters", "UTF-8", "UTF-8"]),
    ("binary(4)", "binary", pa.array([b"\0abc", b"ab", b"abcde"]), ["no less than 4 bytes", "holds 4 bytes"]),
    ("datetime", "timestamp", timestamps(0, 1, 253_402_318_799_000_000, -62_135_578_800_000_000, 2**63 - 1),
     ["0 digits of a second's fraction", *["holds the times"] * 3]),
    ("timestamp(3) NULL", "timestamp", timestamps(1_000_000, 1_000_001, 0, -62_135_578_800_000_000),
     ["3 digits of a second's fraction", "holds the times", "holds the times"]),
    ("date", "date", pa.array([0, -719_528, 2_932_897, -(2**31)], pa.int32()).view(pa.date32()),
     ["holds the days 1000-01-01 to 9999-12-31"] * 3),
]  # fmt: skip


def test_what_a_column_cannot_hold_is_put_aside(database: Database) -> None:
    """Of each type the value that fits is stored; each other one is put aside with its key,
    column and rule.
    """
    declared = ", ".join(f"c{n} {case[0]}" for n, case in enumerate(CASES))
    database.run(
        f"CREATE TABLE t (id int PRIMARY KEY, {declared}) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    count = sum(len(case[2]) for case in CASES)
    arrays, wanted, start = [], {}, 0
    for n, (_, _, values, reasons) in enumerate(CASES):
        assert len(reasons) == len(values) - 1
        wanted |= {start + 1 + i: (f"'c{n}'", reason) for i, reason in enumerate(reasons)}
        places = pa.array(
            [row - start if start <= row < start + len(values) else None for row in range(count)]
        )
        arrays.append(values.take(places))
        start += len(values)
    columns = [("id", "int"), *((f"c{n}", case[1]) for n, case in enumerate(CASES))]
    rejections = written(database, columns, pa.array(range(count), pa.int32()), *arrays)
    assert {i for (i,) in database.run("SELECT id FROM t")} == set(range(count)) - set(wanted)
    told = {
        row: reason
        for rejection in rejections
        for row, reason in zip(
            rejection.rows.column("id").to_pylist(), rejection.reasons, strict=True
        )
    }
    assert told.keys() == wanted.keys()
    for row, (column, rule) in wanted.items():
        assert f"id={row}" in told[row] and column in told[row] and rule in told[row], told[row]


def test_what_fits_is_stored_to_the_bit(database: Database) -> None:
    """The largest float, 255 bytes of text, a member with a backslash, text with a collation;
    only zero loses its sign, for MariaDB's zero has none."""
    database.run(
        "CREATE TABLE t (f float, d double, l tinytext, e "
        "enum('a\\\\b','c'), s longtext, z double) CHARACTER SET utf8mb4"
    )
    columns = [("f", "float"), ("d", "double"), ("l", "string"), ("e", "string"), ("z", "double"),
               ("s", "string collate UTF8_LCASE")]  # fmt: skip
    arrays = [pa.array([v], pa.float32()) for v in (FLOAT_MAX,)]
    arrays += [
        pa.array([5e-324]),
        texts("é".encode() * 127 + b"e"),
        texts(b"a\\b"),
        pa.array([-0.0]),
        texts(b"Text"),
    ]
    assert written(database, columns, *arrays) == []
    assert database.run("SELECT f + 0e0, d, l, e, s, CAST(z AS char) FROM t") == [
        (FLOAT_MAX, 5e-324, "é" * 127 + "e", "a\\b", "Text", "0")
    ]


def test_keys_beyond_pythons_dates_name_their_row(database: Database) -> None:
    """A key that Python's dates cannot hold does not stop the task that has to say it."""
    database.run("CREATE TABLE t (day datetime(6) PRIMARY KEY, v varchar(1) NOT NULL)")
    sentinel = 253_402_318_799_000_000  # 9999-12-31 23:59:59 in New York
    rejections = written(
        database,
        [("day", "timestamp"), ("v", "string")],
        timestamps(0, sentinel, 86_400_000_000),
        texts(b"a", b"b", None),
        mode="upsert",
        key="day",
    )
    assert [v for (v,) in database.run("SELECT v FROM t")] == ["a"]
    reasons = [reason for rejection in rejections for reason in rejection.reasons]
    assert len(reasons) == 2
    assert (
        "+10000-01-01 04:59:59" in reasons[0]
        and "1970-01-02" in reasons[1]
        and "must not be null" in reasons[1]
    )


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
    database.query("t", columns, **by(infile)).write([batch.slice(0, 5), batch.slice(5)])
    assert database.run("SELECT a, i, b, c FROM t ORDER BY i") == [
        (text, i, TEXTS[-1 - i], text) for i, text in enumerate(TEXTS)
    ]


def test_one_column_of_text(database: Database, infile: bool) -> None:
    """A line that is one field, empty or null, is a row."""
    table_of(database, "a varchar(200), id bigint AUTO_INCREMENT PRIMARY KEY")
    written(database, [("a", "string")], pa.array(TEXTS), **by(infile))
    assert database.run("SELECT a FROM t ORDER BY id") == [(text,) for text in TEXTS]


def test_other_types_take_text(database: Database, infile: bool) -> None:
    """json, inet4, enum: the server reads them from text."""
    table_of(database, "j json, i inet4, e enum('a','it''s')")
    row = ['{"a": "b\\\\n"}', "10.0.0.1", "it's"]
    columns = [(name, "string") for name in "jie"]
    written(database, columns, *(pa.array([v, None]) for v in row), **by(infile))
    got = database.run("SELECT j, CAST(i AS char), e FROM t ORDER BY j IS NULL")
    assert got == [tuple(row), (None,) * 3]


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
    query = database.query("t", NUMBERS, **by(infile))
    query.tasks = lambda _: [[numbers(3), numbers(*bad)]]
    with pytest.raises(RowsRefused):
        query.run(0)
    assert database.values("t") == before
    query.write(numbers(4))
    assert database.values("t") == sorted([*before, 4])


def test_json_that_is_none(database: Database, infile: bool) -> None:
    """A CHECK that LOAD DATA LOCAL skips rows for is an error, where it is not the one of a JSON
    column.
    """
    database.run("CREATE TABLE t (v longtext CHECK (json_valid(v) AND v <> ''))")
    query = database.query("t", [("v", "string")], **by(infile))
    query.tasks = lambda _: [[pa.record_batch({"v": ["{}", "{"]})]]
    with pytest.raises(RowsRefused):
        query.run(0)
    assert database.run("SELECT * FROM t") == []


@pytest.mark.parametrize(
    "partitions",
    ["RANGE (v) (PARTITION p VALUES LESS THAN (10))", "LIST (v) (PARTITION p VALUES IN (1, 2))"],
)
def test_a_row_that_no_partition_takes(database: Database, partitions: str) -> None:
    """The rows are refused, which no restart can mend; it is not taken for a server that is
    away.
    """
    database.run(f"CREATE TABLE t (v bigint) PARTITION BY {partitions}")
    query = database.query("t", NUMBERS)
    query.tasks = lambda _: [[numbers(1, 77)]]
    with pytest.raises(RowsRefused, match="partition"):
        query.run(0)
    query.write(numbers(2), batch_id=1)
    assert database.values("t") == [2]


def test_a_row_that_no_packet_takes() -> None:
    """By INSERT a row over max_allowed_packet is put aside with its key and size; the largest that
    fits is stored, also where it is the only one, and where bytes and text take twice their size on
    the way."""
    sizes = [10, 2**20, 1_040_000, 600_000, None, None]
    a = pa.array([None if n is None else ("'" if i == 3 else "x") * n for i, n in enumerate(sizes)])
    b = pa.array([None, None, None, None, b"\xff" * 520_000, b"\xff" * 530_000], pa.binary())
    names = ["id", "a", "b"]
    six = pa.record_batch([pa.array(range(6), pa.int32()), a, b], names)
    large = pa.record_batch([pa.array([9], pa.int32()), pa.array(["y" * 2**21]), b[:1]], names)
    small = pa.record_batch([pa.array([10], pa.int32()), pa.array(["z"]), b[:1]], names)
    columns = (("id", "int"), ("a", "string"), ("b", "binary"))
    with LocalMariaDB(settings={"max_allowed_packet": 2**20, "local_infile": "off"}) as server:
        with Database.made(server) as made:
            made.run("CREATE TABLE t (id int PRIMARY KEY, a longtext, b longblob)")
            query, rejections = made.query("t", columns), []
            for batch_id, task in enumerate((six, [large, small], large)):
                rejections += query.write(task, batch_id=batch_id)
            assert [i for (i,) in made.run("SELECT id FROM t ORDER BY id")] == [0, 2, 4, 10]
            reasons = [reason for rejection in rejections for reason in rejection.reasons]
            assert [reason.split(":")[0].split("=")[1] for reason in reasons] == list("13599")
            assert all(
                "max_allowed_packet" in reason and "the row has" in reason for reason in reasons
            )


def test_load_data_takes_rows_over_a_packet(database: Database) -> None:
    """A file goes to the server in pieces: rows over max_allowed_packet, and bytes, arrive as
    they are.
    """
    database.run("CREATE TABLE t (id int PRIMARY KEY, a longtext, b longblob)")
    packet = database.run("SELECT @@max_allowed_packet")[0][0]
    text, data = "x" * (packet + 5_000), b"\xfe" * (packet + 5_000)
    rejections = written(
        database,
        [("id", "int"), ("a", "string"), ("b", "binary")],
        *(pa.array([1], pa.int32()), pa.array([text]), pa.array([data], pa.binary())),
    )
    assert rejections == []
    rows = database.run("SELECT LENGTH(a), MD5(a), LENGTH(b), MD5(b) FROM t")
    digests = [hashlib.md5(text.encode()).hexdigest(), hashlib.md5(data).hexdigest()]
    assert rows == [(len(text), digests[0], len(data), digests[1])]


def test_json_is_told_from_what_is_none() -> None:
    """Also half of a surrogate pair, and what is nested deeper than the server reads."""
    good = ["{}", "1", " [1, 2] ", '"[,]"', '{"a": "\\ud83d\\ude00"}', "[" * 31 + "]" * 31,
            '"' + "[" * 99 + '"', "9" * 4_000, "1e999", None]  # fmt: skip
    bad = ["", "[1", "2]", "1,2", '"a', 'b"', "{}{}", "nul", "NaN", "-Infinity", '"\\udc00"', "[1,]", "\ufeff{}",
           "'a'", *("[" * depth + "]" * depth for depth in (32, 900, 5_000, 200_000)),
           '{"a":' * 32 + "1" + "}" * 32]  # fmt: skip
    assert is_json(pa.array(good), 31).all()
    assert not is_json(pa.array(bad), 31).any()


def test_large_batches_go_in_pieces(
    database: Database, infile: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch becomes text in pieces, each row once and in its order."""
    monkeypatch.setattr(encoders, "PIECE_BYTES", 2_000)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int, b longblob)")
    sizes = [7 * n for n in range(100)] + [49_000, 60_000, 0, 5, 70_000]
    arrays = [pa.array([n // 2 for n in range(105)], pa.int32()), pa.array(range(105), pa.int32()),
              pa.array([b"\xff" * size for size in sizes])]  # fmt: skip
    options = {"mode": "upsert", "key": "id", **by(infile)}
    columns = [("id", "int"), ("v", "int"), ("b", "binary")]
    assert written(database, columns, *arrays, **options) == []
    wanted = {n // 2: (n, sizes[n]) for n in range(105)}
    assert {i: (v, size) for i, v, size in database.run("SELECT id, v, LENGTH(b) FROM t")} == wanted
