"""Narrow rows into PostgreSQL, MariaDB, files, Delta and Iceberg tables: every contender in every
round, in turn, small and large loads.

The contenders' rows come from the same Parquet files, one epoch each run, local[2]. After each run
the rows are counted; a run that is not exact ends the benchmark.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pymysql
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from bench import report
from bench.loader import (
    BULK,
    DELTA,
    DELTA_BY_HAND,
    EXACTUM,
    FILES,
    ICEBERG,
    ICEBERG_BY_HAND,
    ICEBERG_TABLE,
    JDBC,
    SPARK_DELTA,
    SPARK_FILES,
    TABLE,
    catalog_at,
)
from bench.process import Run, run
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres

ROWS = (200_000, 2_000_000)
FILES_OF_INPUT = 4
CONTENDERS = {
    "postgres": (EXACTUM, JDBC, BULK),
    "mariadb": (EXACTUM, JDBC, BULK),
    "files": (FILES, SPARK_FILES),
    "delta": (DELTA, DELTA_BY_HAND, SPARK_DELTA),
    "iceberg": (ICEBERG, ICEBERG_BY_HAND),
}
"""The last one of each is what the others are compared with."""


class Bench:
    """The servers and the inputs of one benchmark."""

    def __init__(self, stack: ExitStack, scale: float) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.postgres = stack.enter_context(LocalPostgres())
        self.mariadb = stack.enter_context(LocalMariaDB())
        self.rows = tuple(int(rows * scale) for rows in ROWS)
        for rows in self.rows:
            fill(self.folder / f"in-{rows}", rows)

    def once(self, kind: str, contender: str, rows: int) -> Run:
        """One run, and whether its rows are all there."""
        target = self.emptied(kind)
        with tempfile.TemporaryDirectory() as checkpoint:
            arguments = [contender, kind, target, str(self.folder / f"in-{rows}"), checkpoint]
            result = run(arguments, module="bench.loader")
        found = self.count(kind)
        if found != rows:
            raise RuntimeError(f"{contender} into {kind}: {found:,} rows instead of {rows:,}")
        return result

    def emptied(self, kind: str) -> str:
        if kind in ("files", "delta", "iceberg"):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            return str(self.folder / "out")
        self._run(kind, f"DROP TABLE IF EXISTS {TABLE}")
        self._run(kind, f"CREATE TABLE {TABLE} (a bigint, b bigint, c varchar(40))")
        return self.postgres.url if kind == "postgres" else self.mariadb.url

    def count(self, kind: str) -> int:
        if kind == "delta":
            return DeltaTable(self.folder / "out").count()
        if kind == "iceberg":
            catalog = load_catalog(**catalog_at(str(self.folder / "out")))
            return catalog.load_table(ICEBERG_TABLE).scan().count()
        if kind == "files":
            return int(ds.dataset(self.folder / "out", format="parquet").count_rows())
        return int(self._run(kind, f"SELECT count(*) FROM {TABLE}")[0][0])

    def _run(self, kind: str, sql: str) -> Sequence[tuple[int]]:
        if kind == "postgres":
            with psycopg.connect(self.postgres.url, autocommit=True) as connection:
                cursor = connection.execute(sql.encode())
                return cursor.fetchall() if cursor.description else []
        server = self.mariadb
        mysql = pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database="exactum",
        )
        with mysql, mysql.cursor() as asked:
            asked.execute(sql)
            return asked.fetchall()


def fill(folder: Path, rows: int) -> None:
    """Files of (bigint, bigint, 19 characters)."""
    folder.mkdir()
    each = rows // FILES_OF_INPUT
    for number in range(FILES_OF_INPUT):
        first = number * each
        numbers = range(first, first + each)
        table = pa.table(
            {"a": numbers, "b": [n * 7 for n in numbers], "c": [f"text-{n:014d}" for n in numbers]}
        )
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=100_000)


def bench(rounds: int, scale: float = 1.0, kinds: Sequence[str] = tuple(CONTENDERS)) -> None:
    with ExitStack() as stack:
        place = Bench(stack, scale)
        for kind in kinds:
            contenders = CONTENDERS[kind]
            runs: dict[str, list[tuple[Run, Run]]] = defaultdict(list)
            for number in range(rounds):
                turn = number % len(contenders)
                for contender in contenders[turn:] + contenders[:turn]:
                    small, large = (place.once(kind, contender, rows) for rows in place.rows)
                    runs[contender].append((small, large))
                    report.console.print(
                        f"{kind} round {number + 1}/{rounds} {contender:22} {small.wall_s:6.2f} s "
                        f"{large.wall_s:6.2f} s"
                    )
            show(kind, contenders, place.rows, runs)


def show(
    kind: str,
    contenders: Sequence[str],
    rows: Sequence[int],
    runs: dict[str, list[tuple[Run, Run]]],
) -> None:
    base = [large.wall_s for _, large in runs[contenders[-1]]]
    drawn = []
    for contender in contenders:
        large = [large.wall_s for _, large in runs[contender]]
        more = [large.wall_s - small.wall_s for small, large in runs[contender]]
        drawn.append(
            [
                contender,
                report.spread([small.wall_s for small, _ in runs[contender]]),
                report.spread(large),
                report.ratios(large, base),
                report.spread([(rows[1] - rows[0]) / 1000 / seconds for seconds in more], 0),
                report.spread([large.cpu_s for _, large in runs[contender]]),
            ]
        )
    report.table(
        f"{rows[0]:,} and {rows[1]:,} narrow rows into {kind}, local[2]: median (min to max)",
        [
            "contender",
            "wall s, small",
            "wall s, large",
            f"ratio to {contenders[-1]}",
            "steady k/s",
            "CPU s, large",
        ],
        drawn,
    )
