"""Rows go in COPY's binary format where each column has one, and are then what they are as text."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted
from exactum.sinks.frames import FrameReader, FrameWriter
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.rows import CHUNK_ROWS, CopyEncoder, binary_rows
from exactum.sql.postgres.session import PostgresSession
from exactum.sql.table import Column, TableName
from exactum.storage.folder import Folder
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import expected, new_staging

pytestmark = pytest.mark.postgres

FIRST_ROW = 5 << 40
FRAME: list[tuple[str, Any, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False]),
    ("smallint", pa.int8(), [-128, 0, 127]),
    ("smallint", pa.int16(), [-(2**15), 2**15 - 1]),
    ("integer", pa.int32(), [-(2**31), 2**31 - 1]),
    ("bigint", pa.int64(), [-(2**63), 2**63 - 1, 0]),
    ("bigint", pa.int16(), [-1, 1]),
    ("real", pa.float32(), [1.5, -0.0, 1e-45, math.inf, math.nan]),
    ("double precision", pa.float64(), [0.1, 5e-324, -math.inf, math.nan, -0.0]),
    ("double precision", pa.float32(), [0.10000000149011612, 3.4028234663852886e38]),
    ("double precision", pa.int32(), [-(2**31), 7]),
    ("numeric", pa.int64(), [-(2**63), 2**63 - 1, 0, 10_000, -9_999]),
    ("numeric", pa.int8(), [-128, 0]),
    ("numeric(10,2)", pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.01"), Decimal(0)]),
    ("numeric", pa.decimal128(18, 18), [Decimal("0.123456789012345678"), Decimal("-1e-18")]),
    ("numeric", pa.decimal128(18, 0), [Decimal(10**18 - 1), Decimal(10_000)]),
    ("numeric(20,6)", pa.decimal128(15, 5), [Decimal("-1234567890.12345"), Decimal("100.5")]),
    ("numeric", pa.decimal128(4, 3), [Decimal("9.999"), Decimal("-0.500")]),
    ("date", pa.date32(), [-2_440_588, 0, 10_957, 2_145_042_905]),
    ("timestamp(3)", pa.timestamp("us"), [-210_866_803_200_000_000, 0, 946_684_800_123_000]),
    ("timestamp", pa.date32(), [-2_440_588, 0, 10_957]),
    ("timestamptz", pa.timestamp("us", "America/New_York"), [-1, 253_402_300_799_999_999]),
    ("text", pa.string(), ["", " ", "Grüße, 世界, 🎈", 'say "so",\n\\N', "x" * 5_000]),
    ("varchar(5)", pa.large_string(), ["", "äöüßé", "five."]),
    ("char(4)", pa.string(), ["", "ab", "four", "four   "]),
    ('text COLLATE "C"', pa.string(), ["c", "C"]),
    ("bytea", pa.binary(), [b"", b"\x00\xff\\x41", bytes(range(256))]),
    ("bytea", pa.large_binary(), [b"\\", b"\xff\xff"]),
]  # fmt: skip
"""A column's type, the Arrow type that comes, and odd values of it."""
AS_TEXT: list[tuple[str, Any]] = [
    ("text[]", pa.list_(pa.string())),
    ("jsonb", pa.string()),
    ("uuid", pa.string()),
    ("time", pa.string()),
    ("numeric(38,2)", pa.decimal128(38, 2)),
]
"""What has no binary form here, so that its table is sent as CSV."""


def session_of(database: Database) -> PostgresSession:
    session = PostgresDialect().connect(database.address, "test", 5.0)
    assert isinstance(session, PostgresSession)
    return session


def columns_of(database: Database, table: str) -> tuple[Column, ...]:
    session = session_of(database)
    found = PostgresDialect().read_table(session, TableName(None, table))
    session.close()
    assert found is not None
    return tuple(c for c in found.columns if not c.name.startswith("exactum_"))


def drawn(rows: int, nulls: float) -> list[pa.Array]:
    rng = random.Random(rows)
    arrays = []
    for _, kind, values in FRAME:
        kept = [None if rng.random() < nulls else rng.choice(values) for _ in range(rows)]
        arrays.append(pa.array(kept, kind))
    return arrays


