"""PostgreSQL's columns as the sink knows them, and the Spark types that each takes."""

from __future__ import annotations

from typing import Any

from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.postgres.sink import PostgresSink
from exactum.sql.session import Role
from exactum.sql.table import Column, TableName
from tests.kit.abuse.frames import ALL
from tests.kit.abuse.kinds import Kind
from tests.kit.abuse.postgres_oracle import READ_BY_THE_SERVER, TYPES


def columns_of(database: Any) -> dict[str, Column]:
    """What the sink knows of a column of each type."""
    table = database.table(", ".join(f'"{n}" {type_}' for n, type_ in enumerate(TYPES)))
    session = PostgresDialect().connect(
        PostgresSink(database.url, table=table).address, Role.DRIVER, "test", 1.0
    )
    read = PostgresDialect().read_table(session, TableName(None, table))
    session.close()
    assert read is not None
    return dict(zip(TYPES, read.columns, strict=True))


def cells(database: Any) -> list[tuple[Kind, str]]:
    """Each Spark type with each type of column that takes it, but text that the server alone can
    read.
    """
    columns = columns_of(database)
    return [
        (kind, type_)
        for kind in ALL
        for type_ in TYPES
        if PostgresDialect().takes(columns[type_], kind.simple)
        and not (kind.is_text and type_.removesuffix("[]") in READ_BY_THE_SERVER)
    ]
