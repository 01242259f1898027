"""One of each kind of target, which the matrices of this folder are played over: its sink, a plain
reader of what it shows, and what an accident may do to it.

Every target is given the same rows, (id, name), in the form that it takes; ``rows`` gives them back.
"""

from __future__ import annotations

import copyreg
import io
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore
from pyiceberg.exceptions import NoSuchTableError
from two_phase_commit_sink import JsonFolderSink

from exactum import DeltaSink, FileSink, KafkaSink, WriteAheadSink
from exactum.kafka.writer import TransactionalWriter
from exactum.local import LocalKafka
from exactum.protocol.model import PreparedTransaction, Sighting, new_incarnation
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Sink, Writer
from tests.kit.custom.custom_rows import published
from tests.kit.custom.noted_target import Target as NotedTarget
from tests.kit.files.epochs_in_files import duck, hidden, visible
from tests.kit.kafka.transactions import read_all
from tests.kit.lake.iceberg import Lake
from tests.kit.opened_sink import OpenedSink
from tests.kit.sql import mysql_server, postgres_server
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, Columns, Query, tasks_of
from tests.kit.staged_files import waiting

Row = tuple[int, str]
NAME = "out"
DAY: Columns = (*ID_AND_NAME, ("day", "string"))
Undo = Callable[[], None]


class Target(ABC):
    """At a place of its own below ``folder``. What the hooks of ``SinkContract`` are is told there."""

    columns: Columns = ID_AND_NAME
    stalls_in_tasks = True
    keeps = False
    """Whether files of visible batches are kept, for a target that loses them."""

    # What commands say of it, and can do there.
    waits = "prepared"
    """The state of what is decided and not visible."""
    undone = "gone"
    """The state of what was lost after that. ``unknown``: it does not say what became of one."""
    counted = True
    finished = True
    """Whether a command can commit what is decided there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.staging = folder / "staging"

    @abstractmethod
    def sink(self) -> Sink:
        """As a restarted program makes it."""

    @abstractmethod
    def rows(self) -> list[Row]:
        """What a plain reader finds."""

    def frame(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Of (id, name), as this sink takes it."""
        if self.columns is not DAY:
            return batch
        days = ["a" if number % 2 else "b" for number in batch.column("id").to_pylist()]
        return batch.append_column("day", pa.array(days, pa.string()))

    def reset(self) -> None:  # noqa: B027  (a new place is empty)
        """Nothing is there."""

    def letters(self) -> Sink | None:
        """For dead letters; None: no command reads them there."""
        return None

    def leftovers(self) -> Sequence[object]:
        """What is neither visible nor gone."""
        return ()

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        """Behind exactum's back."""
        participant.abort(
            [Sighting(p.participant, p.identity, new_incarnation(), p.payload) for p in prepared]
        )

    def kill_task(self, writer: Writer) -> None:  # noqa: B027
        """What the system takes back of a dead process."""

    # ---- of those that have a marker ---------------------------------------------------------

    def copied(self) -> Undo:
        """A copy is made of the target as it is now; call what is returned to put that back."""
        raise NotImplementedError

    def made_anew(self) -> None:
        """Without its rows and its marker."""
        self.reset()

    def compacted(self) -> None:
        """Somebody takes all rows that readers see."""
        raise NotImplementedError

    def staged(self) -> list[str]:
        """What holds rows that wait, in the order of their names."""
        return [str(path) for path in waiting(self.folder)]

    def content(self, name: str) -> bytes:
        """Of something staged."""
        return Path(name).read_bytes()

    def put(self, name: str, content: bytes | None) -> None:
        """In place of what is staged there; None: nothing is."""
        Path(name).write_bytes(content) if content is not None else Path(name).unlink()

    # ---- what tests do with it ---------------------------------------------------------------

    def tasks(self, batch_id: int) -> list[list[pa.RecordBatch]]:
        """Each batch has rows of its own, in three tasks."""
        return [[self.frame(batch) for batch in task] for task in tasks_of(batch_id)]

    def query(self) -> Query:
        """Its decision log is in memory."""
        return Query(
            self.sink,
            columns=self.columns,
            tasks=self.tasks,
            participant=NAME,
            staging=self.staging,
        )

    def opened(self, query: Query, **more: Any) -> OpenedSink:
        """Another driver of the query, step by step."""
        given = {"query_id": query.query_id, "name": NAME, **more}
        return OpenedSink(self.sink(), self.columns, staging=query.storage_of_rows, **given)


def pairs(table: pa.Table) -> list[Row]:
    return [(row["id"], row["name"]) for row in table.to_pylist()]


