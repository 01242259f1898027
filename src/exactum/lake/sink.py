"""What the sinks of all formats of tables share: the options, whether a frame's columns go into a
table, the table that is made for them, and the way from a frame to a run.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.files.format import check_frame
from exactum.files.sink import OBJECT_BYTES_MAX, check_limit, true_place
from exactum.lake.rows import Columns, TablePlan, TableRows
from exactum.lake.target import VISIBLE, CommitConflict, TableAccess, TableTarget, TableVersion
from exactum.lake.types import arrow_type
from exactum.problem import Problem, ok
from exactum.protocol.dead_letter import DeadLetter, of_columns
from exactum.protocol.inspection import (
    Evidence,
    Finding,
    Promise,
    TransactionState,
    TransactionView,
    compared,
)
from exactum.protocol.sink import OpenSink, QueryRun
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.missing_target import refuse_anew
from exactum.sinks.sink import StagedSink
from exactum.sinks.staging import staging_at
from exactum.storage.proof import prove


class TableSink(StagedSink):
    """A table as a target. ``DeltaSink`` and ``IcebergSink`` say what the arguments mean to a user.

    where: the sink in messages. ``_part``: of the table, where it is not all of it.
    """

    _key: tuple[str, ...] = ()
    _delete_when: str | None = None
    _merge_schema = False
    _part = ""

    def __init__(
        self,
        where: str,
        name: str,
        *,
        partition_by: str | Sequence[str] | None,
        create_table: bool,
        bytes_per_file_max: int,
        store: Mapping[str, Any] | None,
        rows: Callable[[Any], Any] | None,
    ) -> None:
        self._where = where
        self._store = store
        self._partition_by = names(partition_by)
        self._create_table = create_table
        self._bytes_per_file_max = bytes_per_file_max
        check_limit("bytes_per_file_max", bytes_per_file_max, where)
        if store is not None and not isinstance(store, Mapping):
            raise self._contradiction("store= must be a mapping of settings")
        self.name = name
        self.rows = rows

    waits_in_staging = False

    def __repr__(self) -> str:
        return self._where

    def check_columns(self, columns: Columns) -> None:
        """See the port ``Sink``."""
        self._check(columns, self._partition_by)

    def open(
        self, run: QueryRun, participant: str, columns: Sequence[tuple[str, str]] = ()
    ) -> OpenSink:
        """See the port ``Sink``. Makes the table, or adds columns to it, where that was asked."""
        with ExitStack() as undo:
            access = undo.enter_context(closing(self._access()))
            opened = self._opened(access, run, participant, columns)
            undo.pop_all()
            return opened

    def _opened(
        self, access: TableAccess, run: QueryRun, participant: str, columns: Columns
    ) -> OpenSink:
        written = [column for column in columns if column[0] != self._delete_when]

        def refuse() -> None:
            refuse_anew(self._where, run, participant, access.place())

        table = self._ready(access, written, refuse)
        plan = plan_of(table, self._partition_by, self._key, self._delete_when, self._where)
        if columns:  # they name the partitions of a table that was there
            self._check(columns, table.partition_by)
        location = access.location()
        if "://" in location and self._bytes_per_file_max > OBJECT_BYTES_MAX:
            raise self._contradiction(
                f"bytes_per_file_max is more than the {OBJECT_BYTES_MAX} bytes of one copy"
            )
        target = self._target(access, run, participant)
        target.staging.open()
        rows = partial(TableRows, bytes_per_file_max=self._bytes_per_file_max)
        place = true_place(location, access.store)
        return replace(
            self.open_with(run, target, rows, plan, plan.facts),
            target=f"table {place}{self._part}",
            folder=place,
            makes_versions=True,
        )

    def target_of(self, run: QueryRun, participant: str) -> TableTarget:
        """See the base class."""
        return self._target(self._access(), run, participant)

    def evidence_of(
        self, inspector: StagedInspector, promises: Sequence[Promise]
    ) -> Sequence[Evidence]:
        """See the base class."""
        name, rows = inspector.name, self._rows_by_task()
        described = ((p, inspector.describe(p.record.of(name))) for p in promises)
        return [
            table_evidence(p, name, views, rows, upserts=bool(self._key)) for p, views in described
        ]

    def dead_letters(self) -> Iterator[DeadLetter]:
        """See ``protocol.dead_letter.DeadLetterStore``."""
        with closing(self._access()) as access:
            table = access.load()
            batches = iter(()) if table is None else table.rows()
            yield from of_columns(row for batch in batches for row in batch.to_pylist())

    def prove(self, longest_outage_s: float | None = None) -> Iterator[Problem]:
        """See ``protocol.inspection.Provable``."""
        with closing(self._access()) as access:
            table = access.load()
            if table is None:
                yield ok(self.name, "There is no table yet.")
                return
            yield from prove(access.storage(), self.name)
            table.refuse(upserts=bool(self._key))
            yield ok(self.name, "The table can be written to.")

    def _rows_by_task(self) -> Mapping[str, int]:
        """Rows of the files that the table names, by the transaction that brought them."""
        found: Counter[str] = Counter()
        with closing(self._access()) as access:
            table = access.load()
            for path, rows in [] if table is None else table.files():
                match = VISIBLE.fullmatch(path.rpartition("/")[2])
                if match is not None:
                    found[match["identity"]] += rows
        return found

    # ---- of one format -----------------------------------------------------------------------

    @abstractmethod
    def _access(self) -> TableAccess:
        """Raises SettingRefused: what it needs is not installed, or not there."""

    def _check(self, columns: Columns, partition_by: Sequence[str]) -> None:
        """Raises FrameRefused: a table parted by these cannot hold the columns."""
        check_table_columns(columns, partition_by, self._key, self._delete_when, self._where)

    # ---- small steps -------------------------------------------------------------------------

    def _target(self, access: TableAccess, run: QueryRun, participant: str) -> TableTarget:
        staging = staging_at(access.storage(), run.query_id, participant)
        return TableTarget(staging, access, upserts=bool(self._key))

    def _contradiction(self, why: str) -> SettingRefused:
        return SettingRefused("LAKE_ARGUMENT", f"{self._where}: {why}.")

    def _ready(
        self, access: TableAccess, written: Columns, refuse: Callable[[], None]
    ) -> TableVersion:
        """The table as it is written to: made, and with all columns, where that was asked.
        ``refuse``: called before it is made.
        """
        for _ in range(3):  # others may do the same at this moment
            table = access.load()
            try:
                if table is None:
                    self._create(access, written, refuse)
                    continue
                table.refuse(upserts=bool(self._key))
                more = lacking(table, written, self._where) if written else []
                if not more:
                    return table
                if not self._merge_schema:
                    raise FrameRefused(
                        "LAKE_COLUMNS",
                        f"{self._where}: the table has no column {more[0][0]!r}. Rename or "
                        "drop it in the query, or pass merge_schema=True, which adds it. Nothing "
                        "was written.",
                    )
                table.add_columns(schema_of(more))
            except CommitConflict:
                continue
        raise Unavailable(f"{self._where}: others change the table all the time. Start again.")

    def _create(self, access: TableAccess, written: Columns, refuse: Callable[[], None]) -> None:
        if not self._create_table or not written:
            why = ", and create_table=False" if written else ""
            raise SettingRefused(
                "LAKE_TABLE",
                f"{self._where}: there is no table{why}. Create it, or give another one.",
            )
        refuse()
        access.create(written)


def names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given or ())


# ---- a frame and a table ---------------------------------------------------------------------


_NO_NAME = re.compile(r"[ ,;{}()\n\t=]")
"""Characters that names of columns in Parquet's tables do not have."""
_PARTITION = re.compile(r"string|boolean|tinyint|smallint|int|bigint|date")
"""No decimals: delta-rs spells -1.05 as -1.-5 there, and cannot read it (1.6)."""
_KEY = re.compile(rf"{_PARTITION.pattern}|decimal\(.*|binary|timestamp|timestamp_ntz")


