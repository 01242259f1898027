"""``python -m chaos.soak``: random faults, drawn anew every few seconds, over the bank's query,
which writes to all targets in each epoch; checkers all along.

A quarter of the rounds have no fault, so that the query recovers. At the end everything is healed,
the input ends, the query runs dry, and every target must be exact. A failure prints the seed and
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
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pymysql
from confluent_kafka import KafkaException, Producer
from kafka.errors import KafkaError

from chaos.cell_run import MAY_BE_STARTED_AGAIN, WrongStop
from chaos.matrix import FAMILY
from chaos.query_oracle import QueryOracle
from chaos.servers import Driver, HarnessFailure, Servers
from chaos.start import Result, Start
from exactum.spark.write.small_epoch import SETTING as SMALL_EPOCHS
from tests.kit.crash import oracle
from tests.kit.crash.oracle import OracleFailure
from tests.kit.targets.ledger import Posting

SEED = 7
ROUND_S = (2.0, 6.0)
REST_S = (0.5, 2.0)
QUIET_SHARE = 0.25
FAULTS_MAX = 3
FIRST_START_S = 240.0
STARTS_MAX = 10
POLL_S = 0.05
CHECK_EVERY_S = 2.0
PRODUCE_EVERY_S = 0.4
TRANSFERS_EACH = 10
MAX_OFFSETS = 200
TIMEOUT_MS = 20_000
"""Of Kafka's transactions: longer than any round, so that only a pile of faults outlasts it."""
EXCUSED = MAY_BE_STARTED_AGAIN | {"Fenced", "Spark"}
"""Errors after which the query is started again."""


