"""Values through a sink into every type of column of a server: a plain reader finds each as the oracle
says, or its row is put aside with the column named, and nothing else is there.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from exactum.sql.table import Column, TableName
from tests.kit.abuse import mariadb_columns, postgres_columns
from tests.kit.abuse.columns import REFUSED, Target
from tests.kit.abuse.frames import BIGINT, Frame
from tests.kit.abuse.kinds import Kind, Raw, from_arrow, same
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.sql import mysql_server, postgres_server
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query

Pair = tuple[Target, Kind]
Way = Mapping[str, Any]
UPSERT: Way = {"mode": "upsert", "key": "id"}
COLUMNS = 8
ZONE = "America/New_York"
_tables = itertools.count(1)


@dataclass(frozen=True)
class Server:
    """``ways``: how rows come into a table. ``created``: the column that is made of a type."""

    name: str
    database: SqlDatabase
    targets: Sequence[Target]
    created: Callable[[Kind], Target]
    ways: Sequence[Way]

    def quoted(self, name: str) -> str:
        mark = '"' if self.name == "PostgreSQL" else "`"
        return mark + name.replace(mark, mark * 2) + mark

    def pairs(self) -> list[Pair]:
        return [(target, kind) for target in self.targets for kind in target.kinds]

    def columns(self) -> dict[str, Column]:
        """As the sink reads them from the server's catalog, by their declarations."""
        listed = ", ".join(f"c{n} {target.declared}" for n, target in enumerate(self.targets))
        name = self.database.table(listed)
        dialect = self.database.dialect
        session = dialect.connect(self.database.address, "test", 5.0)
        try:
            table = dialect.read_table(session, TableName(None, name))
        finally:
            session.close()
        assert table is not None
        return {t.declared: c for t, c in zip(self.targets, table.columns, strict=True)}


@contextmanager
def postgres_server_of(server: LocalPostgres) -> Iterator[Server]:
    with postgres_server.Database.cleaned(server) as database:
        drop_types(database)
        for definition in postgres_columns.TYPES:
            database.run(f"CREATE {definition}")
        ways: Sequence[Way] = ({}, UPSERT)
        made = postgres_columns
        yield Server("PostgreSQL", database, made.TARGETS, made.created, ways)
        database.clean()
        drop_types(database)


def drop_types(database: SqlDatabase) -> None:
    for definition in reversed(postgres_columns.TYPES):
        kind, name = definition.split()[:2]
        database.run(f"DROP {kind} IF EXISTS {name}")


@contextmanager
def mariadb_server_of(server: LocalMariaDB) -> Iterator[Server]:
    with mysql_server.Database.made(server) as database:
        ways: Sequence[Way] = ({}, {"connect": {"local_infile": False}}, UPSERT)
        made = mariadb_columns
        yield Server("MariaDB", database, made.TARGETS, made.created, ways)


@dataclass
class Tally:
    seed: int
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        c = self.counts
        return (
            f"seed {self.seed}: {c['rows']} rows, {c['stored']} stored, {c['put aside']} put "
            "aside, 0 altered"
        )


def framed(pairs: Sequence[Pair], values: Sequence[list[Raw]]) -> Frame:
    """``id`` counts the rows."""
    names = ("id", *(f"c{n}" for n in range(len(pairs))))
    count = len(values[0])
    kinds = (BIGINT, *(kind for _, kind in pairs))
    return Frame(names, kinds, (list(range(count)), *values), count)


def put_aside(query: Query, frame: Frame) -> dict[int, str]:
    """Its two epochs are run: the reason for each row of the frame that came back, unaltered."""
    reasons: dict[int, str] = {}
    for rejection in query.run(0, 1):
        ids = rejection.rows.column("id").to_pylist()
        columns = [
            from_arrow(k, rejection.rows.column(n))
            for k, n in zip(frame.kinds, frame.names, strict=True)
        ]
        for row, values, reason in zip(
            ids, zip(*columns, strict=True), rejection.reasons, strict=True
        ):
            assert row not in reasons, f"row {row} was put aside twice"
            assert all(map(same, frame.kinds, values, frame.row(row))), (
                f"row {row} came back altered"
            )
            assert reason.startswith(f"the row with id={row}: "), reason
            reasons[row] = reason
    assert query.staged() == []
    return reasons


def played(server: Server, pairs: Sequence[Pair], frame: Frame, way: Way, tally: Tally) -> None:
    """Write the frame as two epochs of two tasks, and compare what a plain client finds."""
    targets = [target for target, _ in pairs]
    declared = ", ".join(f"c{n} {target.declared}" for n, target in enumerate(targets))
    table = server.database.table(f"id bigint PRIMARY KEY, {declared}")
    quarter = -(-frame.count // 4)
    whole = frame.batch(ZONE)  # a slice has an offset into its buffers, as Spark's have
    tasks = [[whole.slice(n * quarter, quarter)] for n in range(4)]
    query = Query(lambda: server.database.sink(table, **way), tuple(frame.columns))
    query.tasks = lambda batch_id: tasks[2 * batch_id : 2 * batch_id + 2]
    reasons = put_aside(query, frame)
    read = ", ".join(target.read.format(c=f"c{n}") for n, target in enumerate(targets))
    rows = server.database.rows(f"SELECT id, {read} FROM {table}")
    kinds = frame.kinds[1:]
    found = {number: list(map(Target.seen_of, targets, kinds, row)) for number, *row in rows}
    assert len(found) == len(rows), f"{table}: a row is there twice"
    assert len(found) + len(reasons) == frame.count, "a row is missing, or there are too many"
    tally.counts.update({"rows": frame.count, "stored": len(found), "put aside": len(reasons)})

    def told(row: int) -> str:
        said = (
            f"{str(raw)[:200]} ({kind} into {target.declared})"
            for target, kind, raw in zip(targets, kinds, frame.row(row)[1:], strict=True)
        )
        return f"seed {tally.seed}, {table}, row {row}: {'; '.join(said)}"

    for row in range(frame.count):
        wanted = list(map(Target.read_of, targets, kinds, frame.row(row)[1:]))
        if row not in reasons:
            assert REFUSED not in wanted, f"{told(row)}: stored as {found[row]}, and cannot be held"
            assert found[row] == wanted, f"{told(row)}: reads {found[row]} for {wanted}"
        else:
            guilty = [f"c{n}" for n, reading in enumerate(wanted) if reading is REFUSED]
            is_named = any(name in reasons[row] for name in guilty)
            assert is_named, f"{told(row)}: put aside without need: {reasons[row]}"


def new_name() -> str:
    return f"shape{next(_tables)}"
