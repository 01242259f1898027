"""The program of docs/delta.md, killed again and again: what ``make demo-tables`` shows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from exactum.local import LocalKafka
from exactum.ops.crash_test.crash_test import CrashTest
from exactum.ops.crash_test.killing import KillMoment, PlannedKill, plan_kills
from exactum.testing import CrashRun, OutputRecord
from tests.kit.crash import oracle
from tests.kit.environment import ROOT
from tests.kit.sql.postgres_server import Database

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres]

SCRIPT = ROOT / "examples" / "orders_to_three.py"
CUSTOMERS, ORDERS, KILLS = 20, 4_000, 6
Row = tuple[str, int]


def order(number: int) -> tuple[str, str]:
    customer = f"customer-{number % CUSTOMERS}"
    value = {"id": number, "customer": customer, "amount": f"{number % 1000 / 100:.2f}"}
    return customer, json.dumps(value)


def plan(kills: int, seed: int, moments: Sequence[KillMoment]) -> list[PlannedKill]:
    """Three targets take a while to commit what is decided."""
    return plan_kills(kills, seed, [KillMoment.DECIDED, *moments])


@pytest.mark.deep
def test_three_targets_agree(kafka: LocalKafka, database: Database, tmp_path: Path) -> None:
    """A topic, a PostgreSQL table and a Delta table have each order once, whatever the moments at
    which the driver was killed. Read by the targets' own clients.
    """
    lake = tmp_path / "lake"

    def arguments(run: CrashRun) -> Sequence[str]:
        kafka.create_topic(run.output, partitions=2)
        options = {
            "bootstrap-servers": run.bootstrap_servers,
            "topic": run.input,
            "audit": run.output,
            "database": database.url,
            "lake": str(lake),
            "checkpoint": run.checkpoint,
        }
        return [word for name, value in options.items() for word in (f"--{name}", value)]

    def read(run: CrashRun) -> Iterator[Row]:
        for seen in oracle.read_all(run.bootstrap_servers, [run.output]):
            yield "topic", json.loads(seen.value or "")["id"]
        for number in database.values("orders", "id"):
            yield "PostgreSQL", number
        for number in DeltaTable(lake).to_pyarrow_table(columns=["id"])["id"].to_pylist():
            yield "Delta", number

    def expected(records: Sequence[OutputRecord]) -> Iterator[Row]:
        for number in range(len(records)):
            yield from (("topic", number), ("PostgreSQL", number), ("Delta", number))

    with closing(CrashTest(kafka, tmp_path, plan=plan)) as crash_test:
        records = map(order, range(ORDERS))
        crash_test(SCRIPT, arguments, records, expected=expected, read=read, kills=KILLS)
