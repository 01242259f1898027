"""What a cell is played on: one server of each kind, each behind a proxy for the query, and the
driver processes.

The query meets the servers through their proxies; the oracle, a second copy of the job and whoever
else is not to be harmed go past them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from chaos import ROOT
from chaos.clock import Clock
from chaos.proxy import HOST, Proxy
from chaos.start import Result, Start, appear
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from tests.kit import environment as kit
from tests.kit.crash.jobs import command
from tests.kit.process_tree import ProcessTree
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres

START_TIMEOUT_S = 600.0
MASTER = "local[2,3]"
"""Two tasks at a time; one whose worker is killed is tried again."""
DISK_BYTES = 24 * 1024 * 1024

BROKER = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 250,
    "group.initial.rebalance.delay.ms": 0,
}
FORGETFUL = {
    "transactional.id.expiration.ms": 1_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
}
"""A broker that forgets a transactional id after a second instead of a week."""


class Setting(Enum):
    """Stages that differ in what cannot be changed while they run."""

    PLAIN = "plain"
    FORGETFUL = "forgetful"
    CLOCK = "clock"


class HarnessFailure(Exception):
    """The play could not be given: says nothing about exactum."""


class LedKafka(LocalKafka):
    """A broker whose clients' listener is advertised at another port, so that every client of it
    goes through there.
    """

    def __init__(self, led_through: int, properties: Mapping[str, str | int]) -> None:
        super().__init__(properties=properties, start_timeout_s=START_TIMEOUT_S)
        self.clients_port = self._ports.clients
        self.direct = f"{HOST}:{self._ports.internal}"
        """For whoever is not to be led: the listener between brokers."""
        advertised = f"CLIENTS://{HOST}:{led_through},INTERNAL://{self.direct}"
        self._extra["advertised.listeners"] = advertised


def environment() -> dict[str, str]:
    """Of every process of the harness: it runs on the sources."""
    path = os.pathsep.join([str(ROOT / "src"), kit.python_path()])
    return {**kit.environment(), "PYTHONPATH": path}


class Driver(ProcessTree):
    """One driver process with everything below it, which runs one query after another."""

    def __init__(
        self, folder: Path, own: Mapping[str, str], session: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self._inbox = folder / "inbox"
        self._inbox.mkdir(parents=True)
        self._count = 0
        variables = {
            **environment(),
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            "SPARK_SUBMIT_OPTS": " ".join(SMALL_OPTIONS),
            **own,
        }
        words = command(self._inbox, {"master": MASTER, **(session or {})})
        super().__init__(words, folder / "log", folder, variables)

    @property
    def ready(self) -> bool:
        return (self._inbox / "ready").exists()

    def begin(self, start: Start) -> None:
        """It begins when those before it have ended."""
        start.folder.mkdir(parents=True)
        appear(self._inbox / f"{self._count}.json", start.spec)
        self._count += 1

    def ended(self, start: Start) -> Result:
        self.until(lambda: start.result is not None, f"the end of {start.folder}")
        assert start.result is not None
        return start.result

    def workers(self) -> list[int]:
        """The Python workers; not the process that forks them."""
        found = []
        for process in map(psutil.Process, self.members()):
            with contextlib.suppress(psutil.Error):  # it has ended
                parent = process.parent()
                if parent is not None and all(map(_is_worker_program, (process, parent))):
                    found.append(process.pid)
        return found

    def kill_workers(self) -> int:
        """SIGKILL every Python worker; returns how many."""
        workers = self.workers()
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(workers)


def _is_worker_program(process: psutil.Process) -> bool:
    return "exactum.spark.startup.daemon" in " ".join(process.cmdline())


class Servers:
    """Servers and drivers of one harness process. Servers start when they are first asked for."""

    def __init__(self, setting: Setting = Setting.PLAIN, *, drivers_ahead: int = 1) -> None:
        self._drivers_ahead = drivers_ahead
        self.folder = Path(tempfile.mkdtemp(prefix="exactum-chaos-"))
        self.clock = Clock(self.folder) if setting is Setting.CLOCK else None
        self._closing = contextlib.ExitStack()
        self.proxies = {
            name: self._closing.enter_context(Proxy()) for name in ("kafka", "postgres", "mysql")
        }
        self.kafka = LedKafka(
            self.proxies["kafka"].port,
            {**BROKER, **(FORGETFUL if setting is Setting.FORGETFUL else {})},
        )
        self.proxies["kafka"].target_port = self.kafka.clients_port
        self.postgres = LocalPostgres(start_timeout_s=START_TIMEOUT_S)
        self.proxies["postgres"].target_port = self.postgres.port
        self.mysql = LocalMariaDB(start_timeout_s=START_TIMEOUT_S)
        self.proxies["mysql"].target_port = self.mysql.port
        self._drivers: list[Driver] = []
        self._numbers = itertools.count(1)
        self._disk: Path | None = None

    def __enter__(self) -> Servers:
        self.open()
        return self

    def open(self) -> None:
        """Start the servers, and beside them the driver processes that are wanted ahead of need."""
        try:
            for _ in range(self._drivers_ahead):
                self.hire()
            for name in ("kafka", "postgres", "mysql"):
                self.server(name).start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()
        self._drivers.clear()
        for name in ("kafka", "postgres", "mysql"):
            self.server(name).stop()
        self._closing.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- servers -------------------------------------------------------------------------------

    def server(self, name: str) -> LedKafka | LocalPostgres | LocalMariaDB:
        return {"kafka": self.kafka, "postgres": self.postgres, "mysql": self.mysql}[name]  # type: ignore[return-value]

    def number(self) -> int:
        """Never the same twice."""
        return next(self._numbers)

    @property
    def led_brokers(self) -> str:
        return f"{HOST}:{self.proxies['kafka'].port}"

    def url(self, name: str, database: str) -> str:
        """Of a database on one of the servers, through its proxy."""
        server = self.postgres if name == "postgres" else self.mysql
        return server.url_of(database).replace(f":{server.port}/", f":{self.proxies[name].port}/")

    def tidy(self) -> None:
        """All servers run and every network is whole: what the next cell begins with."""
        for proxy in self.proxies.values():
            proxy.heal()
        if self.clock is not None:
            self.clock.move(0)
        for server in (self.kafka, self.postgres, self.mysql):
            running = server.is_running() if isinstance(server, LedKafka) else server.running
            if not running:
                server.restart()

    def disk(self) -> Path:
        """A folder on a file system of its own, which is small.

        Raises:
            HarnessFailure: this user may not mount one.
        """
        if self._disk is None:
            folder = self.folder / "disk"
            folder.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise HarnessFailure(
                    f"a small file system could not be mounted: {done.stderr.strip()}"
                )
            self._closing.callback(subprocess.run, ["umount", "-l", str(folder)], check=False)
            self._disk = folder
        return self._disk

    # ---- drivers -------------------------------------------------------------------------------

    def hire(self, session: Mapping[str, Any] | None = None) -> Driver:
        """Start another driver process; ``session``: settings of Spark."""
        own = self.clock.environment if self.clock else {}
        driver = Driver(self.folder / f"driver{self.number()}", own, session)
        self._drivers.append(driver)
        return driver

    def driver(self, nth: int = 0) -> Driver:
        """The nth driver process, ready."""
        for driver in self._drivers:
            if not driver.alive:
                driver.kill()  # what is left below it
        self._drivers = [driver for driver in self._drivers if driver.alive]
        while len(self._drivers) <= nth:
            self.hire()
        driver = self._drivers[nth]
        try:
            driver.until(lambda: driver.ready, "it is ready", START_TIMEOUT_S)
        except AssertionError as error:
            raise HarnessFailure(str(error)) from error
        return driver


@contextlib.contextmanager
def full(disk: Path) -> Iterator[None]:
    """The file system of ``disk`` has no room left, until the block ends."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for block in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(block))
    try:
        yield
    finally:
        filler.unlink()
