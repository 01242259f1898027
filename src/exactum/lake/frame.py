"""Whether a frame's columns go into a table, and the table that is made for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from exactum.errors import FrameRefused, SettingRefused
from exactum.files.format import check_frame
from exactum.lake.rows import Columns, TablePlan
from exactum.lake.target import TableVersion
from exactum.lake.types import arrow_type

_NO_NAME = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that names of columns in Parquet's tables do not have."""
_PARTITION = re.compile(r"string|boolean|tinyint|smallint|int|bigint|date")
"""No decimals: delta-rs spells -1.05 as -1.-5 there, and cannot read it (1.6)."""
_KEY = re.compile(rf"{_PARTITION.pattern}|decimal\(.*|binary|timestamp|timestamp_ntz")


def check_columns(
    columns: Columns,
    partition_by: Sequence[str],
    key: Sequence[str],
    delete_when: str | None,
    where: str,
) -> None:
    """What the frame alone tells.

    Raises:
        FrameRefused: a table cannot hold a column, or it does not go with an argument.
    """
    check_frame(columns, partition_by, where)
    kinds = dict(columns)
    if delete_when is not None and kinds.pop(delete_when, None) != "boolean":
        raise _refused(where, f"delete_when={delete_when!r} must name a boolean column")
    for name, kind in kinds.items():
        if _NO_NAME.search(name):
            raise _refused(where, f"the column {name!r} has a name that tables do not have")
        try:
            arrow_type(kind)
        except ValueError:
            why = f"the column {name!r} has the type {kind}, which no column of a table holds"
            raise _refused(where, why) from None
    for setting, names, rule in (
        ("key", key, _KEY),
        ("partition_by", partition_by, _PARTITION),
    ):
        for name in names:
            if not rule.fullmatch(kinds.get(name, "")):
                why = f"the column {name!r} of type {kinds.get(name, '(it is not there)')}"
                raise _refused(where, f"{setting} cannot have {why}")


def _refused(where: str, why: str) -> FrameRefused:
    return FrameRefused(
        "LAKE_COLUMNS",
        f"{where}: {why}. Rename, cast or drop it in the query. Nothing was written.",
    )


def schema_of(columns: Columns) -> pa.Schema:
    """Of a new table. All may be null."""
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns])


def lacking(table: TableVersion, columns: Columns, where: str) -> Columns:
    """The columns that the table has not, all of which it could get.

    Raises:
        FrameRefused: a column is of another type there, or one that must have a value is missing.
    """
    spelled: Mapping[str, str] = {name.lower(): name for name in table.columns}
    for name, kind in columns:
        found = spelled.get(name.lower())
        if found not in (name, None):
            raise _refused(where, f"the column {name!r} is called {found!r} in the table")
        if found is not None and table.columns[name] != kind:
            there = table.columns[name] or "a type that no frame has"
            raise _refused(where, f"the column {name!r} is {kind}, and {there} in the table")
    missing = sorted(table.wanted - {name for name, _ in columns})
    if missing:
        why = f"the table's column {missing[0]!r} is NOT NULL, and the frame lacks it"
        raise FrameRefused("LAKE_COLUMNS", f"{where}: {why}. Add it. Nothing was written.")
    return [(name, kind) for name, kind in columns if name not in table.columns]


def plan_of(
    table: TableVersion,
    partition_by: Sequence[str],
    key: Sequence[str],
    delete_when: str | None,
    where: str,
) -> TablePlan:
    """
    Raises:
        SettingRefused: the table is parted by other columns than the sink.
    """
    if partition_by and tuple(partition_by) != tuple(table.partition_by):
        raise SettingRefused(
            "LAKE_TABLE",
            f"{where}: partition_by={list(partition_by)!r}, and the table is partitioned by "
            f"{list(table.partition_by)!r}. Leave it out, or make the table anew. Nothing was "
            "written.",
        )
    return TablePlan(
        table.table_id,
        table.schema_id,
        tuple((name, kind) for name, kind in table.columns.items() if kind is not None),
        table.wanted,
        table.indexed,
        table.partition_by,
        table.partitioning(),
        table.codec,
        tuple(key),
        delete_when,
    )
