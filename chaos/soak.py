"""``python -m chaos.soak``: random faults, drawn anew every few seconds, over two queries in a row;
checkers all along.

    transfers --bank--> topic, PostgreSQL, files          the topic --chained--> another topic,
    another database

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import oracle
import psycopg
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from chaos.act import Act, Result
from chaos.books import Books, BooksFailure
from chaos.scene import MAY_BE_STARTED_AGAIN
from chaos.stage import Driver, HarnessFailure, Stage

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
DRY_TIMEOUT_S = 240.0
STARTS_MAX = 10
EXCUSED = MAY_BE_STARTED_AGAIN | {"Fenced", "Spark"}
"""Errors after which a query is started again."""


class SoakFailure(AssertionError):
    """Something was seen that must never be."""


@dataclass
class Timeline:
    """What happened when, in seconds from the beginning. Used from several threads."""

    began_s: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    loud: bool = True

    def note(self, text: str) -> None:
        line = f"{time.monotonic() - self.began_s:7.1f} s  {text}"
        self.lines.append(line)
        if self.loud:
            print(line, flush=True)


class Supervisor:
    """Keeps one query running in a driver process of its own: started again whenever it stops."""

    def __init__(
        self, name: str, stage: Stage, books: Books, act: Mapping[str, Any], timeline: Timeline
    ) -> None:
        self.name = name
        self.books = books
        self.driver: Driver = stage.hire()
        self.starts = 0
        self._stage = stage
        self._whole = act
        self._timeline = timeline
        self._act: Act | None = None

    def act(self, **changed: Any) -> Act:
        self.starts += 1
        folder = str(self.books.folder / f"start{self.starts}")
        return Act(**{**self._whole, "folder": folder, **changed})

    def look(self) -> None:
        """What there is to do now: a new process, or another start."""
        if not self.driver.alive:
            self.driver.kill()  # what is left below it
            self.driver, self._act = self._stage.hire(), None
            self._timeline.note(f"{self.name}: a new driver process")
        if not self.driver.ready:
            return
        if self._act is not None and (result := self._act.result) is not None:
            self.judge(result)
            self._act = None
        if self._act is None:
            self._act = self.act(drain=False)
            self.driver.begin(self._act)
            self._timeline.note(f"{self.name}: start {self.starts}")

    def judge(self, result: Result) -> None:
        """Raises SoakFailure for an error that no fault excuses."""
        if result.outcome == "failed":
            self._timeline.note(f"{self.name}: stopped: {result.kind}: {result.message[:160]!r}")
            if result.kind not in EXCUSED:
                raise SoakFailure(f"{self.name} stopped with {result.kind}: {result.message}")

    def run_dry(self) -> None:
        """Stop what runs, and start the query until it has read everything."""
        if self._act is not None and self.driver.alive:
            self._act.stop()
            self.judge(self.driver.ended(self._act))
        for _ in range(STARTS_MAX):
            if not self.driver.alive:
                self.driver.kill()
                self.driver = self._stage.hire()
            self.driver.until(lambda: self.driver.ready, "it is ready")
            act = self.act(max_offsets=100_000)
            self.driver.begin(act)
            result = self.driver.ended(act, DRY_TIMEOUT_S)
            self.judge(result)
            if result.outcome == "finished":
                return
        raise SoakFailure(f"{self.name} did not finish in {STARTS_MAX} starts")


@dataclass
class Soak:
    """One run."""

    stage: Stage
    seed: int
    minutes: float
    timeline: Timeline = field(default_factory=Timeline)
    rounds: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    copy: tuple[Supervisor, Act] | None = None
    """The query that runs twice, and its second copy."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self._ending = threading.Event()
        self._failures: list[BaseException] = []
        self._understudy = self.stage.hire()
        self._files: set[Path] = set()
        self._in_files: Counter[Any] = Counter()
        self._rows: dict[str, int] = {}
        self._read: dict[str, int] = {}

        def books(name: str, sinks: Sequence[str], upstream: Books | None = None) -> Books:
            folder = self.stage.folder / name
            folder.mkdir()
            return Books(self.stage, folder, sinks, self.seed, upstream=upstream)

        self.bank = books("bank", ("kafka", "postgres", "files"))
        self.chained = books("chained", ("kafka", "postgres"), self.bank)

    # ---- the whole of it -------------------------------------------------------------------------

    def run(self) -> None:
        """Raises AssertionError when something was seen that must not be."""
        for books in (self.bank, self.chained):
            books.open()
        supervisors = [
            Supervisor("bank", self.stage, self.bank, self._act(self.bank), self.timeline),
            Supervisor(
                "chained",
                self.stage,
                self.chained,
                self._act(self.chained, chained=True),
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
                supervisor.books.check_at_rest()  # the next one reads what this one has written
                self.timeline.note(f"{supervisor.name}: dry")
            self._check_now()
            for books, reader in ((self.bank, first), (self.chained, second)):
                books.check_exact()
                books.check_reader(reader)
        self.timeline.note(
            f"exact: {self.bank.transfers.count} transfers, {self.rounds} rounds, "
            f"{sum(self.struck.values())} faults, "
            f"{', '.join(f'{s.name} started {s.starts} times' for s in supervisors)}"
        )

    def _act(self, books: Books, *, chained: bool = False) -> dict[str, Any]:
        stage, database = self.stage, books.targets.database
        kafka = {
            "topic": books.targets.topic,
            "bootstrap_servers": stage.led_brokers,
            "transaction_timeout_ms": TIMEOUT_MS,
        }
        sinks = {
            "kafka": kafka,
            "postgres": {"url": stage.url("postgres", database)},
            "files": {"path": str(books.targets.files)},
        }
        return {
            "checkpoint": str(books.checkpoint.folder),
            "source": books.source,
            "bootstrap_servers": stage.led_brokers,
            "sinks": {kind: sinks[kind] for kind in books.sinks},
            "chained": chained,
            "max_offsets": MAX_OFFSETS,
        }

    def _rounds(self, supervisors: Sequence[Supervisor]) -> None:
        self._watch(
            supervisors,
            lambda: all(s.starts and s.books.checkpoint.folder.exists() for s in supervisors),
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
            self.stage.tidy()
            self._watch(supervisors, lambda: False, self.chance.uniform(*REST_S))

    def understudy(self) -> Driver:
        """The driver process of second copies."""
        if not self._understudy.alive:
            self._understudy = self.stage.hire()
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
        for books in (self.bank, self.chained):
            with contextlib.suppress(psycopg.OperationalError):  # the server is down at the moment
                self._check_postgres(books)
        self._check_files()
        for name, reader in self._readers.items():
            if reader.broken:
                raise BooksFailure(f"{name}: what the reader had seen is gone: {reader.broken}")
            seen = reader.seen[:]
            if len(seen) > self._read.get(name, 0):
                self._read[name] = len(seen)
                oracle.check_no_duplicates(seen)

    def _check_postgres(self, books: Books) -> None:
        """An epoch is one local transaction there, and a transfer is in one epoch: the sum is
        nought at any moment.
        """
        url = self.stage.postgres.url_of(books.targets.database)
        with psycopg.connect(url, connect_timeout=5) as connection:
            found = connection.execute(
                "SELECT count(*), count(DISTINCT (id, account)), coalesce(sum(amount), 0) FROM "
                "postings"
            ).fetchone()
        if found is None:
            return
        rows, distinct, amount = found
        name = books.targets.database
        if rows != distinct or (amount and not books.upstream) or rows < self._rows.get(name, 0):
            raise BooksFailure(
                f"{name}: {rows} rows, {distinct} of them different, sum {amount}, {self._rows} "
                "before"
            )
        self._rows[name] = rows

    def _check_files(self) -> None:
        """Published files stay; what is new is counted."""
        there = set(self.bank.targets.files.glob("account=*/*.parquet"))
        gone, new = self._files - there, there - self._files
        if gone:
            raise BooksFailure(f"published files are gone: {sorted(gone)[:3]}")
        if new:
            query = "SELECT id, account, amount FROM read_parquet(?, hive_partitioning=true)"
            self._in_files.update(
                duckdb.connect().execute(query, [[str(path) for path in new]]).fetchall()
            )
            self._files = there
            twice = [posting for posting, count in self._in_files.items() if count > 1]
            if twice:
                raise BooksFailure(f"files have postings twice: {twice[:3]}")


# ---- faults --------------------------------------------------------------------------------------
# Each begins now and is over when ``healing`` closes.

Healing = contextlib.ExitStack


def kill_driver(soak: Soak, query: Supervisor, healing: Healing) -> None:
    soak.timeline.note(f"  SIGKILL of {query.name}'s driver")
    query.driver.kill()


def kill_workers(soak: Soak, query: Supervisor, healing: Healing) -> None:
    soak.timeline.note(f"  SIGKILL of {query.driver.kill_workers()} workers of {query.name}")


def pause_driver(soak: Soak, query: Supervisor, healing: Healing) -> None:
    driver = query.driver
    soak.timeline.note(f"  SIGSTOP of {query.name}")
    driver.pause()
    healing.callback(driver.resume)


def kill_server(name: str) -> Callable[[Soak, Supervisor, Healing], None]:
    def kill(soak: Soak, query: Supervisor, healing: Healing) -> None:
        server = soak.stage.server(name)
        soak.timeline.note(f"  SIGKILL of {name}")
        server.kill()
        server.restart()
        soak.timeline.note(f"  {name} is back")

    return kill


def pause_server(name: str) -> Callable[[Soak, Supervisor, Healing], None]:
    def stop(soak: Soak, query: Supervisor, healing: Healing) -> None:
        server = soak.stage.server(name)
        soak.timeline.note(f"  SIGSTOP of {name}")
        server.pause()
        healing.callback(server.resume)

    return stop


def network(name: str, how: str) -> Callable[[Soak, Supervisor, Healing], None]:
    def break_it(soak: Soak, query: Supervisor, healing: Healing) -> None:
        proxy = soak.stage.proxies[name]
        soak.timeline.note(f"  network to {name}: {how}")
        healing.callback(proxy.heal)
        if how == "delay":
            proxy.delay(soak.chance.uniform(0.05, 0.5))
        else:
            getattr(proxy, how)()

    return break_it


def second_copy(soak: Soak, query: Supervisor, healing: Healing) -> None:
    """Another driver process runs the same query for this round; the two fence each other."""
    if soak.copy is not None or not soak.understudy().ready:
        soak.timeline.note("  no second copy: its process is busy or at its start")
        return
    act = query.act(drain=False)
    soak.timeline.note(f"  a second copy of {query.name}")
    soak.understudy().begin(act)
    soak.copy = (query, act)
    healing.callback(act.stop)


def foreign_init(soak: Soak, query: Supervisor, healing: Healing) -> None:
    with contextlib.suppress(
        KafkaException, KafkaError, OSError
    ):  # the broker may be away at the moment
        names = oracle.ongoing(soak.stage.kafka.direct, query.books.query_id)
        if names:
            settings = {
                "bootstrap.servers": soak.stage.kafka.direct,
                "transactional.id": names[0],
                "log_level": 0,
            }
            Producer(settings).init_transactions(5)
            soak.timeline.note(f"  a foreign init_transactions with an id of {query.name}")


FAULTS: dict[str, Callable[[Soak, Supervisor, Healing], None]] = {
    "kill-driver": kill_driver,
    "kill-workers": kill_workers,
    "pause-driver": pause_driver,
    "kill-broker": kill_server("kafka"),
    "kill-postgres": kill_server("postgres"),
    "pause-broker": pause_server("kafka"),
    "pause-postgres": pause_server("postgres"),
    "second-copy": second_copy,
    "foreign-init": foreign_init,
    **{
        f"{how.replace('_', '-')}-{name}": network(name, how)
        for name in ("kafka", "postgres")
        for how in ("reset", "cut", "half_open", "lose_replies", "delay")
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--minutes", type=float, default=5.0)
    arguments = parser.parse_args()
    print(f"soak, seed {arguments.seed}, {arguments.minutes} minutes", flush=True)
    return soaked(arguments.seed, arguments.minutes)


def soaked(seed: int, minutes: float) -> int:
    """Run it; on failure print the seed and the timeline, and return 1."""
    with Stage(drivers_ahead=0) as stage:  # each query and the second copies have their own
        soak = Soak(stage, seed, minutes)
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
