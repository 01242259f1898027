"""One of each kind of target, with what an operator, its readers and an accident may do to it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from obstore.store import MemoryStore

from exactum import (
    DeltaSink,
    FileSink,
    KafkaSink,
    MySQLSink,
    PostgresSink,
    SparkTableSink,
    TableTransaction,
    WriteAheadSink,
)
from exactum.local import LocalKafka
from exactum.protocol.sink import Sink
from exactum.storage.at import storage_at
from exactum.storage.storage import Storage
from tests.kit.kafka.transactions import read_all
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server, postgres_server
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import ID_AND_NAME, tasks_of
from tests.kit.transactions import own_sinks
from tests.kit.verify.recorded_query import RecordedQuery
from tests.kit.waiting import WAIT_MAX_S

SINK = "out"
Columns = Sequence[tuple[str, str]]


@dataclass
class OperatedTarget:
    """``make``: the sink, as a restarted program makes it. ``seen``: the names that readers see.
    ``undo``: takes away by hand what waits of these transactions; they are then said to be in the
    state ``undone``. ``counted``: whether rows can be counted there. ``finished``: whether a command can
    commit what is decided there. ``dead_letter_sink``: a sink for dead letters; None: no command reads
    them there.
    """

    make: Callable[[], Sink]
    seen: Callable[[], list[str]]
    undo: Callable[[RecordedQuery, Sequence[str]], None]
    waits: str = "prepared"
    undone: str = "gone"
    counted: bool = True
    finished: bool = True
    dead_letter_sink: Callable[[], Sink] | None = None
    columns: Columns = ID_AND_NAME
    tasks: Callable[[int], Sequence[Sequence[Any]]] = tasks_of

    def query(self, folder: Path) -> RecordedQuery:
        return RecordedQuery(folder, {SINK: (self.make, self.columns, self.tasks)})


TARGETS = [
    pytest.param("kafka", marks=pytest.mark.broker),
    pytest.param("postgres", marks=pytest.mark.postgres),
    pytest.param("mysql", marks=pytest.mark.mariadb),
    "folder",
    "objects",
    "delta",
    pytest.param("spark-table", marks=pytest.mark.spark),
    "write-ahead",
    "two-phase",
]


def made(kind: str, request: pytest.FixtureRequest, folder: Path) -> OperatedTarget:
    match kind:
        case "kafka":
            return _kafka(request.getfixturevalue("kafka"), request.getfixturevalue("topic"))
        case "postgres" | "mysql":
            return _table(request.getfixturevalue(f"{kind}_database"))
        case "folder":
            out = folder / "out"
            return _files(lambda: FileSink(out, format="json"), storage_at(out))
        case "objects":
            store = MemoryStore()
            url = "memory://bucket/out"
            sink = lambda: FileSink(url, format="json", store=store)  # noqa: E731
            return _files(sink, storage_at(url, store))
        case "delta":
            return _delta(folder / "table")
        case "spark-table":
            request.getfixturevalue("spark")
            return _spark_table(folder / "table")
        case "write-ahead":
            return _write_ahead(folder)
    return _two_phase(folder)


def databases(kind: str, request: pytest.FixtureRequest) -> Any:
    if kind == "postgres":
        server: LocalPostgres = request.getfixturevalue("postgres")
        return postgres_server.Database.cleaned(server)
    return mysql_server.Database.made(request.getfixturevalue("mariadb"))


def _kafka(kafka: LocalKafka, topic: Callable[..., str]) -> OperatedTarget:
    servers, name, dead = kafka.bootstrap_servers, topic("out", partitions=2), topic("dead")

    def tasks(batch_id: int) -> list[list[pa.RecordBatch]]:
        of_task = [[batch.column("name") for batch in task] for task in tasks_of(batch_id)]
        return [[pa.record_batch({"value": names}) for names in task] for task in of_task]

    def undo(query: RecordedQuery, identities: Sequence[str]) -> None:
        for identity in identities:  # a new producer of that id has the broker abort it
            own = {"transactional.id": identity.partition("@")[0], "log_level": 0}
            Producer({"bootstrap.servers": servers, **own}).init_transactions(WAIT_MAX_S)

    return OperatedTarget(
        lambda: KafkaSink(name, bootstrap_servers=servers),
        lambda: sorted(
            (record.value or b"").decode() for record in read_all(servers, name, open_ones=True)
        ),
        undo,
        waits="open",
        undone="aborted",
        dead_letter_sink=lambda: KafkaSink(dead, bootstrap_servers=servers),
        columns=(("value", "string"),),
        tasks=tasks,
    )


def _table(database: SqlDatabase) -> OperatedTarget:
    table = database.table()
    kind = PostgresSink if database.dialect.name == "PostgreSQL" else MySQLSink
    return OperatedTarget(
        lambda: kind(database.url, table=table),
        lambda: sorted(name for (name,) in database.rows(f"SELECT name FROM {table}")),
        _remove_staged,
        dead_letter_sink=lambda: kind(database.url, table="letters", create_table=True),
    )


def _remove_staged(query: RecordedQuery, identities: Sequence[str]) -> None:
    query.remove_staged()


def _files(make: Callable[[], FileSink], storage: Storage) -> OperatedTarget:
    return OperatedTarget(
        make, lambda: _names_in(storage), lambda *_: _remove_hidden(storage), dead_letter_sink=make
    )


def _names_in(storage: Storage) -> list[str]:
    found: list[str] = []
    for entry in storage.entries():
        if entry.name.startswith("part-"):
            with storage.reader(entry.name) as file:
                found += [json.loads(line)["name"] for line in file]
    return sorted(found)


def _remove_hidden(storage: Storage) -> None:
    names = [f".exactum/{e.name}" for e in storage.entries(".exactum")]
    storage.delete([name for name in names if name.endswith(".staged")])


def _delta(table: Path) -> OperatedTarget:
    def seen() -> list[str]:
        return sorted(DeltaTable(str(table)).to_pyarrow_table().column("name").to_pylist())

    return OperatedTarget(
        lambda: DeltaSink(table),
        seen,
        lambda *_: _remove_hidden(storage_at(table)),
        dead_letter_sink=lambda: DeltaSink(table.with_name("letters")),
    )


def _spark_table(table: Path) -> OperatedTarget:
    """Each micro-batch is a folder of its own, which is written again as it was."""

    def write(rows: Any, transaction: TableTransaction) -> None:
        own = table / transaction.app_id.replace(":", "-") / str(transaction.version)
        rows.write.mode("overwrite").parquet(str(own))

    def seen() -> list[str]:
        files = table.rglob("*.parquet")
        return sorted(name for file in files for name in pq.read_table(file)["name"].to_pylist())

    return OperatedTarget(
        lambda: SparkTableSink(write, name="table"),
        seen,
        _remove_staged,
        counted=False,
        finished=False,
    )


def _write_ahead(folder: Path) -> OperatedTarget:
    sent = folder / "sent"

    def send(batch: Any, key: str) -> None:
        with sent.open("a") as file:
            file.writelines(f"{name}\n" for name in batch.column("name").to_pylist())

    return OperatedTarget(
        lambda: WriteAheadSink(send, name="ahead"),
        lambda: sorted(sent.read_text().splitlines()) if sent.exists() else [],
        _remove_staged,
        counted=False,
    )


def _two_phase(folder: Path) -> OperatedTarget:
    for name in ("open", "done"):
        (folder / name).mkdir()

    def undo(query: RecordedQuery, identities: Sequence[str]) -> None:
        for path in (folder / "open").iterdir():
            path.unlink()

    def seen() -> list[str]:
        files = (folder / "done").iterdir()
        return sorted(line for path in files for line in path.read_text().splitlines())

    return OperatedTarget(own_sinks.folders, seen, undo, undone="unknown", counted=False)