def unlink(paths: Iterator[Path]) -> None:
    for path in list(paths):
        path.unlink()


class FolderTarget(Target):
    """Of a target that is a folder, ``table``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = folder / "table"

    def reset(self) -> None:
        shutil.rmtree(self.table, ignore_errors=True)

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for one in prepared:
            unlink(self.folder.rglob(f"{one.identity}.*"))

    def copied(self) -> Undo:
        there = {path: path.read_bytes() for path in self.table.rglob("*") if path.is_file()}

        def put_back() -> None:
            for path in [p for p in self.table.rglob("*") if p.is_file() and p not in there]:
                path.unlink()
            for path, content in there.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)  # in place: a catalog's database is open

        return put_back


class Files(FolderTarget):
    columns = DAY

    def compacted(self) -> None:
        for name in visible(self.table):
            (self.table / name).unlink()

    def sink(self) -> Sink:
        return FileSink(self.table, partition_by="day", rows=lambda frame: frame)

    def letters(self) -> Sink:
        return FileSink(self.folder / "letters", format="json")

    def rows(self) -> list[Row]:
        return list(duck(self.table, "id, name")) if visible(self.table) else []

    def leftovers(self) -> Sequence[object]:
        return hidden(self.table)


_stores: dict[int, MemoryStore] = {}


def _store(number: int) -> MemoryStore:
    return _stores[number]


# A copy of a store in memory is another handle to the same memory, as with a store on the network.
copyreg.pickle(MemoryStore, lambda store: (_store, (id(store),)))


class Objects(Target):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = MemoryStore()
        _stores[id(self.store)] = self.store

    def sink(self) -> Sink:
        return FileSink("memory://bucket/table", store=self.store)

    def letters(self) -> Sink:
        return FileSink("memory://bucket/letters", format="json", store=self.store)

    def rows(self) -> list[Row]:
        names = [n for n in self._names() if not n.startswith(".exactum/")]
        return [
            row for name in names for row in pairs(pq.read_table(io.BytesIO(self.content(name))))
        ]

    def reset(self) -> None:
        obstore.delete(self.store, self._names())

    def leftovers(self) -> Sequence[object]:
        return [n for n in self._names() if n.endswith(".staged")]

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        lost = {p.identity for p in prepared}
        named = [n for n in self._names() if n.rpartition("/")[2].partition(".")[0] in lost]
        obstore.delete(self.store, named)

    def copied(self) -> Undo:
        kept = {name: self.content(name) for name in self._names()}

        def put_back() -> None:
            self.reset()
            for name, content in kept.items():
                obstore.put(self.store, name, content)

        return put_back

    def compacted(self) -> None:
        obstore.delete(self.store, [n for n in self._names() if not n.startswith(".exactum/")])

    def staged(self) -> list[str]:
        return sorted(n for n in self._names() if n.endswith(".staged"))

    def content(self, name: str) -> bytes:
        return bytes(obstore.get(self.store, name).bytes())

    def put(self, name: str, content: bytes | None) -> None:
        if content is None:
            obstore.delete(self.store, name)
        else:
            obstore.put(self.store, name, content)

    def _names(self) -> list[str]:
        return [str(m["path"]) for chunk in obstore.list(self.store) for m in chunk]


class Delta(FolderTarget):
    columns = DAY
    settings: ClassVar[dict[str, Any]] = {}

    def sink(self) -> Sink:
        return DeltaSink(self.table, partition_by="day", **self.settings)

    def letters(self) -> Sink:
        return DeltaSink(self.folder / "letters")

    def rows(self) -> list[Row]:
        """By delta-rs alone: what a reader of the table's log finds."""
        if not DeltaTable.is_deltatable(str(self.table)):
            return []
        return pairs(DeltaTable(str(self.table)).to_pyarrow_table(columns=["id", "name"]))

    def leftovers(self) -> Sequence[object]:
        """Files that no version names are garbage as well."""
        if not self.table.exists():
            return []
        named = {Path(uri).name for uri in DeltaTable(str(self.table)).file_uris()}
        found = [f for f in self.table.rglob("*.parquet") if f.name not in named]
        return [*found, *self.table.rglob("*.staged")]

    def compacted(self) -> None:
        DeltaTable(str(self.table)).delete()


class DeltaUpsert(Delta):
    settings: ClassVar[dict[str, Any]] = {"mode": "upsert", "key": "id"}

    def leftovers(self) -> Sequence[object]:
        """Files that a merge has replaced stay, and all that was staged of the last four batches:
        also what a driver wrote that woke up late.
        """
        return ()


