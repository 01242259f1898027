"""``python -m chaos.soak``: random faults, drawn anew every few seconds, over two queries in a row;
checkers all along.

    transfers --bank--> topic, PostgreSQL, files
              the topic --chained--> another topic, another database

A quarter of the rounds have no fault, so that the queries recover. At the end everything is healed,
the input ends, the queries run dry, and every target must be exact. A failure prints the seed and
the timeline of faults and events.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psycopg

from chaos.job_spec import JobSpec
from chaos.query_oracle import OracleFailure, QueryOracle
from chaos.servers import Driver, HarnessFailure, Servers
from chaos.soak_faults import FAULTS
from chaos.soak_supervisor import Supervisor, Timeline
from tests.kit.crash import oracle

SEED = 7
ROUND_S = (2.0, 6.0)
REST_S = (0.5, 2.0)
QUIET_SHARE = 0.25
FAULTS_MAX = 3
POLL_S = 0.05
CHECK_EVERY_S = 2.0
PRODUCE_EVERY_S = 0.4
TRANSFERS_EACH = 10
MAX_OFFSETS = 200
TIMEOUT_MS = 20_000
"""Of Kafka's transactions: longer than any round, so that only a pile of faults outlasts it."""


@dataclass
class Soak:
    """One run."""

    servers: Servers
    seed: int
    minutes: float
    timeline: Timeline = field(default_factory=Timeline)
    rounds: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    copy: tuple[Supervisor, JobSpec] | None = None
    """The query that runs twice, and its second copy."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._ending = threading.Event()
        self._failures: list[BaseException] = []
        self._understudy = self.servers.hire()
        self._files: set[Path] = set()
        self._in_files: Counter[Any] = Counter()
        self._rows: dict[str, int] = {}
        self._read: dict[str, int] = {}

        def query_oracle(
            name: str, sinks: Sequence[str], upstream: QueryOracle | None = None
        ) -> QueryOracle:
            folder = self.servers.folder / name
            folder.mkdir()
            return QueryOracle(self.servers, folder, sinks, self.seed, upstream=upstream)

        self.bank = query_oracle("bank", ("kafka", "postgres", "files"))
        self.chained = query_oracle("chained", ("kafka", "postgres"), self.bank)

    # ---- the whole of it -------------------------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError when something was seen that must not be."""
        for query_oracle in (self.bank, self.chained):
            query_oracle.open()
        supervisors = [
            Supervisor("bank", self.servers, self.bank, self._spec(self.bank), self.timeline),
            Supervisor(
                "chained",
                self.servers,
                self.chained,
                self._spec(self.chained, chained=True),
                self.timeline,
            ),
        ]
        threads = [
            threading.Thread(target=self._guarded, args=(work,))
            for work in (self._produce, self._check_often)
        ]
        with self.bank.reader() as first, self.chained.reader() as second:
            self._readers = {"bank": first, "chained": second}
            for thread in threads:
                thread.start()
            try:
                self._rounds(supervisors)
                self.timeline.note("quiet: everything is healed, the input ends")
            finally:
                self._ending.set()
                for thread in threads:
                    thread.join()
            self._raise()
            if self.copy is not None:
                self.understudy().ended(self.copy[1])
                self._look_at_copy()
            for supervisor in supervisors:
                supervisor.run_dry()
                # the next one reads what this one has written
                supervisor.query_oracle.check_at_rest()
                self.timeline.note(f"{supervisor.name}: dry")
            self._check_now()
            for query_oracle, reader in ((self.bank, first), (self.chained, second)):
                query_oracle.check_exact()
                query_oracle.check_reader(reader)
        self.timeline.note(
            f"exact: {self.bank.transfers.count} transfers, {self.rounds} rounds, "
            f"{sum(self.struck.values())} faults, "
            f"{', '.join(f'{s.name} started {s.starts} times' for s in supervisors)}"
        )

    def _spec(self, query_oracle: QueryOracle, *, chained: bool = False) -> dict[str, Any]:
        servers, database = self.servers, query_oracle.targets.database
        kafka = {
            "topic": query_oracle.targets.topic,
            "bootstrap_servers": servers.led_brokers,
            "transaction_timeout_ms": TIMEOUT_MS,
        }
        sinks = {
            "kafka": kafka,
            "postgres": {"url": servers.url("postgres", database)},
            "files": {"path": str(query_oracle.targets.files)},
        }
        return {
            "checkpoint": str(query_oracle.checkpoint.folder),
            "source": query_oracle.source,
            "bootstrap_servers": servers.led_brokers,
            "sinks": {kind: sinks[kind] for kind in query_oracle.sinks},
            "chained": chained,
            "max_offsets": MAX_OFFSETS,
        }

    def _rounds(self, supervisors: Sequence[Supervisor]) -> None:
        self._watch(
            supervisors,
            lambda: all(
                s.starts and s.query_oracle.checkpoint.folder.exists() for s in supervisors
            ),
            240,
        )
        deadline = time.monotonic() + 60 * self.minutes
        while time.monotonic() < deadline:
            self.rounds += 1
            drawn: list[str] = []
            if self.chance.random() >= QUIET_SHARE:
                drawn = self.chance.sample(sorted(FAULTS), self.chance.randint(1, FAULTS_MAX))
            lasts_s = self.chance.uniform(*ROUND_S)
            self.timeline.note(
                f"round {self.rounds}: {', '.join(drawn) or 'no fault'}, {lasts_s:.1f} s"
            )
            with contextlib.ExitStack() as healing:
                for name in drawn:
                    self.struck[name] += 1
                    FAULTS[name](self, self.chance.choice(list(supervisors)), healing)
                self._watch(supervisors, lambda: False, lasts_s)
            self.servers.tidy()
            self._watch(supervisors, lambda: False, self.chance.uniform(*REST_S))

    def understudy(self) -> Driver:
        """The driver process of second copies."""
        if not self._understudy.alive:
            self._understudy = self.servers.hire()
        return self._understudy

    def _look_at_copy(self) -> None:
        if self.copy is not None and (result := self.copy[1].result) is not None:
            self.timeline.note("  the second copy has ended")
            self.copy[0].judge(result)
            self.copy = None

    def _watch(
        self, supervisors: Sequence[Supervisor], done: Callable[[], bool], seconds: float
    ) -> None:
        """Let time pass, and keep the queries running."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not done():
            for supervisor in supervisors:
                supervisor.look()
            self._look_at_copy()
            self._raise()
            time.sleep(POLL_S)

    def _raise(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            while not self._ending.is_set():
                work()
        except BaseException as error:  # noqa: BLE001  (the first thread raises it)
            self._failures.append(error)

    # ---- who works all along ---------------------------------------------------------------------

    def _produce(self) -> None:
        self.bank.produce(TRANSFERS_EACH)
        self._ending.wait(PRODUCE_EVERY_S)

    def _check_often(self) -> None:
        self._check_now()
        self._ending.wait(CHECK_EVERY_S)

    def _check_now(self) -> None:
        """Nothing twice, nothing that nobody sent, and nothing that was seen is gone."""
        for query_oracle in (self.bank, self.chained):
            with contextlib.suppress(psycopg.OperationalError):  # the server is down at the moment
                self._check_postgres(query_oracle)
        self._check_files()
        for name, reader in self._readers.items():
            if reader.broken:
                raise OracleFailure(f"{name}: what the reader had seen is gone: {reader.broken}")
            seen = reader.seen[:]
            if len(seen) > self._read.get(name, 0):
                self._read[name] = len(seen)
                oracle.check_no_duplicates(seen)

    def _check_postgres(self, query_oracle: QueryOracle) -> None:
        """An epoch is one local transaction there, and a transfer is in one epoch: the sum is
        nought at any moment.
        """
        url = self.servers.postgres.url_of(query_oracle.targets.database)
        with psycopg.connect(url, connect_timeout=5) as connection:
            found = connection.execute(
                "SELECT count(*), count(DISTINCT (id, account)), coalesce(sum(amount), 0) FROM "
                "postings"
            ).fetchone()
        if found is None:
            return
        rows, distinct, amount = found
        name = query_oracle.targets.database
        if (
            rows != distinct
            or (amount and not query_oracle.upstream)
            or rows < self._rows.get(name, 0)
        ):
            raise OracleFailure(
                f"{name}: {rows} rows, {distinct} of them different, sum {amount}, {self._rows} "
                "before"
            )
        self._rows[name] = rows

    def _check_files(self) -> None:
        """Published files stay; what is new is counted."""
        there = set(self.bank.targets.files.glob("account=*/*.parquet"))
        gone, new = self._files - there, there - self._files
        if gone:
            raise OracleFailure(f"published files are gone: {sorted(gone)[:3]}")
        if new:
            query = "SELECT id, account, amount FROM read_parquet(?, hive_partitioning=true)"
            self._in_files.update(
                duckdb.connect().execute(query, [[str(path) for path in new]]).fetchall()
            )
            self._files = there
            twice = [posting for posting, count in self._in_files.items() if count > 1]
            if twice:
                raise OracleFailure(f"files have postings twice: {twice[:3]}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--minutes", type=float, default=5.0)
    arguments = parser.parse_args()
    print(f"soak, seed {arguments.seed}, {arguments.minutes} minutes", flush=True)
    return soaked(arguments.seed, arguments.minutes)


def soaked(seed: int, minutes: float) -> int:
    """Run it; on failure print the seed and the timeline, and return 1."""
    with Servers(drivers_ahead=0) as servers:  # each query and the second copies have their own
        soak = Soak(servers, seed, minutes)
        try:
            soak.run()
        except (AssertionError, HarnessFailure) as error:
            print(
                f"\nFAILED with seed {seed}: {type(error).__name__}: {error}\n",
                *soak.timeline.lines,
                sep="\n",
            )
            print(f"\nagain: python -m chaos.soak --seed {seed} --minutes {minutes}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
