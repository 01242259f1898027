"""The bank's own books: what was transferred, and what each of the targets says, read by plain
clients.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from confluent_kafka import KafkaError, Message
from deltalake import DeltaTable

from tests.kit.crash import oracle
from tests.kit.kafka.broker import producer_to
from tests.kit.lake.iceberg import Lake
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres
from tests.kit.staged_files import waiting
from tests.kit.targets.api import Api
from tests.kit.waiting import WAIT_MAX_S

ACCOUNTS = [f"account-{n}" for n in range(6)]
TABLE = "postings"
COLUMNS = "id bigint NOT NULL, account varchar(20) NOT NULL, amount bigint"
Posting = tuple[int, str, int]
"""(id of the transfer, account, amount)"""


@dataclass
class Transfers:
    """Transfers in a topic, and the postings that must come of them. ``positions`` are
    (partition, offset).
    """

    topic: str
    seed: int
    postings: list[Posting] = field(default_factory=list)
    positions: dict[oracle.Position, int] = field(default_factory=dict)
    count: int = 0

    def produce(self, bootstrap_servers: str, count: int, timeout_s: float = WAIT_MAX_S) -> None:
        chance = random.Random(self.seed + self.count)
        producer = producer_to(bootstrap_servers, {"log_level": 0})
        for number in range(self.count, self.count + count):
            source, target = chance.sample(ACCOUNTS, 2)
            amount = chance.randint(1, 10_000)
            self.postings += [(number, target, amount), (number, source, -amount)]
            value = {"id": number, "source": source, "target": target, "amount": amount}

            def delivered(error: KafkaError | None, message: Message, number: int = number) -> None:
                assert error is None, error
                self.positions[message.partition(), message.offset()] = number

            producer.produce(self.topic, json.dumps(value), source, on_delivery=delivered)
        assert producer.flush(timeout_s) == 0
        self.count += count
        assert len(self.positions) == self.count

    def before(self, ends: Mapping[int, int]) -> list[Posting]:
        """The postings of what lies before these offsets, by partition."""
        there = {
            number
            for (partition, offset), number in self.positions.items()
            if offset < ends.get(partition, 0)
        }
        return [posting for posting in self.postings if posting[0] in there]


@dataclass(frozen=True)
class Targets:
    """Where the postings go. ``kinds``: those of them that the query writes to; ``folder``: for
    files and the tables of a lake.
    """

    bootstrap_servers: str
    topic: str
    postgres: LocalPostgres
    mysql: LocalMariaDB
    database: str
    folder: Path
    kinds: Collection[str]
    api: Api | None = None

    @property
    def files(self) -> Path:
        return self.folder / "lake"

    @property
    def delta(self) -> Path:
        return self.folder / "delta"

    @property
    def iceberg(self) -> Lake:
        return Lake(self.folder / "iceberg")

    def create(self) -> None:
        """The tables in both servers, in a database of this test's own."""
        with psycopg.connect(self.postgres.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{self.database}"')
        with psycopg.connect(self.postgres.url_of(self.database), autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {TABLE} ({COLUMNS})")
        self.mysql.ask(f"CREATE DATABASE `{self.database}`")
        self.mysql.ask(f"CREATE TABLE `{self.database}`.{TABLE} ({COLUMNS}) ENGINE=InnoDB")

    def read(self) -> dict[str, list[Posting]]:
        """What each target shows to its readers now."""
        readers: dict[str, Callable[[], list[Posting]]] = {
            "kafka": self.in_kafka,
            "files": self.in_files,
            "postgres": self.in_postgres,
            "mysql": self.in_mysql,
            "api": self.in_api,
            "delta": self.in_delta,
            "iceberg": self.in_iceberg,
        }
        return {kind: readers[kind]() for kind in self.kinds}

    def in_kafka(self) -> list[Posting]:
        values = [
            json.loads(seen.value or "")
            for seen in oracle.read_all(self.bootstrap_servers, [self.topic])
        ]
        return [(v["id"], v["account"], v["amount"]) for v in values]

    def in_postgres(self) -> list[Posting]:
        with psycopg.connect(self.postgres.url_of(self.database)) as connection:
            return list(connection.execute(f"SELECT id, account, amount FROM {TABLE}").fetchall())

    def in_mysql(self) -> list[Posting]:
        return self.mysql.ask(f"SELECT id, account, amount FROM `{self.database}`.{TABLE}")

    def in_files(self) -> list[Posting]:
        if not list(self.files.glob("account=*/*.parquet")):
            return []
        query = "SELECT id, account, amount FROM read_parquet(?, hive_partitioning=true)"
        return duckdb.execute(query, [f"{self.files}/**/*.parquet"]).fetchall()

    def in_api(self) -> list[Posting]:
        assert self.api is not None
        return [_posting(row) for row in self.api.rows]

    def in_delta(self) -> list[Posting]:
        if not DeltaTable.is_deltatable(str(self.delta)):
            return []
        return [_posting(row) for row in DeltaTable(self.delta).to_pyarrow_table().to_pylist()]

    def in_iceberg(self) -> list[Posting]:
        with closing(self.iceberg) as lake:
            return [_posting(row) for row in lake.read().to_pylist()] if lake.exists() else []

    def left_over(self) -> dict[str, object]:
        """What is neither committed nor undone; all empty at rest. The checkpoint, where rows of
        tables wait, lies in the same folder.
        """
        staged = [p for p in self.files.rglob("*") if ".staged" in p.name]
        return {"tables": waiting(self.folder), "files": staged}


def check_exact(targets: Targets, transfers: Transfers) -> None:
    """Every posting once in each of them; each account's balance and the sum (nought) agree
    everywhere.
    """
    check_shown(targets, transfers.postings)
    assert targets.left_over() == {"tables": [], "files": []}


def _posting(row: Mapping[str, Any]) -> Posting:
    return row["id"], row["account"], row["amount"]


def check_shown(targets: Targets, expected: Iterable[Posting]) -> None:
    """Each target shows these postings to its readers, each once, and no others."""
    wanted = Counter(expected)
    for name, postings in targets.read().items():
        found = Counter(postings)
        lost, more = wanted - found, found - wanted
        assert not lost, (
            f"{name} lacks {lost.total()} of {wanted.total()} postings: {sorted(lost)[:3]}"
        )
        assert not more, f"{name} has {more.total()} postings too many: {sorted(more)[:3]}"
        assert sum(amount for _, _, amount in postings) == 0
