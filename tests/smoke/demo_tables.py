"""Three targets under one decision, killed again and again: what ``make demo-tables`` shows.

    PYTHONPATH=. python tests/smoke/demo_tables.py --kills 8 --seed 7

It starts Kafka and PostgreSQL, and orders_to_three.py, which gets new orders all the time. A kill
is SIGKILL to the driver with its JVM and workers: in turn between a decision and its commits, and
at a random moment. After each kill the script is started again. Once no order is on its way,
readers that know nothing of exactum compare the three with what was sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psycopg
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from rich.console import Console
from rich.table import Table

from exactum.local import LocalKafka
from exactum.ops.processes import Driver
from tests.kit.environment import ROOT
from tests.kit.servers.postgres import LocalPostgres

PARTITIONS = 2
CUSTOMERS = 20
ORDERS_PER_STEP = 40
STEP_S = 0.05
RANDOM_WAIT_MAX_S = 3.0
COMMITS_S = 0.03
"""About how long three targets take to commit what is decided."""
AIM_TIMEOUT_S = 20.0
START_TIMEOUT_S = 120.0
REST_TIMEOUT_S = 120.0
POLL_S = 0.0005

Ids = Counter[int]


class Kill(NamedTuple):
    """``wait_s`` after the next decision, or after any moment at which it works."""

    decided: bool
    wait_s: float

    @staticmethod
    def planned(number: int, dice: random.Random) -> Kill:
        decided = number % 2 == 0
        return Kill(decided, dice.uniform(0, COMMITS_S if decided else RANDOM_WAIT_MAX_S))

    def __str__(self) -> str:
        where = "behind a decision" if self.decided else "anywhere"
        return f"{self.wait_s * 1000:,.0f} ms {where}"


class Readers:
    """What a reader finds in the three targets, by the targets' own clients."""

    def __init__(self, kafka: LocalKafka, database: str, lake: Path) -> None:
        self._kafka, self._database, self._lake = kafka, database, lake

    def postgres(self) -> Ids:
        with psycopg.connect(self._database) as connection:
            if connection.execute("SELECT to_regclass('orders')").fetchone() == (None,):
                return Counter()
            return Counter(number for (number,) in connection.execute("SELECT id FROM orders"))

    def audit(self) -> Ids:
        """By a consumer with ``read_committed``."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.bootstrap_servers,
                "group.id": f"reader-{secrets.token_hex(4)}",
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found: Ids = Counter()
        with contextlib.closing(consumer):
            consumer.assign([TopicPartition("audit", n, 0) for n in range(PARTITIONS)])
            ended = 0
            while ended < PARTITIONS:
                message = consumer.poll(30)
                if message is None:
                    raise SystemExit("Kafka did not answer a reader of the audit topic for 30 s.")
                if message.error():
                    ended += 1  # the end of a partition
                else:
                    found[json.loads(message.value())["id"]] += 1
        return found

    def delta(self) -> Ids:
        try:
            rows = DeltaTable(self._lake).to_pyarrow_table(columns=["id"])
        except TableNotFoundError:
            return Counter()
        return Counter(rows["id"].to_pylist())

    def all(self) -> dict[str, Ids]:
        return {"audit": self.audit(), "PostgreSQL": self.postgres(), "Delta": self.delta()}


class Orders:
    """Sends orders, numbered from 0."""

    def __init__(self, servers: str, dice: random.Random) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        self._dice = dice
        self.sent = 0

    def send(self, count: int = ORDERS_PER_STEP) -> None:
        for _ in range(count):
            order = {
                "id": self.sent,
                "customer": f"customer-{self.sent % CUSTOMERS}",
                "amount": f"{self._dice.randrange(1, 100_000) / 100:.2f}",
            }
            self._producer.produce("orders", json.dumps(order), order["customer"])
            self.sent += 1
        if self._producer.flush(30):
            raise SystemExit("Kafka did not take all orders within 30 s.")

    def send_until(self, moment: Callable[[], bool]) -> None:
        """Send a few every now and then, until the moment has come."""
        due = time.monotonic()
        while not moment():
            if time.monotonic() >= due:
                self.send()
                due = time.monotonic() + STEP_S
            time.sleep(POLL_S)


def decisions(checkpoint: Path) -> set[str]:
    """The records of the query's decision log that are there."""
    try:
        names = os.listdir(checkpoint / "exactum" / "decisions")
    except FileNotFoundError:
        return set()
    return {name for name in names if name.endswith(".json")}


