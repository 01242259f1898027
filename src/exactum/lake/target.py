"""A table as a staged target: an epoch's rows come into it by one commit of the table, which has
the marker in it.

    <table>/.exactum/<scope>/<identity>.0.staged    what a task has written: no reader, no vacuum
                                                    and no removal of orphans looks there
    <table>/part-<identity>-0.parquet               the same file, once its epoch is decided; of an
                                                    Iceberg table in <table>/data

    hold      load the table; is it still one that may be written so?
    COMMIT    is recorded by the coordinator
    publish   marker at or past the batch: done. Else bring the files to where they stay and commit
              them, from the very snapshot that had no marker. Who comes first wins; others begin
              again, and so does who does not know whether he has committed.

An append's files are the table's own from then on. An upsert's rows are merged into the table and
the files stay for a while, as with databases. All of an epoch's parts go into one commit: a second
one of the same batch would be taken for done.
"""

from __future__ import annotations

import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exactum.errors import EpochAborted, OutcomeUnknown, SettingRefused, Unavailable
from exactum.files.partition import Partitioning
from exactum.lake.rows import Columns
from exactum.lake.types import spark_type
from exactum.protocol.model import PreparedTransaction
from exactum.sinks.staged import MovingTarget, Published, PublishFailed, StagedEpoch, StagedPart
from exactum.sinks.staging import Staging
from exactum.storage.at import storage_at
from exactum.storage.storage import Storage

COMMITS_MAX = 50
"""Tries of one commit while others commit all the time."""
PAUSE_S, PAUSE_S_MAX = 0.02, 0.5
"""Between two of them, longer each time, and by chance shorter."""
VISIBLE = re.compile(r"part-(?P<identity>.+)-\d+\.parquet")
"""A file of a task, where the table has it."""
ROW = ""
"""What no column of a table is called."""


@dataclass(frozen=True)
class BatchMarker:
    """The last batch that a table has, and which files brought it."""

    batch_id: int
    digest: int

    @staticmethod
    def of(epoch: StagedEpoch) -> BatchMarker:
        return BatchMarker(epoch.batch_id, int(epoch.digest[:15], 16))


@dataclass(frozen=True)
class DataFile:
    """A file that comes to be a table's own. ``path`` is below the table, ``folder`` names its
    partition by ``parting``, and ``stats`` are as ``TableEncoder.statistics`` says.
    """

    path: str
    size_bytes: int
    rows: int
    schema_id: int
    parting: Sequence[str]
    folder: str
    stats: Mapping[str, Any]


@dataclass(frozen=True)
class Upsert:
    """``rows`` has each key once."""

    rows: pa.Table
    key: Sequence[str]
    delete_when: str | None


class CommitConflict(Exception):
    """Another commit came first; nothing of this one is in the table."""


class CommitUnknown(Unavailable):
    """It may be in the table, or come into it if nothing else comes first."""


class TableVersion(ABC):
    """One version of a table. Its methods raise ``Unavailable`` where it cannot be reached.

    ``columns``: their types in Spark's words; None where no column of a frame has the like.
    ``wanted`` may not be null, and ``indexed`` are to have statistics. ``codec``: of its files.
    ``schema_id`` names the schema, where schemas have names. ``parting``: ``partition_by``, in
    words that stay when columns are renamed.
    """

    table_id: str
    schema_id = 0
    columns: Mapping[str, str | None]
    wanted: frozenset[str]
    indexed: frozenset[str]
    partition_by: tuple[str, ...]
    parting: tuple[str, ...]
    codec = "snappy"

    @abstractmethod
    def partitioning(self, *, upserts: bool) -> Partitioning:
        """How rows are parted among its files."""

    @abstractmethod
    def marker(self, scope: str) -> BatchMarker | None:
        """None: this version has none."""

    @abstractmethod
    def refuse(self, *, upserts: bool) -> None:
        """Refuse a table that would be wrong, or would lose the marker, by what is committed here.

        Raises:
            SettingRefused: see above.
        """

    def changed(
        self, columns: Mapping[str, str | None], facts: Mapping[str, Any], *, decided: bool
    ) -> str | None:
        """Why files with these columns do not go into it any more; ``facts``: of ``TablePlan``."""
        for name, kind in columns.items():
            if name not in self.columns:
                return f"its column {name!r} is gone"
            if self.columns[name] != kind:
                return f"its column {name!r} was {kind}"
        demands = sorted(self.wanted - columns.keys())
        return f"{demands[0]!r} is NOT NULL" if demands else None

    def try_out(self, files: Sequence[DataFile]) -> None:  # noqa: B027  (one cannot fail)
        """What can be tried before the decision, of what is done after it.

        Raises:
            SettingRefused: the table cannot get them.
        """

    @abstractmethod
    def append(self, files: Sequence[DataFile], scope: str, marker: BatchMarker | None) -> None:
        """Commit them, on top of this version.

        Raises:
            CommitConflict: another commit came first, which has this marker or does not go with it.
            CommitUnknown: see there.
        """

    def merge(self, upsert: Upsert, scope: str, marker: BatchMarker | None) -> None:
        """Likewise."""
        raise NotImplementedError

    @abstractmethod
    def files(self) -> Sequence[tuple[str, int]]:
        """Path and rows of each."""

    @abstractmethod
    def rows(self) -> Iterable[pa.RecordBatch]:
        """All rows that readers see."""

    def add_columns(self, schema: pa.Schema) -> None:
        """Raises CommitConflict: another commit came first."""
        raise NotImplementedError


