"""A Spark standalone cluster: a master and workers, each on a loopback address of its own.

Two addresses are two hosts to Spark, which never puts a speculative copy on the host of the first
one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pyspark

from exactum.java.program import SMALL_OPTIONS, java_program
from exactum.ops import processes
from tests.kit.standalone.shipment import environment
from tests.kit.waiting import WAIT_MAX_S

SPARK_HOME = Path(pyspark.__file__).parent
SPARK = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_SCALA_VERSION": "2.13",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
JVM_OPTIONS = (*SMALL_OPTIONS, "-Xshare:auto")
START_TIMEOUT_S = WAIT_MAX_S
LOG_TAIL_CHARACTERS = 6_000
EXECUTOR = "CoarseGrainedExecutorBackend"


class Program:
    """A process tree, leader of a session of its own, so that nothing of it survives."""

    def __init__(self, command: Sequence[str | Path], log: Path, folder: Path, **more: str) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=environment(**SPARK, SPARK_LOCAL_DIRS=str(folder), **more),
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def until(
        self, reached: Callable[[], bool], what: str, timeout_s: float = START_TIMEOUT_S
    ) -> None:
        """Wait until ``reached``; an end before that is a failure."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            if self._process.poll() is not None and not reached():
                raise self.failed(f"it ended with {self._process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.05)

    def wait(self, timeout_s: float) -> int:
        """Its exit code."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"it did not end within {timeout_s:.0f} s") from None

    def failed(self, what: str) -> AssertionError:
        return AssertionError(
            f"{what}\n---- the end of {self._log}:\n{self.log[-LOG_TAIL_CHARACTERS:]}"
        )

    def members(self) -> set[int]:
        """The processes of its session."""
        return processes.members(self._process.pid)

    def kill(self) -> None:
        """SIGKILL the whole tree. Idempotent."""
        while pids := self.members():
            for pid in pids:
                send(pid, signal.SIGKILL)
            time.sleep(0.01)
        self._process.wait(WAIT_MAX_S)


class Machines:
    """The cluster. ``url`` is what spark-submit takes as --master."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._folder = folder
        self.hosts = tuple(hosts)
        self._programs: list[Program] = []
        self._workers: list[Program] = []
        self.url = ""

    def __enter__(self) -> Machines:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for program in reversed(self._programs):
            program.kill()

    def kill_executor(self, pid: int) -> None:
        """SIGKILL one executor and all below it at one moment, so that none of them acts on
        another's death.

        The pid must be one of this cluster's executors.
        """
        assert any(pid in worker.members() for worker in self._workers), (
            f"{pid} is no process of this cluster"
        )
        assert EXECUTOR in " ".join(psutil.Process(pid).cmdline()), f"{pid} is no executor"
        send(pid, signal.SIGSTOP)  # it starts nothing any more
        daemons = processes.children(pid)
        for daemon in daemons:
            send(daemon, signal.SIGSTOP)
        below = [*daemons, *itertools.chain(*map(processes.children, daemons))]
        for each in below:
            send(each, signal.SIGSTOP)
        for each in (pid, *below):
            send(each, signal.SIGKILL)

    def _start(self) -> None:
        started = re.compile(r"Starting Spark master at (spark://\S+)")
        master = self._program("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        master.until(lambda: started.search(master.log) is not None, "the master started")
        self.url = started.findall(master.log)[0]
        for host in self.hosts:
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / host))
            self._workers.append(
                self._program(host, "worker.Worker", self.url, "--host", host, *size)
            )
        for worker in self._workers:
            worker.until(
                lambda worker=worker: "Successfully registered with master" in worker.log,
                "it registered",
            )

    def _program(self, name: str, kind: str, *arguments: str) -> Program:
        java = [java_program("java"), "-Xmx256m", *JVM_OPTIONS, "-cp", f"{SPARK_HOME}/jars/*"]
        command = [*java, f"org.apache.spark.deploy.{kind}", *arguments, "--webui-port", "0"]
        self._programs.append(Program(command, self._folder / f"{name}.log", self._folder))
        return self._programs[-1]


def send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, number)