def check_table_columns(
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
            raise _refused(
                where, f"the column {name!r}: no space and none of ,;{{}}()= may stand in a name"
            )
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
        table.parting,
        table.partitioning(upserts=bool(key)),
        table.codec,
        tuple(key),
        delete_when,
    )


# ---- what a table has of an epoch ------------------------------------------------------------


BY = "table"


def table_evidence(
    promise: Promise,
    sink: str,
    views: Sequence[TransactionView],
    rows_by_file: Mapping[str, int],
    *,
    upserts: bool = False,
) -> Evidence:
    """What a table has of an epoch: by its log, the rows of the files that came with it, and by the
    marker where those are not in it any more. A merge writes files of its own.

    ``views``: of what the promise names. ``rows_by_file``: of the files that the table names, by
    the identity of their task.
    """
    batch_id, promised = promise.batch_id, promise.rows(sink)
    states = {view.state for view in views}
    found = sum(rows_by_file.get(view.identity, 0) for view in views)
    if TransactionState.PREPARED in states or TransactionState.OPEN in states:
        why = "decided, and staged: start the query, or finish it"
        return Evidence(batch_id, sink, promised, found, Finding.IN_DOUBT, BY, why)
    if states == {TransactionState.COMMITTED} and found < promised:
        why = (
            "by its marker the table got the batch; nobody counts what an upsert has merged, nor "
            "sees whether the table was rolled back to before it"
            if upserts
            else "by its marker the table got the batch, and it lacks files of it: a compaction or "
            "somebody else has rewritten them since, or it was rolled back to before the batch"
        )
        return Evidence(batch_id, sink, promised, None, Finding.UNKNOWABLE, BY, why)
    return compared(batch_id, sink, promised, found, by=BY)
