"""Types that users make of others: a value is no less safe in them than in what they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from exactum.errors import EpochAborted, FrameRefused
from exactum.sql.postgres.sink import PostgresSink
from tests.kit.sql.postgres_server import Database
from tests.kit.sql.sql_epochs import Query
from tests.sql.postgres.test_rows import kept_and_refused

pytestmark = pytest.mark.postgres

TYPES = (
    "DOMAIN price AS numeric(9,2)",
    "DOMAIN discount AS price CHECK (VALUE < 100)",
    "DOMAIN filled AS price NOT NULL",
    "DOMAIN filled_deep AS filled",
    "DOMAIN code AS varchar(3)",
    "DOMAIN prices AS numeric(9,2)[]",
    "TYPE tempo AS ENUM ('slow', 'quick')",
    "DOMAIN pace AS tempo",
    "DOMAIN own_pace AS pace",
    "TYPE amount AS (value numeric(9,2), currency char(3))",
    "DOMAIN checked_amount AS amount",
)


@pytest.fixture
def made(database: Database) -> Iterator[Database]:
    """A database with ``TYPES`` in it."""
    _drop(database)
    for definition in TYPES:
        database.run(f"CREATE {definition}")
    yield database
    database.drop_all()
    _drop(database)


def _drop(database: Database) -> None:
    for definition in reversed(TYPES):
        kind, name = definition.split()[:2]
        database.run(f"DROP {kind} IF EXISTS {name}")


MONEY = pa.array([Decimal("1.2300"), Decimal("1.2390"), None], pa.decimal128(12, 4))


@pytest.mark.parametrize(
    ("sql_type", "spark_type", "values", "kept", "words"),
    [
        ("discount", "decimal(12,4)", MONEY, ["1.23", None], ["holds 2 digits after the point"]),
        (
            "discount",
            "decimal(12,4)",
            pa.array([Decimal("99.99"), Decimal("100")], pa.decimal128(12, 4)),
            ["99.99"],
            ["discount_check"],
        ),
        (
            "price[]",
            "array<decimal(12,4)>",
            pa.array([[Decimal("1.23"), None], [Decimal("1.239")]], pa.list_(pa.decimal128(12, 4))),
            ["{1.23,NULL}"],
            ["an element that it cannot take: it holds 2 digits"],
        ),
        (
            "discount[]",
            "array<decimal(12,4)>",
            pa.array([[Decimal("1.23")], [Decimal("100")]], pa.list_(pa.decimal128(12, 4))),
            ["{1.23}"],
            ["discount_check"],
        ),
        (
            "prices",
            "array<decimal(12,4)>",
            pa.array([[Decimal("1.23")], [Decimal("1.239")]], pa.list_(pa.decimal128(12, 4))),
            ["{1.23}"],
            ["holds 2 digits after the point"],
        ),
        (
            "filled_deep",
            "decimal(12,4)",
            MONEY,
            ["1.23"],
            ["holds 2 digits after the point", "must not be null"],
        ),
        (
            "code[]",
            "array<string>",
            pa.array([["abc"], ["abc   "]]),
            ["{abc}"],
            ["it holds 3 characters"],
        ),
        ("own_pace", "string", pa.array(["slow", "fast"]), ["slow"], ["holds one of slow, quick"]),
    ],
)
def test_what_a_made_type_holds(
    made: Database, sql_type: str, spark_type: str, values: Any, kept: list[Any], words: list[str]
) -> None:
    """A domain of a domain, an array of domains: the limits are those of what they are made of, and
    nothing is rounded or cut.
    """
    found, reasons = kept_and_refused(made, sql_type, spark_type, values)
    assert found == kept
    assert len(reasons) == len(words), reasons
    for reason, word in zip(reasons, words, strict=True):
        assert word in reason


@pytest.mark.parametrize(
    ("sql_type", "spark_type", "text"),
    [
        ("discount", "string", "1.239"),
        ("price[]", "array<string>", ["1.239"]),
        ("amount", "string", "(1.239,EUR)"),
        ("amount[]", "array<string>", ["(1.239,EUR)"]),
        ("checked_amount", "string", "(1.239,EUR)"),
        ("xid8", "string", "none"),
        ("tid", "string", "(-1,1)"),
    ],
)
def test_what_the_server_would_round_within(
    made: Database, sql_type: str, spark_type: str, text: Any
) -> None:
    """Text for a row of fields, or for a number under another name, is refused before the first
    row.
    """
    with pytest.raises(FrameRefused, match="cannot take it"):
        kept_and_refused(made, sql_type, spark_type, pa.array([text]))


def replaced(database: Database, table: str, digits: int) -> None:
    """The column ``v`` gets another domain, under the name of the one that it had."""
    database.run("ALTER DOMAIN rate RENAME TO rate_before")
    database.run(f"CREATE DOMAIN rate AS numeric(12,{digits})")
    database.run(f"ALTER TABLE {table} ALTER v TYPE rate")


@pytest.fixture
def rates(database: Database) -> Iterator[Database]:
    database.run("DROP DOMAIN IF EXISTS rate, rate_before")
    yield database
    database.drop_all()
    database.run("DROP DOMAIN IF EXISTS rate, rate_before")


def query_of(database: Database, table: str, value: str) -> Query:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1]), pa.array([Decimal(value)], pa.decimal128(12, 4))], names=["k", "v"]
    )
    return Query(
        lambda: PostgresSink(database.url, table=table),
        "rates",
        (("k", "bigint"), ("v", "decimal(12,4)")),
        lambda batch_id: [[batch]],
    )


def test_a_type_that_is_replaced_while_the_query_runs(rates: Database) -> None:
    """A column of the same type's name is not of the same type: nothing is rounded."""
    rates.run("CREATE DOMAIN rate AS numeric(12,4)")
    table = rates.table("k bigint, v rate")
    driver = query_of(rates, table, "1.2345").start()
    driver.run(0)
    replaced(rates, table, 2)
    before = rates.rows(f"SELECT * FROM {table}")
    with pytest.raises(EpochAborted, match=r"(?s)column 'v' .*another type.*start the query"):
        driver.run(1)
    driver.close()
    assert rates.rows(f"SELECT * FROM {table}") == before


def test_a_type_that_is_replaced_between_two_starts(rates: Database) -> None:
    """What the new type holds arrives."""
    rates.run("CREATE DOMAIN rate AS numeric(12,2)")
    table = rates.table("k bigint, v rate")
    query = query_of(rates, table, "1.2345")
    driver = query.start()
    driver.run(0)
    driver.close()
    assert rates.rows(f"SELECT * FROM {table}") == []
    assert len(driver.write.rejections) == 1
    replaced(rates, table, 4)
    following = query.start()
    following.run(1)
    following.close()
    assert rates.rows(f"SELECT * FROM {table}") == [(1, Decimal("1.2345"))]
    assert query.staged() == []