class Iceberg(FolderTarget):
    columns = DAY

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.lake = Lake(self.table)

    def sink(self) -> Sink:
        return self.lake.sink(partition_by="day")

    def letters(self) -> Sink:
        return self.lake.sink()

    def rows(self) -> list[Row]:
        """By pyiceberg alone: what a reader of the table finds."""
        try:
            return pairs(self.lake.read())
        except NoSuchTableError:
            return []

    def leftovers(self) -> Sequence[object]:
        """Files that no snapshot names are garbage as well."""
        try:
            named = {Path(t.file.file_path).name for t in self.lake.table.scan().plan_files()}
        except NoSuchTableError:
            return []
        found = [f for f in self.lake.data.rglob("*.parquet") if f.name not in named]
        return [*found, *self.lake.staged()]

    def reset(self) -> None:
        self.lake.catalog.close()
        super().reset()
        self.lake = Lake(self.table)

    def compacted(self) -> None:
        self.lake.table.delete()


class Table(Target):
    """Of a database, in either mode."""

    stalls_in_tasks = False
    keeps = True

    def __init__(self, folder: Path, database: SqlDatabase, **settings: Any) -> None:
        super().__init__(folder)
        self.database = database
        self.settings = settings
        key = "PRIMARY KEY" if settings else "NOT NULL"
        self.name = database.table(f"id bigint {key}, name varchar(60)")

    def sink(self) -> Sink:
        return self.database.sink(self.name, **self.settings)

    def letters(self) -> Sink:
        return self.database.sink("letters", create_table=True)

    def rows(self) -> list[Row]:
        return [(i, n) for i, n in self.database.rows(f"SELECT id, name FROM {self.name}")]

    def reset(self) -> None:
        self.database.run(f"DELETE FROM {self.name}")
        shutil.rmtree(self.staging, ignore_errors=True)

    def leftovers(self) -> Sequence[object]:
        return waiting(self.staging)

    def lose(self, participant: Participant, prepared: Sequence[PreparedTransaction]) -> None:
        for one in prepared:
            unlink(self.staging.glob(f"*/{one.identity}.0.staged"))

    def made_anew(self) -> None:
        """The files that wait are the query's."""
        self.database.run(f"DELETE FROM {self.name}")
        self.database.run("DELETE FROM exactum_ledger")

    def compacted(self) -> None:
        self.database.run(f"DELETE FROM {self.name}")

    def kill_task(self, writer: Writer) -> None:
        """The system closes a dead process's connections; that is all that ``abort`` does here."""
        writer.abort()

    def copied(self) -> Undo:
        last = self.database.value("SELECT max(batch_id) FROM exactum_ledger")
        there = [i for i, _ in self.rows()]

        def put_back() -> None:
            self.database.run("DELETE FROM exactum_ledger WHERE batch_id > %s", [last])
            for row in {i for i, _ in self.rows()} - set(there):
                self.database.run(f"DELETE FROM {self.name} WHERE id = %s", [row])

        return put_back


class Kafka(Target):
    """Rows of one text column."""

    columns = (("value", "string"),)
    waits = "open"
    undone = "aborted"

    def __init__(self, folder: Path, kafka: LocalKafka, topic: Callable[..., str]) -> None:
        super().__init__(folder)
        self.kafka = kafka
        self._new_topic = lambda: topic("contract", partitions=2)
        self.topic = self._new_topic()

    def sink(self) -> Sink:
        return KafkaSink(self.topic, bootstrap_servers=self.kafka.bootstrap_servers)

    letters = sink

    def frame(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"value": [f"{r['id']} {r['name']}" for r in batch.to_pylist()]})

    def rows(self) -> list[Row]:
        read = read_all(self.kafka.bootstrap_servers, self.topic, open_ones=True)
        parts = [(record.value or b"").decode().partition(" ") for record in read]
        return [(int(number), name) for number, _, name in parts]

    def reset(self) -> None:
        self.topic = self._new_topic()

    def kill_task(self, writer: Writer) -> None:
        """Its process is gone, and its transaction open: the producer ends without a word."""
        if isinstance(writer, TransactionalWriter):
            owned, writer._owned = writer._owned, None
            if owned is not None:
                writer._pool.let_go(owned)
            writer._pool.leave(writer)


class TwoPhase(Target):
    """The worked example of the documentation."""

    undone = "unknown"
    counted = False

    def sink(self) -> Sink:
        return JsonFolderSink(self.folder)

    def rows(self) -> list[Row]:
        return [row for row in published(self.folder) if isinstance(row, tuple)]

    def reset(self) -> None:
        unlink(self.folder.rglob("*.jsonl"))

    def leftovers(self) -> Sequence[object]:
        return list(self.folder.glob(".temporary/*"))


