"""A Spark standalone cluster: a master and workers, each on a loopback address of its own.

Two addresses are two hosts to Spark, which never puts a speculative copy on the host of the first
one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

import psutil
import pyspark

from exactum.java.program import SMALL_OPTIONS, java_program
from tests.kit.process_tree import ProcessTree
from tests.kit.standalone.shipment import environment

SPARK_HOME = Path(pyspark.__file__).parent
SPARK = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_SCALA_VERSION": "2.13",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
JVM_OPTIONS = (*SMALL_OPTIONS, "-Xshare:auto")
EXECUTOR = "CoarseGrainedExecutorBackend"


class Program(ProcessTree):
    """A program of Spark's, which knows exactum by what is shipped alone."""

    def __init__(self, command: Sequence[object], log: Path, folder: Path, **more: str) -> None:
        own = environment(**SPARK, SPARK_LOCAL_DIRS=str(folder), **more)
        super().__init__(command, log, folder, own)


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
        executor = psutil.Process(pid)
        executor.suspend()  # it starts nothing any more
        stopped = [executor]
        for depth in (False, True):  # daemons, and then what these have started
            for each in executor.children(recursive=depth):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.suspend()
                    stopped.append(each)
        for each in stopped:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

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
