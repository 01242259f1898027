"""What the sinks of all formats of tables share: the options, and the way from a frame to a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

from exactum.errors import FrameRefused, SettingRefused, Unavailable
from exactum.files.place import reach_folder, staging_at
from exactum.files.sink import OBJECT_BYTES_MAX, check_limit, true_place
from exactum.lake import frame
from exactum.lake.evidence import table_evidence
from exactum.lake.rows import Columns, TableWriters
from exactum.lake.target import VISIBLE, CommitConflict, TableAccess, TableTarget, TableVersion
from exactum.problem import Problem, ok
from exactum.protocol.dead_letter import DeadLetter, of_columns
from exactum.protocol.evidence import Evidence, Promise
from exactum.protocol.inspection import Inspector
from exactum.protocol.sink import DEAD_LETTER_COLUMNS, NotAFunction, OpenSink, QueryRun
from exactum.sinks.inspection import StagedInspector
from exactum.sinks.staged import StagedParticipant
from exactum.storage.proof import prove
from exactum.storage.storage import Storage


class TableSink(NotAFunction, ABC):
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

    dead_letter_columns = DEAD_LETTER_COLUMNS

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
        table = self._ready(access, written)
        plan = frame.plan_of(table, self._partition_by, self._key, self._delete_when, self._where)
        if columns:  # they name the partitions of a table that was there
            self._check(columns, table.partition_by)
        location = access.location()
        is_local = "://" not in location
        if not is_local and self._bytes_per_file_max > OBJECT_BYTES_MAX:
            raise self._contradiction(
                f"bytes_per_file_max is more than the {OBJECT_BYTES_MAX} bytes of one copy"
            )
        staging = staging_at(access.storage(), run.query_id, participant)
        staging.open()
        place = true_place(location, access.store)
        return OpenSink(
            StagedParticipant(staging, TableTarget(staging, access, upserts=bool(self._key))),
            TableWriters(staging, plan, self._bytes_per_file_max),
            f"table {place}{self._part}",
            {"folder": place} if is_local else {},
            reach_folder(run.query_id),
            folder=place,
            makes_versions=True,
        )

    def inspector(
        self, query_id: str, participant: str, staging: Storage | None = None
    ) -> Inspector:
        """See ``protocol.inspection.Inspectable``."""
        access = self._access()
        own = staging_at(access.storage(), query_id, participant)

        def count(promises: Sequence[Promise]) -> Sequence[Evidence]:
            rows = self._rows_by_task()
            described = ((p, inspector.describe(p.record.of(participant))) for p in promises)
            return [table_evidence(p, participant, views, rows) for p, views in described]

        inspector = StagedInspector(own, TableTarget(own, access, upserts=bool(self._key)), count)
        return inspector

    waits_in_staging = False

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
        frame.check_columns(columns, partition_by, self._key, self._delete_when, self._where)

    # ---- small steps -------------------------------------------------------------------------

    def _contradiction(self, why: str) -> SettingRefused:
        return SettingRefused("LAKE_ARGUMENT", f"{self._where}: {why}.")

    def _ready(self, access: TableAccess, written: Columns) -> TableVersion:
        """The table as it is written to: made, and with all columns, where that was asked."""
        for _ in range(3):  # others may do the same at this moment
            table = access.load()
            try:
                if table is None:
                    self._create(access, written)
                    continue
                table.refuse(upserts=bool(self._key))
                more = frame.lacking(table, written, self._where) if written else []
                if not more:
                    return table
                if not self._merge_schema:
                    raise FrameRefused(
                        "LAKE_COLUMNS",
                        f"{self._where}: the table has no column {more[0][0]!r}. Drop it in the "
                        "query, or pass merge_schema=True. Nothing was written.",
                    )
                table.add_columns(frame.schema_of(more))
            except CommitConflict:
                continue
        raise Unavailable(f"{self._where}: others change the table all the time. Start again.")

    def _create(self, access: TableAccess, written: Columns) -> None:
        if not self._create_table or not written:
            why = ", and create_table=False" if written else ""
            raise SettingRefused(
                "LAKE_TABLE",
                f"{self._where}: there is no table{why}. Create it, or give another one.",
            )
        access.create(written)


def names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name, or several."""
    return (given,) if isinstance(given, str) else tuple(given or ())