class WriteAhead(FolderTarget):
    """Toward a target that keeps the keys."""

    counted = False

    def sink(self) -> Sink:
        send = NotedTarget(self.table).send
        return WriteAheadSink(send, name="api", rows_per_send_max=2, backoff_ms=0, tries_max=2)

    def rows(self) -> list[Row]:
        return [(i, n) for i, n in NotedTarget(self.table).deduplicated()]

    def reset(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        self.table.unlink(missing_ok=True)

    def leftovers(self) -> Sequence[object]:
        """What a stalled task has half written is swept when it is old."""
        return [file for file in waiting(self.staging) if file.suffix != ".tmp"]


# ---- the list ------------------------------------------------------------------------------------

Request = pytest.FixtureRequest
DRIVER_SWEEP = "test_every_fault_at_every_call_of_the_driver"
RECOVERY_SWEEP = "test_every_fault_at_every_call_of_a_recovery"
SWEEPS = frozenset(
    {
        DRIVER_SWEEP,
        RECOVERY_SWEEP,
        "test_every_fault_at_every_call_of_a_task",
        "test_a_task_may_die_at_every_call_and_is_tried_again",
        "test_two_drivers_at_once",
    }
)


@dataclass(frozen=True)
class Kind:
    """``deep``: the tests of ``SinkContract`` that take minutes with it."""

    made: Callable[[Request, Path], Any]
    marks: tuple[Any, ...] = ()
    deep: frozenset[str] = frozenset()
    is_deep: bool = False


def of_folder(make: Callable[[Path], Target], **more: Any) -> Kind:
    return Kind(lambda request, folder: nullcontext(make(folder)), **more)


@contextmanager
def iceberg(request: Request, folder: Path) -> Iterator[Target]:
    target = Iceberg(folder)
    yield target
    target.lake.catalog.close()


def kafka(request: Request, folder: Path) -> AbstractContextManager[Target]:
    fixtures = map(request.getfixturevalue, ("kafka", "topic"))
    return nullcontext(Kafka(folder, *fixtures))


def of_table(server: str, **settings: Any) -> Kind:
    @contextmanager
    def made(request: Request, folder: Path) -> Iterator[Target]:
        databases: Any = (
            postgres_server.Database.cleaned if server == "postgres" else mysql_server.Database.made
        )
        with databases(request.getfixturevalue(server)) as database:
            # A stalled driver's locks end when the server ends its transaction; here soon.
            database.end_idle_soon(request.getfixturevalue("monkeypatch"))
            yield Table(folder, database, **settings)

    return Kind(made, (getattr(pytest.mark, server),), deep=SWEEPS)


UPSERT = {"mode": "upsert", "key": "id"}
# A folder, a table of Delta and one of Iceberg have one participant and one writer: each commit plays
# a sweep of tasks and of recoveries with a folder, and of Delta those of what is its own.
TARGETS = {
    "kafka": Kind(kafka, (pytest.mark.broker,), deep=SWEEPS),
    "postgres": of_table("postgres"),
    "postgres-upsert": of_table("postgres", **UPSERT),
    "mariadb": of_table("mariadb"),
    "mariadb-upsert": of_table("mariadb", **UPSERT),
    "folder": of_folder(Files),
    "objects": of_folder(Objects, deep=frozenset({RECOVERY_SWEEP})),
    "delta": of_folder(Delta, deep=SWEEPS - {DRIVER_SWEEP, "test_two_drivers_at_once"}),
    "delta-upsert": of_folder(DeltaUpsert, is_deep=True),
    "iceberg": Kind(iceberg, deep=SWEEPS),
    "two-phase": of_folder(TwoPhase),
    "write-ahead": of_folder(WriteAhead),
}
TABLES = ["postgres", "mariadb"]
LAKE = ["delta", "iceberg"]
UPSERTS = ["postgres-upsert", "mariadb-upsert"]
MARKED = [*TABLES, "folder", "objects", *LAKE]
"""Their marker moves with the rows, so that a target that was put back is known by it."""
STAGED = [*MARKED, "write-ahead"]
"""Their rows wait in files."""
FRAMED = [*TABLES, "write-ahead"]
"""These files hold rows in frames of exactum's own."""


def over(*names: str, test: str = "") -> list[Any]:
    """Parameters for the fixture ``target``; none: all."""

    def marks(kind: Kind) -> list[Any]:
        is_deep = kind.is_deep or test in kind.deep
        return [*kind.marks, pytest.mark.slow, *([pytest.mark.deep] if is_deep else [])]

    return [pytest.param(name, id=name, marks=marks(TARGETS[name])) for name in names or TARGETS]