class Soak:
    """One run."""

    def __init__(self, servers: Servers, seed: int, minutes: float) -> None:
        self.servers = servers
        self.minutes = minutes
        self.chance = random.Random(seed)
        self.timeline: list[str] = []
        self.driver, self.understudy = self.hire(), self.hire()
        self.start: Start | None = None
        self.copy: Start | None = None
        """The second copy of the query, in the process of ``understudy``."""
        self._began_s = time.monotonic()
        self._starts = 0
        self._ending = threading.Event()
        self._failures: list[BaseException] = []
        self._seen: dict[str, Counter[Posting]] = {}
        folder = servers.folder / "soak"
        folder.mkdir()
        self.query_oracle = QueryOracle(servers, folder, FAMILY["all"].kinds, seed)

    def hire(self) -> Driver:
        """One whose small micro-batches are read as a user's are, and not in a task for each
        partition.
        """
        return self.servers.hire({SMALL_EPOCHS: True})

    def note(self, text: str) -> None:
        self.timeline.append(f"{time.monotonic() - self._began_s:7.1f} s  {text}")
        print(self.timeline[-1], flush=True)

    def run(self) -> None:
        """Raises AssertionError when something was seen that must not be."""
        self.query_oracle.open()
        threads = [
            threading.Thread(target=self._repeat, args=(work, pause_s))
            for work, pause_s in ((self._produce, PRODUCE_EVERY_S), (self._check, CHECK_EVERY_S))
        ]
        with self.query_oracle.reader() as self.reader:
            for thread in threads:
                thread.start()
            try:
                self._rounds()
                self.note("quiet: everything is healed, the input ends")
            finally:
                self._ending.set()
                for thread in threads:
                    thread.join()
            self._raise()
            self._run_dry()
            self._check()
            self.query_oracle.check_exact()
            self.query_oracle.check_reader(self.reader)
        self.note(f"exact: {self.query_oracle.transfers.count} transfers, {self._starts} starts")

    # ---- the rounds ------------------------------------------------------------------------------

    def _rounds(self) -> None:
        self._watch(self.query_oracle.checkpoint.folder.exists, FIRST_START_S)
        deadline = time.monotonic() + 60 * self.minutes
        while time.monotonic() < deadline:
            drawn: list[str] = []
            if self.chance.random() >= QUIET_SHARE:
                drawn = self.chance.sample(sorted(FAULTS), self.chance.randint(1, FAULTS_MAX))
            lasts_s = self.chance.uniform(*ROUND_S)
            self.note(f"a round of {lasts_s:.1f} s: {', '.join(drawn) or 'no fault'}")
            with contextlib.ExitStack() as healing:
                for name in drawn:
                    FAULTS[name](self, healing)
                self._watch(lambda: False, lasts_s)
            self.servers.tidy()
            self._watch(lambda: False, self.chance.uniform(*REST_S))

    def _watch(self, done: Callable[[], bool], seconds: float) -> None:
        """Let time pass, and keep the query running."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not done():
            self._keep_running()
            if self.copy is not None and self.copy.result is not None:
                self.judge(self.copy.result)
                self.copy = None
            self._raise()
            time.sleep(POLL_S)

    def _keep_running(self) -> None:
        if not self.driver.alive:
            self.driver, self.start = self._another(self.driver), None
        if not self.understudy.alive:
            self.understudy, self.copy = self._another(self.understudy), None
        if self.start is not None and self.start.result is not None:
            self.judge(self.start.result)
            self.start = None
        if self.start is None and self.driver.ready:
            self.start = self.begin(self.driver, drain=False)

    def _another(self, dead: Driver) -> Driver:
        dead.kill()  # what is left below it
        self.note("a new driver process")
        return self.hire()

    def begin(self, driver: Driver, **changed: Any) -> Start:
        self._starts += 1
        spec = self.query_oracle.spec(transaction_timeout_ms=TIMEOUT_MS)
        folder = str(self.query_oracle.folder / f"start{self._starts}")
        start = Start({**spec, "folder": folder, "max_offsets": MAX_OFFSETS, **changed})
        driver.begin(start)
        self.note(f"start {self._starts}")
        return start

    def judge(self, result: Result) -> None:
        """Raises WrongStop for an error that no fault excuses."""
        if result.outcome == "failed":
            self.note(f"stopped: {result.kind}: {result.message[:160]!r}")
            if result.kind not in EXCUSED:
                raise WrongStop(f"it stopped with {result.kind}: {result.message}")

    def _run_dry(self) -> None:
        """Stop what runs, and start the query until it has read everything."""
        for driver, start in ((self.understudy, self.copy), (self.driver, self.start)):
            if start is not None and driver.alive:
                start.stop()
                self.judge(driver.ended(start))
        for _ in range(STARTS_MAX):
            if not self.driver.alive:
                self.driver = self._another(self.driver)
            self.driver.until(lambda: self.driver.ready, "it is ready")
            result = self.driver.ended(self.begin(self.driver, max_offsets=100_000))
            self.judge(result)
            if result.outcome == "finished":
                return
        raise WrongStop(f"it did not finish in {STARTS_MAX} starts")

    # ---- who works all along ---------------------------------------------------------------------

    def _repeat(self, work: Callable[[], None], pause_s: float) -> None:
        try:
            while not self._ending.is_set():
                began_s = time.monotonic()
                work()
                # What is looked at grows: a look takes half of the time at most.
                self._ending.wait(max(pause_s, time.monotonic() - began_s))
        except BaseException as error:  # noqa: BLE001  (the first thread raises it)
            self._failures.append(error)

    def _raise(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _produce(self) -> None:
        self.query_oracle.produce(TRANSFERS_EACH)

    def _check(self) -> None:
        """Nothing twice, nothing that nobody sent, and nothing that was seen is gone. In a table an
        epoch is one local transaction: the sum is nought at any moment.
        """
        targets = self.query_oracle.targets
        for sink, read in (
            ("postgres", targets.in_postgres),
            ("mysql", targets.in_mysql),
            ("files", targets.in_files),
        ):
            try:
                found = Counter(read())
            except (psycopg.OperationalError, pymysql.Error):  # it is down at the moment
                continue
            before, self._seen[sink] = self._seen.get(sink, Counter()), found
            more, gone = found - Counter(self.query_oracle.transfers.postings), before - found
            if more or gone:
                raise OracleFailure(f"{sink}: {more.total()} too many, {gone.total()} gone")
            balance = sum(amount for _, _, amount in found.elements())
            if balance and sink != "files":
                raise OracleFailure(f"{sink}: the amounts do not add up to nought")
        if self.reader.broken:
            raise OracleFailure(f"what the reader had seen is gone: {self.reader.broken}")
        oracle.check_no_duplicates(self.reader.seen[:])


# ---- the faults: each begins now and is over when ``healing`` closes -----------------------------

Healing = contextlib.ExitStack
Fault = Callable[[Soak, Healing], None]


def kill_driver(soak: Soak, healing: Healing) -> None:
    soak.driver.kill()


def kill_workers(soak: Soak, healing: Healing) -> None:
    soak.note(f"  {soak.driver.kill_workers()} workers killed")


def pause_driver(soak: Soak, healing: Healing) -> None:
    driver = soak.driver
    driver.pause()
    healing.callback(driver.resume)


def kill_server(name: str) -> Fault:
    def kill(soak: Soak, healing: Healing) -> None:
        server = soak.servers.server(name)
        server.kill()
        server.restart()

    return kill


def pause_server(name: str) -> Fault:
    def stop(soak: Soak, healing: Healing) -> None:
        server = soak.servers.server(name)
        server.pause()
        healing.callback(server.resume)

    return stop


def network(name: str, how: str) -> Fault:
    def break_it(soak: Soak, healing: Healing) -> None:
        proxy = soak.servers.proxies[name]
        healing.callback(proxy.heal)
        if how == "delay":
            proxy.delay(soak.chance.uniform(0.05, 0.5))
        else:
            getattr(proxy, how)()

    return break_it


def second_copy(soak: Soak, healing: Healing) -> None:
    """Another driver process runs the same query for this round; the two fence each other."""
    if soak.copy is not None or not soak.understudy.ready:
        soak.note("  no second copy: its process is busy or at its start")
        return
    soak.copy = soak.begin(soak.understudy, drain=False)
    healing.callback(soak.copy.stop)


def foreign_init(soak: Soak, healing: Healing) -> None:
    # The broker may be away at the moment.
    with contextlib.suppress(KafkaException, KafkaError, OSError):
        servers = soak.servers.kafka.direct
        for name in oracle.ongoing(servers, soak.query_oracle.query_id)[:1]:
            own = {"bootstrap.servers": servers, "transactional.id": name, "log_level": 0}
            Producer(own).init_transactions(5)


STOPPABLE = ("kafka", "postgres", "mysql")
WAYS = ("reset", "cut", "half_open", "lose_replies", "delay")
FAULTS: Mapping[str, Fault] = {
    "kill-driver": kill_driver,
    "kill-workers": kill_workers,
    "pause-driver": pause_driver,
    "second-copy": second_copy,
    "foreign-init": foreign_init,
    **{f"kill-{name}": kill_server(name) for name in STOPPABLE},
    **{f"pause-{name}": pause_server(name) for name in STOPPABLE},
    **{f"{how}-{name}": network(name, how) for name in STOPPABLE for how in WAYS},
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
    with Servers(drivers_ahead=0) as servers:  # the query and its second copy have their own
        soak = Soak(servers, seed, minutes)
        try:
            soak.run()
        except (AssertionError, HarnessFailure) as error:
            print(f"\nFAILED with seed {seed}: {type(error).__name__}: {error}\n")
            print(*soak.timeline, sep="\n")
            print(f"\nagain: python -m chaos.soak --seed {seed} --minutes {minutes}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
