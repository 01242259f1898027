"""All processes of one session (in the sense of ``setsid``): found, frozen and killed as one.

A driver is started in a session of its own. Its JVM, the daemon of the Python workers (which has a
process group of its own) and the workers stay in it, even when the parent that could name them is
dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from exactum.errors import ExactumError

PROC = Path("/proc")
GONE_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.005


def members(session: int) -> set[int]:
    """The ids of the session's processes that live (a zombie does not)."""
    return {pid for pid in _running() if _session_of(pid) == session}


def children(parent: int) -> set[int]:
    """The ids of the living processes that ``parent`` has started, or inherited."""
    return {pid for pid, started_by in _running().items() if started_by == parent}


def kill_all(session: int, known: set[int], frozen: Callable[[], bool] = lambda: True) -> int:
    """SIGKILL every process of the session, and return how many there were.

    They are stopped first, the ``known`` ones at once and in one go: nobody gets anything done, or
    forks away, while the others are looked for. ``frozen`` is called when all are stopped:
    where it returns False they go on, and 0 is returned. The leader must not have been reaped yet
    by its parent.
    """
    stopped: set[int] = set()
    found = {session, *(pid for pid in known if _session_of(pid) == session)}
    while found - stopped:
        for pid in sorted(found - stopped, key=lambda pid: (pid != session, pid)):
            _signal(pid, signal.SIGSTOP)
        stopped |= found
        found = members(session)
    dies = frozen()
    for pid in stopped:
        _signal(pid, signal.SIGKILL if dies else signal.SIGCONT)
    return len(stopped) if dies else 0


def await_gone(session: int) -> None:
    """Wait until no process of the session lives.

    Raises:
        ExactumError: one still does after ``GONE_TIMEOUT_S``.
    """
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while left := members(session):
        if time.monotonic() > deadline:
            raise ExactumError(
                f"the processes {sorted(left)} did not end {GONE_TIMEOUT_S:.0f} s after SIGKILL."
            )
        time.sleep(POLL_INTERVAL_S)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None  # it ended meanwhile, or is a stranger's


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


def _running() -> dict[int, int]:
    """The ids of all living processes, each with its parent's."""
    if not PROC.is_dir():
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
        ).stdout
        rows = (line.split() for line in listed.splitlines())
        return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}
    found = {}
    for entry in os.listdir(PROC):
        if entry.isdigit():
            try:
                stat = (PROC / entry / "stat").read_bytes()
            except OSError:
                continue  # it ended meanwhile, or is somebody else's and hidden
            # The name in parentheses may hold anything, a piece of a letter as well; the state is
            # the first letter after it.
            state, parent, *_ = stat.rpartition(b")")[2].split()
            if state != b"Z":
                found[int(entry)] = int(parent)
    return found
