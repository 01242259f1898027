"""The columns of several views side by side in one frame, and each view's own again in the tasks.

Workers import this module, so it imports neither pyspark nor pyarrow at module level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def named(place: int, columns: Sequence[str]) -> list[str]:
    """What the columns of the view at ``place`` are called next to those of others: no two views
    share a name.
    """
    return [f"{place}:{column}" for column in columns]


def mask(place: int) -> str:
    """The name of the boolean column that is true where the view at ``place`` has the row, if it
    leaves rows out.
    """
    return f"{place}?"


def of_view(batch: Any, place: int) -> Any:
    """The Arrow record batch that the view at ``place`` would give alone, of one with all views'
    columns.

    Its columns are those of ``batch``, without a copy, unless the view leaves rows out.
    """
    import pyarrow as pa

    prefix = f"{place}:"
    fields = [
        (number, field)
        for number, field in enumerate(batch.schema)
        if field.name.startswith(prefix)
    ]
    own = pa.RecordBatch.from_arrays(
        [batch.column(number) for number, _ in fields],
        schema=pa.schema([field.with_name(field.name.removeprefix(prefix)) for _, field in fields]),
    )
    has_row = batch.schema.get_field_index(mask(place))
    return own if has_row < 0 else own.filter(batch.column(has_row))