def loaded(
    database: Database, columns: Sequence[str], batches: Sequence[pa.RecordBatch]
) -> tuple[str, str]:
    """Load the batches into a new table. Returns its name and the format that they went in."""
    listed = ["exactum_row bigint", *(f"c{n} {t}" for n, t in enumerate(columns))]
    table = database.table(", ".join(listed))
    read = columns_of(database, table)
    encoder = CopyEncoder(read, batches[0].schema.types, FIRST_ROW)
    storage = Folder(str(new_staging()))
    storage.open()
    stream = storage.create("rows")
    frames = FrameWriter(stream, encoder.header)
    for batch in batches:
        assert encoder.write(batch, frames) is None
    stream.finish()
    session = session_of(database)
    with storage.reader("rows") as file:
        reader = FrameReader(file)
        header = json.dumps(reader.header)
        PostgresDialect().load(session, TableName(None, table), header, iter(reader))
    session.commit()
    session.close()
    return table, reader.header["format"]


@pytest.mark.variants(1)
@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
def test_binary_rows_are_what_text_makes_of_them(database: Database, nulls: float) -> None:
    """Every column that has a binary form, together: the same rows beside an array, which sends all
    of them as text, are the same rows to the byte. Slices, a batch of more rows than are sent at
    once, batches with and without nulls.
    """
    rows = CHUNK_ROWS + 1_003 if nulls == 0.3 else 1_003
    names = [f"c{n}" for n in range(len(FRAME) + 1)]
    whole = pa.RecordBatch.from_arrays(drawn(rows, nulls), names[:-1])
    plain = pa.RecordBatch.from_arrays(drawn(500, 0.0), names[:-1])
    batches = [
        whole.slice(0, 1),
        whole.slice(1, 1),
        whole.slice(2),
        plain,
        plain,
        whole.slice(7, 0),
    ]
    sql_types = [sql_type for sql_type, _, _ in FRAME]
    binary, as_binary = loaded(database, sql_types, batches)
    with_array = [
        pa.RecordBatch.from_arrays([*b.columns, pa.nulls(b.num_rows, pa.list_(pa.string()))], names)
        for b in batches
    ]
    text, as_text = loaded(database, [*sql_types, "text[]"], with_array)
    assert (as_binary, as_text) == ("binary", "csv")
    listed = ", ".join(["exactum_row", *names[:-1]])
    stored = {
        table: database.value(
            f"SELECT md5(string_agg(t::text, E'\\n' ORDER BY exactum_row)) FROM (SELECT {listed} "
            f"FROM {table}) t"
        )
        for table in (binary, text)
    }
    assert stored[binary] == stored[text]
    assert database.rows(f"SELECT count(*), min(exactum_row) FROM {binary}") == [
        (rows + 1_000, FIRST_ROW)
    ]
    bits = database.value(  # of NaN, which is equal to any other
        f"SELECT count(*) FROM {binary} b JOIN {text} t USING (exactum_row) WHERE "
        "float4send(b.c6) IS DISTINCT FROM float4send(t.c6) OR "
        "float8send(b.c7) IS DISTINCT FROM float8send(t.c7) OR "
        "numeric_send(b.c13) IS DISTINCT FROM numeric_send(t.c13)"
    )
    assert bits == 0


@pytest.mark.parametrize(("sql_type", "kind"), AS_TEXT)
def test_other_columns_go_as_text(database: Database, sql_type: str, kind: Any) -> None:
    """One of them is enough."""
    table = database.table(f"a bigint, b {sql_type}")
    columns = columns_of(database, table)
    assert binary_rows(columns, [pa.int64(), kind], False) is None
    assert binary_rows(columns[:1], [pa.int64()], False) is not None


@pytest.mark.parametrize(
    ("column", "became"),
    [
        ("id", "double precision"),  # of the same width: it would be read without a word
        ("id", "timestamp USING NULL"),
        ("id", "integer"),
        ("name", "bytea USING NULL"),
        ("name", "integer USING NULL"),
    ],
)
def test_a_column_that_was_changed_under_a_query(
    database: Database, column: str, became: str
) -> None:
    """The bytes of a bigint are not taken for those of a double: the query says what happened."""
    table = database.table()
    driver = database.query(table).start()
    driver.run(0)
    database.run(f"ALTER TABLE {table} ALTER {column} TYPE {became}")
    with pytest.raises(EpochAborted, match="has another type than at the query's start"):
        driver.run(1)
    driver.close()
    assert database.value(f"SELECT count(*) FROM {table}") == len(expected([0]))
