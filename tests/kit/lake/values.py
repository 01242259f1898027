"""Values of every type that a column of a table may have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from exactum.lake.types import arrow_type

Kinds = Mapping[str, st.SearchStrategy[Any]]
CONTEXT = Context(prec=60)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INSTANTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
DAYS = st.integers(-719_162, 2_932_896)


def whole(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def digits(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    bound = 10**precision - 1
    return st.integers(-bound, bound).map(lambda n: Decimal(n).scaleb(-scale, CONTEXT))


MICROS = timedelta(microseconds=1)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": whole(8),
    "smallint": whole(16),
    "int": whole(32),
    "bigint": whole(64),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": TEXTS,
    "binary": st.binary(max_size=20),
    "date": DAYS.map(lambda n: date(1970, 1, 1) + timedelta(n)),
    "timestamp": INSTANTS.map(lambda n: (EPOCH + n * MICROS).replace(tzinfo=timezone.utc)),
    "timestamp_ntz": INSTANTS.map(lambda n: EPOCH + n * MICROS),
    "decimal(9,2)": digits(9, 2),
    "decimal(38,10)": digits(38, 10),
    "decimal(38,38)": digits(38, 38),
}
NESTED: dict[str, st.SearchStrategy[Any]] = {
    "array<int>": st.lists(st.none() | whole(32), max_size=3),
    "map<string,double>": st.dictionaries(
        TEXTS, st.none() | st.floats(allow_nan=False), max_size=3
    ),
    "struct<a:smallint,b:array<string>>": st.fixed_dictionaries(
        {"a": st.none() | whole(16), "b": st.none() | st.lists(TEXTS, max_size=2)}
    ),
}
KINDS = SCALARS | NESTED


def rows_of(kinds: Kinds) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(
        st.tuples(*(st.none() | strategy for strategy in kinds.values())), min_size=1, max_size=6
    )


def batch_of(rows: Sequence[tuple[Any, ...]], kinds: Kinds) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(list(c), arrow_type(k)) for c, k in zip(columns, kinds, strict=True)],
        names=[f"c{n}" for n in range(len(kinds))],
    )


def asked_of(batch: pa.RecordBatch, kinds: Kinds) -> dict[str, pa.Array]:
    """For each column that a reader may be asked for: one of its values."""
    asked: dict[str, pa.Array] = {}
    for name, kind in zip(batch.schema.names, kinds, strict=True):
        values = batch.column(name).drop_null()
        if kind in SCALARS and kind != "binary" and len(values) and values[0] == values[0]:
            asked[name] = values.slice(0, 1)
    return asked
