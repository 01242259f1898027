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
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path

import psutil

from chaos import ROOT
from chaos.clock import Clock
from chaos.job_spec import JobSpec, Result
from chaos.proxy import HOST, Proxy
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from exactum.ops.processes import members
from tests.kit import environment as kit
from tests.kit.process_tree import signal_session
from tests.kit.servers.mariadb import LocalMariaDB
from tests.kit.servers.postgres import LocalPostgres

START_TIMEOUT_S = 600.0
SPEC_TIMEOUT_S = 600.0
POLL_S = 0.01
LOG_TAIL_CHARACTERS = 4_000
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


class Stuck(AssertionError):
    """A query did not come to its end, or its process died of nothing that was planned."""


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


class Driver:
    """One driver process with everything below it: a session of its own, so that nothing survives
    it.
    """

    def __init__(self, folder: Path, own: Mapping[str, str]) -> None:
        self.folder = folder
        self._inbox = folder / "inbox"
        self._inbox.mkdir(parents=True)
        self._count = 0
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "chaos.driver", str(self._inbox)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={
                    **environment(),
                    "PYSPARK_PYTHON": sys.executable,
                    "SPARK_LOCAL_DIRS": str(folder / "spark"),
                    "SPARK_SUBMIT_OPTS": " ".join(SMALL_OPTIONS),
                    **own,
                },
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def ready(self) -> bool:
        return (self._inbox / "ready").exists()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def begin(self, spec: JobSpec) -> None:
        """Give it a spec; it begins when those before it have ended."""
        spec.give(self._inbox, self._count)
        self._count += 1

    def until(
        self, reached: Callable[[], bool], what: str, timeout_s: float = SPEC_TIMEOUT_S
    ) -> None:
        """Wait until ``reached``.

        Raises:
            Stuck: the process ends before, or it takes too long.
        """
        deadline = time.monotonic() + timeout_s
        while not reached():
            if not self.alive and not reached():
                raise Stuck(
                    f"the driver ended with {self._process.returncode} before {what}: {self._end()}"
                )
            if time.monotonic() > deadline:
                raise Stuck(f"not within {timeout_s:.0f} s: {what}: {self._end()}")
            time.sleep(POLL_S)

    def ended(self, spec: JobSpec, timeout_s: float = SPEC_TIMEOUT_S) -> Result:
        self.until(lambda: spec.result is not None, f"the end of {spec.folder}", timeout_s)
        result = spec.result
        if result is None:
            raise Stuck(f"{spec.folder} lost its result")
        return result

    # ---- what is done to it --------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the whole tree in one moment, as when the machine loses power. Idempotent."""
        signal_session(self.pid, signal.SIGSTOP)
        signal_session(self.pid, signal.SIGKILL)
        self._process.wait(30)

    def pause(self) -> None:
        signal_session(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        signal_session(self.pid, signal.SIGCONT)

    def workers(self) -> list[int]:
        """The Python workers; not the process that forks them."""
        found = []
        for process in map(psutil.Process, members(self.pid)):
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

    def _end(self) -> str:
        return self.log[-LOG_TAIL_CHARACTERS:]


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

    def url(self, name: str, database: str, *, led: bool = True) -> str:
        """Of a database on one of the servers; ``led``: through its proxy."""
        server = self.postgres if name == "postgres" else self.mysql
        url = server.url_of(database)
        return url.replace(f":{server.port}/", f":{self.proxies[name].port}/") if led else url

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

    def hire(self) -> Driver:
        """Start another driver process."""
        driver = Driver(
            self.folder / f"driver{self.number()}", self.clock.environment if self.clock else {}
        )
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
        except Stuck as error:
            raise HarnessFailure(str(error)) from error
        return driver

    def dismiss(self) -> None:
        """Kill every driver process: after a play that went wrong nobody knows what they do."""
        for driver in self._drivers:
            driver.kill()
        self._drivers.clear()


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