def kill(driver: Driver, orders: Orders, readers: Readers, checkpoint: Path, plan: Kill) -> None:
    """Start the driver, and kill it as planned once it has written a micro-batch."""
    driver.start()

    def until(timeout_s: float, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + timeout_s

        def moment() -> bool:
            driver.check()
            return met() or time.monotonic() > deadline

        orders.send_until(moment)

    rows = readers.delta().total()
    until(START_TIMEOUT_S, lambda: readers.delta().total() > rows)
    driver.note_processes()
    if plan.decided:
        before = decisions(checkpoint)
        until(AIM_TIMEOUT_S, lambda: bool(decisions(checkpoint) - before))
        time.sleep(plan.wait_s)
    else:
        until(plan.wait_s, lambda: False)
    driver.kill()


def at_rest(driver: Driver, orders: Orders, readers: Readers) -> None:
    """Start the driver, wait until as many rows as orders have come to each target, and end it."""
    driver.start()
    deadline = time.monotonic() + REST_TIMEOUT_S
    while time.monotonic() < deadline:
        driver.check()
        if all(found.total() >= orders.sent for found in readers.all().values()):
            break
        time.sleep(0.2)
    driver.kill()


def wrong(sent: int, found: Ids) -> str:
    """What is lost and doubled, or nothing."""
    lost = sum(1 for number in range(sent) if not found[number])
    doubled = sum(times - 1 for times in found.values() if times > 1)
    strange = sum(1 for number in found if not 0 <= number < sent)
    parts = [f"{lost:,} lost" if lost else "", f"{doubled:,} doubled" if doubled else ""]
    return ", ".join(filter(None, [*parts, f"{strange:,} unexpected" if strange else ""]))


def counts(found: dict[str, Ids]) -> str:
    return " / ".join(f"{ids.total():,}" for ids in found.values())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=None, help="of the kills; it is printed")
    chosen = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if chosen.seed is None else chosen.seed
    dice = random.Random(seed)
    console = Console(highlight=False)
    console.print(f"Kafka and PostgreSQL are started. The same kills again with --seed {seed}")
    table = Table("kill", "moment", "sent", "right after it", "at rest", "verdict")
    faults = 0
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="demo-tables-")))
        kafka = running.enter_context(LocalKafka())
        postgres = running.enter_context(LocalPostgres())
        for topic in ("orders", "audit"):
            kafka.create_topic(topic, partitions=PARTITIONS)
        checkpoint = folder / "checkpoint"
        readers = Readers(kafka, postgres.url, folder / "lake")
        orders = Orders(kafka.bootstrap_servers, dice)
        script = ROOT / "examples" / "orders_to_three.py"
        options = {
            "bootstrap-servers": kafka.bootstrap_servers,
            "topic": "orders",
            "audit": "audit",
            "database": postgres.url,
            "lake": str(folder / "lake"),
            "checkpoint": str(checkpoint),
        }
        given = [part for name, value in options.items() for part in (f"--{name}", value)]
        driver = Driver("the demo", [str(script), *given], folder / "driver.log")
        running.callback(driver.kill)
        for number in range(chosen.kills):
            plan = Kill.planned(number, dice)
            kill(driver, orders, readers, checkpoint, plan)
            after = readers.all()
            at_rest(driver, orders, readers)
            found = readers.all()
            bad = {name: what for name, ids in found.items() if (what := wrong(orders.sent, ids))}
            faults += len(bad)
            verdict = "; ".join(f"{name}: {what}" for name, what in bad.items())
            line = [str(number + 1), str(plan), f"{orders.sent:,}", counts(after), counts(found)]
            table.add_row(*line, verdict or "agree")
            console.print(
                f"kill {number + 1} of {chosen.kills}, {plan}: {line[3]} seen after it, "
                f"{line[4]} at rest",
                soft_wrap=True,
            )
    console.print(table)
    console.print("Rows that readers see in the audit topic / in PostgreSQL / in the Delta table.")
    console.print("Not exact." if faults else "Exact: nothing lost, nothing doubled.")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
