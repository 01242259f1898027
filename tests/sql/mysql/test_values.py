"""A row arrives as it is, or it is put aside with its key, the column and the rule; the others go on.
By both ways of loading. (Every odd value of every type: tests/abuse.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import RowsRefused
from exactum.protocol.sink import Rejection
from exactum.sql.mysql import rows as encoders
from tests.kit.sql.mysql_server import Database
from tests.kit.sql.sql_epochs import NUMBERS, numbers

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


@pytest.fixture(params=[True, False], ids=["load data", "insert"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Rows go by LOAD DATA, or by INSERT."""
    return {"connect": {"local_infile": request.param}}


def written(
    database: Database, columns: list[tuple[str, str]], *arrays: Any, **options: Any
) -> list[Rejection]:
    """One epoch of one batch into the table ``t``."""
    batch = pa.RecordBatch.from_arrays(list(arrays), [name for name, _ in columns])
    return database.query("t", tuple(columns), **options).write(batch)


def test_one_column_of_text(database: Database, way: dict[str, Any]) -> None:
    """A line that is one field, empty or null, is a row."""
    database.run(
        "CREATE TABLE t (a varchar(200), id bigint AUTO_INCREMENT PRIMARY KEY) "
        "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    written(database, [("a", "string")], pa.array(TEXTS), **way)
    assert database.run("SELECT a FROM t ORDER BY id") == [(text,) for text in TEXTS]


@pytest.mark.parametrize(
    ("definition", "bad"),
    [
        ("(v bigint NOT NULL PRIMARY KEY)", [1, 1]),
        ("(v bigint NOT NULL CHECK (v < 10))", [1, 11]),
        ("(v bigint NOT NULL UNIQUE)", [7]),
        # Not taken for a server that is away.
        ("(v bigint) PARTITION BY RANGE (v) (PARTITION p VALUES LESS THAN (10))", [1, 77]),
        ("(v bigint) PARTITION BY LIST (v) (PARTITION p VALUES IN (1, 3, 4, 7))", [1, 77]),
    ],
)
def test_what_only_the_server_knows(
    database: Database, way: dict[str, Any], definition: str, bad: list[int]
) -> None:
    """A duplicate key, a CHECK or a missing partition stops the epoch before the decision; nothing of
    it is visible.
    """
    database.run(f"CREATE TABLE t {definition}")
    database.run("INSERT INTO t VALUES (7)")
    query = database.query("t", NUMBERS, **way)
    query.tasks = lambda _: [[numbers(3), numbers(*bad)]]
    with pytest.raises(RowsRefused):
        query.run(0)
    assert database.values("t") == [7]
    query.write(numbers(4))
    assert database.values("t") == [4, 7]


def test_json_that_is_none(database: Database, way: dict[str, Any]) -> None:
    """A CHECK that LOAD DATA LOCAL skips rows for is an error, where it is not the one of a JSON
    column.
    """
    database.run("CREATE TABLE t (v longtext CHECK (json_valid(v) AND v <> ''))")
    query = database.query("t", [("v", "string")], **way)
    query.tasks = lambda _: [[pa.record_batch({"v": ["{}", "{"]})]]
    with pytest.raises(RowsRefused):
        query.run(0)
    assert database.run("SELECT * FROM t") == []


@pytest.fixture
def packet(database: Database) -> Iterator[int]:
    """The server's max_allowed_packet, which is small for a while."""
    before = database.value("SELECT @@global.max_allowed_packet")
    database.run("SET GLOBAL max_allowed_packet = 1048576")
    yield 1_048_576
    database.run(f"SET GLOBAL max_allowed_packet = {before}")


def test_load_data_takes_rows_over_a_packet(database: Database, packet: int) -> None:
    """A file goes to the server in pieces: rows over max_allowed_packet, and bytes, arrive as
    they are.
    """
    database.run("CREATE TABLE t (id int PRIMARY KEY, a longtext, b longblob)")
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


def test_large_batches_go_in_pieces(
    database: Database, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large batch becomes text in pieces, each row once and in its order."""
    monkeypatch.setattr(encoders, "PIECE_BYTES", 2_000)
    database.run("CREATE TABLE t (id int PRIMARY KEY, v int, b longblob)")
    sizes = [7 * n for n in range(100)] + [49_000, 60_000, 0, 5, 70_000]
    arrays = [pa.array([n // 2 for n in range(105)], pa.int32()), pa.array(range(105), pa.int32()),
              pa.array([b"\xff" * size for size in sizes])]  # fmt: skip
    options = {"mode": "upsert", "key": "id", **way}
    columns = [("id", "int"), ("v", "int"), ("b", "binary")]
    assert written(database, columns, *arrays, **options) == []
    wanted = {n // 2: (n, sizes[n]) for n in range(105)}
    assert {i: (v, size) for i, v, size in database.run("SELECT id, v, LENGTH(b) FROM t")} == wanted
