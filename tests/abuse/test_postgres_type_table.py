"""The tables of docs/reference/types.md about PostgreSQL say what the rules do, and the rules what the
server does.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from exactum.errors import FrameRefused
from exactum.sql.columns import matched
from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.table import Column, Table, TableName
from tests.kit.abuse.frames import edges
from tests.kit.abuse.kinds import Kind
from tests.kit.abuse.postgres_columns import columns_of
from tests.kit.abuse.postgres_oracle import TYPES, holds
from tests.kit.abuse.postgres_type_table import BEGIN, END, broken_by, groups, section
from tests.kit.sql.postgres_server import Database, database

__all__ = ["database"]

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"


def test_the_page_is_made_from_the_rules(database: Database) -> None:
    """To make it anew after a rule has changed: EXACTUM_WRITE_DOCS=1 and this test."""
    text = PAGE.read_text()
    made = section(columns_of(database))
    before, _, rest = text.partition(BEGIN)
    if os.environ.get("EXACTUM_WRITE_DOCS"):
        PAGE.write_text(before + made + rest.partition(END)[2])
        text = PAGE.read_text()
    assert made in text


def test_every_cell_is_what_the_server_does(database: Database) -> None:
    """A pair that is not taken is refused at start; a taken one breaks a rule exactly if the oracle
    says it must.

    That the server then holds each value of each pair that is taken, unaltered, is shown by
    ``test_postgres_rows``.
    """
    columns = columns_of(database)
    for kind in [kind for _, kinds in groups() for kind in kinds if not kind.of]:
        for type_ in TYPES:
            if not PostgresDialect().takes(columns[type_], kind.simple):
                with pytest.raises(FrameRefused):
                    matched(
                        table_of(columns[type_]),
                        [(columns[type_].name, kind.simple)],
                        PostgresDialect(),
                        "here",
                    )
            elif not type_.endswith("[]") and type_ not in ("inet", "interval", "json", "jsonb"):
                refused = [value for value in edges(kind) if not holds(kind, type_, value)]
                assert bool(broken_by(columns[type_], kind)) == bool(refused), (
                    f"{kind} into {type_}"
                )


def table_of(column: Column) -> Table:
    return Table(TableName(None, "t"), (column,))


def test_what_nothing_takes(database: Database) -> None:
    """Types of Spark that have no column here are refused at start, whatever the column."""
    for column in columns_of(database).values():
        for simple in (
            "interval day to second",
            "interval year to month",
            "variant",
            "void",
            "time(6)",
            "geometry(0)",
        ):
            assert not PostgresDialect().takes(column, Kind(simple).simple)
            nested = (
                f"array<{simple}>",
                f"struct<a:{simple}>",
                f"map<string,{simple}>",
                f"struct<a:int,b:array<{simple}>>",
            )
            if simple not in ("void", "time(6)"):  # these have JSON: null, and text
                assert not any(PostgresDialect().takes(column, text) for text in nested)
        assert PostgresDialect().takes(column, "struct<interval:int,variant:string>") == (
            column.type in ("json", "jsonb")
        )
