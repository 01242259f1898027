"""A contender's process tree: how long it ran and what CPU it burnt, the broker apart."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from exactum.local.own_process import Guard

SAMPLE_INTERVAL_S = 0.05
CONTENDER_SAMPLE_INTERVAL_S = 0.5


@dataclass(frozen=True)
class Run:
    """``wall_s`` from spawn to exit; ``cpu_s`` user and system time of the whole tree; ``output``
    what it printed.
    """

    wall_s: float
    cpu_s: float
    output: dict[str, Any]


def run(arguments: list[str], module: str, timeout_s: float = 600) -> Run:
    """Run ``python -m`` ``module`` with ``arguments`` and measure it.

    Raises:
        RuntimeError: it failed; carries the end of its output.
    """
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    spent_s: dict[psutil.Process, float] = {}
    while process.poll() is None:
        add_cpu(spent_s, process.pid)
        if time.perf_counter() - began_s > timeout_s:
            process.kill()
        time.sleep(SAMPLE_INTERVAL_S)
    wall_s = time.perf_counter() - began_s
    out, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(
            f"{arguments} ended with {process.returncode}: {out[-2000:]}{err[-4000:]}"
        )
    return Run(wall_s, sum(spent_s.values()), json.loads(out.strip().splitlines()[-1]))


def tree(root: int) -> list[psutil.Process]:
    """A process and all its descendants; none when it is gone."""
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def add_cpu(spent_s: dict[psutil.Process, float], root: int) -> None:
    """User and system time of each process of a tree so far; what is dead keeps what it had."""
    for process in tree(root):
        spent_s[process] = max(cpu_seconds(process), spent_s.get(process, 0.0))


def cpu_seconds(process: psutil.Process) -> float:
    """0 when it is gone."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


class ContenderFailed(RuntimeError):
    """It ended, or did not do its work in time: a result as well. Any other failure is the
    benchmark's own.
    """


class ContenderProcess:
    """A contender that runs until it is killed: its CPU and memory, sampled in the background.

    Memory is the sum of the processes' proportional set sizes: what they share counts once.
    """

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.began_us = time.time_ns() // 1000
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        self._guard = Guard(self._process.pid, group=True)
        self._spent_s: dict[psutil.Process, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.peak_mib = 0.0
        self._sampler = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._sampler.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """User and system time of the whole tree so far, that of the dead included."""
        with self._lock:
            add_cpu(self._spent_s, self.pid)
            return sum(self._spent_s.values())

    def status(self) -> int | None:
        """With what it ended; None while it lives."""
        return self._process.poll()

    def check(self) -> None:
        """Raises ContenderFailed, with the end of its output, if it is dead."""
        if self.status() is not None:
            raise ContenderFailed(f"it ended with {self._process.returncode}: {self.log_tail()}")

    def await_line(self, text: str, timeout_ms: int) -> None:
        """Raises ContenderFailed if it does not say it in time, or dies."""
        end_s = time.monotonic() + timeout_ms / 1000
        while text not in self._log.read_text(errors="replace"):
            self.check()
            if time.monotonic() > end_s:
                raise ContenderFailed(
                    f"it did not say {text!r} in {timeout_ms} ms: {self.log_tail()}"
                )
            time.sleep(0.1)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    def kill(self) -> None:
        """SIGKILL to the whole tree, and wait. Idempotent."""
        self._ended.set()
        self._sampler.join()
        kill_tree(self.pid)
        self._guard.end()
        self._process.wait()

    def _sample(self) -> None:
        while not self._ended.wait(CONTENDER_SAMPLE_INTERVAL_S):
            self.cpu_s()
            self.peak_mib = max(self.peak_mib, sum(map(proportional_mib, tree(self.pid))))


def kill_tree(root: int) -> None:
    """SIGKILL a process and all its descendants. Idempotent."""
    for _ in range(2):  # a second look finds what was started during the first
        for process in tree(root):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def proportional_mib(process: psutil.Process) -> float:
    """Proportional set size; 0 when the process is gone."""
    try:
        return float(process.memory_full_info().pss) / 2**20
    except psutil.Error:
        return 0.0
