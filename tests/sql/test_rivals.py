"""Drivers that fight over one query while an administrator ends their sessions: chaos, with a
plain oracle.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from exactum.errors import ExactumError
from tests.kit.sql.sql_database import SqlDatabase
from tests.kit.sql.sql_epochs import Query, expected
from tests.kit.waiting import WAIT_MAX_S
from tests.sql.test_epochs import rows_in

BATCHES = 12
DRIVERS = 3
TIME_MAX_S = WAIT_MAX_S


class Rivalry:
    """What all drivers of the query know: how far the checkpoint is."""

    def __init__(self, query: Query, seed: int) -> None:
        self.query = query
        self.seed = seed
        self.next_batch = 0
        self.lock = threading.Lock()
        self.end_s = time.monotonic() + TIME_MAX_S
        self.failures: list[str] = []

    @property
    def over(self) -> bool:
        return self.next_batch >= BATCHES or time.monotonic() > self.end_s

    def drive(self, number: int) -> None:
        """Start, run batches until something fails, start again; a start may repeat the last
        finished batch.
        """
        chance = random.Random(self.seed * 100 + number)
        while not self.over:
            try:
                driver = self.query.start()
            except ExactumError as error:
                self.failures.append(type(error).__name__)
                continue
            driver.write.duplicates = chance.randrange(3)
            batch_id = max(0, self.next_batch - chance.randrange(2))
            try:
                for _ in range(chance.randrange(1, 5)):
                    driver.run(batch_id)
                    batch_id += 1
                    with self.lock:
                        self.next_batch = max(self.next_batch, batch_id)
            except ExactumError as error:
                self.failures.append(type(error).__name__)
            driver.close()
            time.sleep(chance.random() / 20)

    def disturb(self, database: SqlDatabase) -> None:
        """End the sessions of drivers and tasks, again and again."""
        chance = random.Random(self.seed)
        while not self.over:
            database.end_sessions()
            time.sleep(chance.random() / 2)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_rival_drivers(database: SqlDatabase, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three drivers at once, sessions ended at random: every batch is in the table exactly once,
    nothing is left.
    """
    print(f"seed {seed}")
    database.end_idle_soon(monkeypatch)
    table = database.table()
    rivalry = Rivalry(database.query(table), seed)
    with ThreadPoolExecutor(DRIVERS + 1) as pool:
        drivers = [pool.submit(rivalry.drive, n) for n in range(DRIVERS)]
        disturbing = pool.submit(rivalry.disturb, database)
        for future in (*drivers, disturbing):
            future.result()
    assert rivalry.next_batch >= BATCHES, rivalry.failures
    last = rivalry.query.start()
    last.run(rivalry.next_batch)
    last.close()
    print(len(rivalry.failures), "failures:", sorted(set(rivalry.failures)))
    assert rows_in(database, table) == expected(range(rivalry.next_batch + 1))
    assert rivalry.query.staged() == []
