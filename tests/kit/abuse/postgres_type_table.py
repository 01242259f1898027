"""The tables of docs/reference/types.md that say which Spark type goes into which column of PostgreSQL,
made from the rules.

A cell is made by playing the odd values of a type (``frames.edges``) against a column as the
catalog describes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa

from exactum.sql.postgres.dialect import PostgresDialect
from exactum.sql.rows import TableRules
from exactum.sql.table import Column
from tests.kit.abuse.frames import ATOMIC, BAD_TEXT, DECIMALS, edges
from tests.kit.abuse.kinds import Kind, array, map_, struct_, to_arrow
from tests.kit.abuse.postgres_oracle import JSON_TYPES, SCALAR_TYPES, TYPES

BEGIN, END = "<!-- made from the rules: tests/abuse/postgres_type_table.py -->", "<!-- end -->"
COLLATED = Kind("string collate UTF8_LCASE")
NESTED = (
    struct_({"a": Kind("string")}),
    map_(Kind("string"), Kind("date")),
    array(struct_({"a": Kind("string")})),
)
GENERAL = {
    r"numeric\(.*\)": "numeric(p,s)",
    r"character varying\(\d\)": "varchar(n)",
    r"character\(\d\)": "char(n)",
    r"timestamp(\(\d\))? without time zone": r"timestamp\1",
    r"timestamp(\(\d\))? with time zone": r"timestamptz\1",
    r"time without time zone": "time",
    r"(timestamp|timestamptz)\(\d\)": r"\1(p)",
}
"""A type of the tests -> how the page calls it."""


def section(columns: Mapping[str, Column]) -> str:
    """Both tables, as they stand in the page."""
    lines = [
        BEGIN,
        "| Spark | takes every value | refuses the rows that it cannot hold |",
        "|---|---|---|",
    ]
    for name, kinds in groups():
        whole, partly = _sorted_out(kinds, columns)
        lines.append(f"| {name} | {', '.join(whole)} | {', '.join(partly)} |")
    lines += ["", "| column | what it holds |", "|---|---|"]
    for called, says in _rules(columns).items():
        lines.append(f"| {called} | {'; '.join(dict.fromkeys(says))} |")
    return "\n".join([*lines, END])


def groups() -> Iterator[tuple[str, tuple[Kind, ...]]]:
    """The rows of the first table."""
    for kind in ATOMIC:
        yield kind.name, (kind, COLLATED) if kind.name == "string" else (kind,)
        if kind.name == "double":
            yield "decimal", DECIMALS
    yield "struct, map, array", NESTED


def broken_by(column: Column, kind: Kind) -> list[str]:
    """The rules of the column that an odd value of the type breaks."""
    if kind in NESTED:
        text = Kind("string")
        raw = [(value,) for value in edges(text)]
        values = to_arrow(struct_({"a": text}), raw)
    else:
        values = to_arrow(kind, [*edges(kind), None], "America/New_York")
    rules = TableRules((column,), ("v",))
    found = list(rules.broken(column, values))
    assert rules.split(pa.RecordBatch.from_arrays([values], ["v"]))[0].num_rows >= 1
    return [broken.rule for broken in found]


def _sorted_out(
    kinds: tuple[Kind, ...], columns: Mapping[str, Column]
) -> tuple[list[str], list[str]]:
    whole: dict[str, None] = {}
    partly: dict[str, None] = {}
    for type_ in TYPES:
        if type_.endswith("[]") or not all(
            PostgresDialect().takes(columns[type_], kind.simple) for kind in kinds
        ):
            continue
        exact = not any(broken_by(columns[type_], kind) for kind in kinds)
        (whole if exact else partly)[called(type_)] = None
    return [name for name in whole if name not in partly], list(partly)


def _rules(columns: Mapping[str, Column]) -> dict[str, list[str]]:
    """What each type's column holds, in the words of its reasons."""
    said: dict[str, list[str]] = {}
    for type_ in (*SCALAR_TYPES, *JSON_TYPES):
        for kind in (*ATOMIC, *DECIMALS, *NESTED):
            if kind.name == "date" and type_ != "date":  # a day as its midnight
                continue
            if PostgresDialect().takes(columns[type_], kind.simple):
                said.setdefault(type_, []).extend(broken_by(columns[type_], kind))
    return {type_: says for type_, says in said.items() if says}


def called(type_: str) -> str:
    for pattern, name in GENERAL.items():
        type_ = re.sub(f"^{pattern}$", name, type_)
    return type_


__all__ = ["BAD_TEXT", "BEGIN", "END", "section"]