class TableAccess(ABC):
    """Of one table, whether it is there or not. Its methods raise ``Unavailable``: it cannot be
    reached. ``where``: the sink, for messages. ``folder``: below the table's place, with a slash,
    where its files are.
    """

    where: str
    folder = ""
    store: Mapping[str, Any] | None

    @abstractmethod
    def location(self) -> str:
        """Its folder, or URL as ``checked_path`` makes it.

        Raises:
            SettingRefused: nobody knows; there is no table.
        """

    @abstractmethod
    def load(self) -> TableVersion | None:
        """The newest version; None: there is no table."""

    @abstractmethod
    def create(self, columns: Columns) -> None:
        """Make it. Raises CommitConflict: somebody else has."""

    def place(self) -> str | None:
        """Where its epochs are staged, as their parts have it; None: nobody but the table knows."""
        return None

    def close(self) -> None:  # noqa: B027  (one has no connections)
        """Let go of connections."""

    def storage(self) -> Storage:
        return storage_at(self.location(), self.store)


class TableTarget(MovingTarget):
    """See the base class."""

    def __init__(self, staging: Staging, access: TableAccess, *, upserts: bool) -> None:
        super().__init__(staging, staging.storage.where)
        self.takes_files = not upserts
        self._access = access
        self._load = access.load
        self._name = f"exactum:{staging.scope.query_id}:{staging.scope.participant}"

    # ---- the marker --------------------------------------------------------------------------

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        """A table that was made anew where files were committed is another one, or a folder that is
        not mounted.
        """
        table = self._load()
        marker = None if table is None else table.marker(self._name)
        if marker is not None:
            return marker.batch_id
        parts = self._staged_here(committed)
        ids = {part.facts.get("table") for part in parts}
        return -1 if parts and (table is None or ids != {table.table_id}) else None

    def forget_batches(self, first: int = 0) -> None:
        def forget(table: TableVersion) -> Published:
            if table.marker(self._name) is not None:
                table.append([], self._name, BatchMarker(-1, 0))
            return Published.DONE

        self._in_one_commit(forget)

    def close(self) -> None:
        self._access.close()

    def published(self, epoch: StagedEpoch) -> Published:
        table = self._load()
        return Published.MISSING if table is None else self._state(table, epoch)

    def lost(self, epoch: StagedEpoch, names: Collection[str]) -> Collection[str]:
        return names if _is_upsert(epoch) else super().lost(epoch, names)

    def place_of(self, part: StagedPart, number: int) -> str:
        """Flat: a reader knows partitions by the table's log, and no name needs to be escaped."""
        return f"{self._access.folder}part-{part.name.identity}-{number}.parquet"

    # ---- an epoch ----------------------------------------------------------------------------

    def hold(self, epoch: StagedEpoch) -> Published:
        """Nothing but a look: a file in the table's folder that no commit names would be removed by
        who tidies up.
        """
        table = self._there()
        state = self._state(table, epoch)
        if state is not Published.MISSING:
            return state
        try:
            why = self._changed(table, epoch, decided=False)
            if why is None:
                table.try_out(self._files(epoch))
        except FileNotFoundError:
            return Published.MISSING
        if why is not None:
            raise EpochAborted(
                f"{self.shown}: the table is not any more what the rows of batch "
                f"{epoch.batch_id} were written for: {why}. Nothing of them is visible; start the "
                "query again, which looks at the table as it is now."
            )
        return Published.DONE

    def publish(self, epoch: StagedEpoch) -> Published:
        return self._in_one_commit(lambda table: self._bring(table, epoch, BatchMarker.of(epoch)))

    def deliver(self, epoch: StagedEpoch) -> None:
        try:
            state = self._in_one_commit(lambda table: self._bring(table, epoch, None))
        except PublishFailed as failure:
            raise OutcomeUnknown(
                f"{self.shown}: batch {epoch.batch_id} may be in the table, or not: {failure}"
            ) from failure
        if state is Published.MISSING:
            raise FileNotFoundError(self.staging.where)

    # ---- small steps -------------------------------------------------------------------------

    def _there(self) -> TableVersion:
        table = self._load()
        if table is None:
            raise SettingRefused(
                "LAKE_TABLE",
                f"{self.shown}: the table is not there any more. Put it back, or see whether its "
                "storage is mounted.",
            )
        return table

    def _state(self, table: TableVersion, epoch: StagedEpoch) -> Published:
        own, marker = BatchMarker.of(epoch), table.marker(self._name)
        if marker is None or marker.batch_id < own.batch_id:
            return Published.MISSING
        is_other = marker.batch_id == own.batch_id and marker != own
        return Published.OTHER if is_other else Published.BEFORE

    def _in_one_commit(self, step: Callable[[TableVersion], Published]) -> Published:
        """The step, on a newest version.

        Raises:
            PublishFailed: it may or may not be committed.
        """
        why = ""
        try:
            for number in range(COMMITS_MAX):
                try:
                    return step(self._there())
                except CommitConflict as conflict:
                    why = str(conflict)
                    time.sleep(random.uniform(0, min(PAUSE_S_MAX, PAUSE_S * number)))
        except Unavailable as error:
            raise PublishFailed(str(error), is_transient=True) from error
        except SettingRefused as error:
            why = str(error).removesuffix(" Nothing was written.")
            raise PublishFailed(why, is_transient=False) from error
        often = (
            f"{COMMITS_MAX} tries of its commit failed, mostly behind another one. At last: {why}"
        )
        raise PublishFailed(often, is_transient=True)

    def _bring(
        self, table: TableVersion, epoch: StagedEpoch, marker: BatchMarker | None
    ) -> Published:
        state = Published.MISSING if marker is None else self._state(table, epoch)
        if state is not Published.MISSING:
            return state
        try:
            if why := self._changed(table, epoch, decided=True):
                raise SettingRefused(
                    "LAKE_TABLE",
                    f"{self.shown}: the table is not any more what rows were written for: {why}",
                )
            if _is_upsert(epoch):
                table.merge(self._upsert(epoch), self._name, marker)
            else:
                table.append(self._moved(epoch), self._name, marker)
        except CommitUnknown as unknown:
            if marker is None:
                raise
            raise CommitConflict(str(unknown)) from unknown  # the marker tells
        except FileNotFoundError:
            # Others may have committed, and a compaction taken what they have.
            return Published.MISSING if marker is None else self.published(epoch)
        return Published.DONE

    def _changed(self, table: TableVersion, epoch: StagedEpoch, *, decided: bool) -> str | None:
        """Why the rows do not go into the table any more, where they went into it when they were
        written.

        Raises:
            SettingRefused: added files would break what it has now.
            FileNotFoundError: they are not there.
        """
        part = epoch.parts[0]
        if table.table_id != part.facts.get("table"):
            return "it was made anew since they were written"
        table.refuse(upserts=_is_upsert(epoch))
        if set(table.parting) != set(part.facts["parting"]):
            return "its partition columns were others"
        parted = {name: table.columns[name] for name in table.partition_by if name in table.columns}
        columns = self._columns_of(part) | parted
        columns.pop(str(part.facts["delete_when"]), None)
        return table.changed(columns, part.facts, decided=decided)

    def _columns_of(self, part: StagedPart) -> dict[str, str | None]:
        """Raises FileNotFoundError."""
        try:
            schema = self._read(f"{self.staging.folder}/{part.name.file(0)}", pq.read_schema)
        except FileNotFoundError:  # another driver of the query may be moving it at this moment
            schema = self._read(self.place_of(part, 0), pq.read_schema)
        return {field.name: spark_type(field.type) for field in schema}

    def _moved(self, epoch: StagedEpoch) -> Sequence[DataFile]:
        """Raises FileNotFoundError: it is not whole."""
        if not self._move(epoch):
            raise FileNotFoundError(self.staging.where)
        return self._files(epoch)

    def _files(self, epoch: StagedEpoch) -> Sequence[DataFile]:
        return [
            DataFile(
                self.place_of(part, number),
                file.size_bytes,
                file.rows,
                part.facts["schema"],
                part.facts["parting"],
                file.facts.get("folder", ""),
                file.facts["stats"],
            )
            for part in epoch.parts
            for number, file in enumerate(part.files)
        ]

    def _upsert(self, epoch: StagedEpoch) -> Upsert:
        """Of each key the last row, by the number of its task and its place there."""
        names = [part.name.file(n) for part in epoch.parts for n in range(len(part.files))]
        tables = [self._read(f"{self.staging.folder}/{name}", pq.read_table) for name in names]
        rows = pa.concat_tables(tables)
        facts = epoch.parts[0].facts
        key = list(facts["key"])
        numbered = rows.select(key).append_column(ROW, pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(key).aggregate([(ROW, "max")]).column(f"{ROW}_max")
        is_last = pc.is_in(numbered.column(ROW), last)
        # To take them by number would join the chunks first, and one array has no more than 2 GiB.
        return Upsert(rows.filter(is_last), key, facts["delete_when"])

    def _read(self, name: str, read: Callable[[IO[bytes]], Any]) -> Any:
        with closing(self.staging.storage.reader(name)) as file:
            return read(file)


def _is_upsert(epoch: StagedEpoch) -> bool:
    return bool(epoch.parts[0].facts.get("key"))
