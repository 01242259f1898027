"""A contender's process tree: how long it ran and what CPU it burnt, the broker apart."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLE_INTERVAL_S = 0.05


@dataclass(frozen=True)
class Run:
    """``wall_s`` from spawn to exit; ``cpu_s`` user and system time of the whole tree; ``output`` what it printed."""

    wall_s: float
    cpu_s: float
    output: dict[str, Any]


def run(arguments: list[str], timeout_s: float = 600, module: str = "bench.contender") -> Run:
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
    spent_s: dict[tuple[int, str], float] = {}
    while process.poll() is None:
        for pid, started in tree(process.pid):
            seconds = cpu_seconds(pid)
            if seconds is not None:
                spent_s[pid, started] = max(seconds, spent_s.get((pid, started), 0.0))
        if time.perf_counter() - began_s > timeout_s:
            process.kill()
        time.sleep(SAMPLE_INTERVAL_S)
    wall_s = time.perf_counter() - began_s
    out, err = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{arguments} ended with {process.returncode}: {out[-2000:]}{err[-4000:]}")
    return Run(wall_s, sum(spent_s.values()), json.loads(out.strip().splitlines()[-1]))


def tree(root: int) -> list[tuple[int, str]]:
    """(pid, start time) of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    starts: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = stat(int(entry.name))
            if fields is not None:
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
                starts[int(entry.name)] = fields[19]
    found, todo = [], [root]
    while todo:
        pid = todo.pop()
        if pid in starts:
            found.append((pid, starts[pid]))
        todo.extend(parents.get(pid, []))
    return found


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat behind the command's name; None when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def cpu_seconds(pid: int) -> float | None:
    fields = stat(pid)
    return None if fields is None else (int(fields[11]) + int(fields[12])) / CLOCK_TICKS_PER_S
