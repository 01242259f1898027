"""Processes that these commands start, each in a session of its own (in the sense of ``setsid``):
started, frozen, and killed with everything below them.

A driver's JVM, the daemon of its Python workers (which has a process group of its own) and the
workers stay in its session, even when the parent that could name them is dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from exactum.errors import ExactumError
from exactum.java.program import SMALL_OPTIONS
from exactum.local.guard import Guard

GONE_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.005
LOG_LINES_SHOWN = 15
STOP_POLL_S = 0.05
SUCCESS = "exit status 0"
PACKAGE = Path(__file__).resolve().parents[2]


def members(session: int) -> set[int]:
    """The ids of the session's processes that live (a zombie does not)."""
    return {pid for pid in psutil.pids() if _session_of(pid) == session and _lives(pid)}


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


def status_of(pid: int) -> int | None:
    """How a child of this process has ended, negative for a signal; None while it runs. It is not
    reaped: its id stays its own.
    """
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None  # it ended meanwhile, or is a stranger's


def _lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False  # it ended meanwhile, or is somebody else's and hidden


def _signal(pid: int, number: signal.Signals) -> None:
    # It ended by itself, or is another user's, as below sudo: the others are signalled anyhow.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


# ---- one driver ------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """This process's environment, with this exactum and this interpreter, wherever a child's folder
    is.

    Its JVM compiles fast rather than well: such drivers live for seconds, and it nearly halves the
    CPU time of a start (18 s to 10 s, measured).
    """
    inherited = os.environ
    path = [str(PACKAGE), *filter(None, [inherited.get("PYTHONPATH")])]
    options = [*filter(None, [inherited.get("SPARK_SUBMIT_OPTS")]), *SMALL_OPTIONS]
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_SUBMIT_OPTS": " ".join(options),
    }


class Driver:
    """Runs ``python arguments...`` in a session of its own. Used from one thread at a time.

    Args:
        name: what messages call it.
        arguments: of this interpreter: a script and its arguments, or ``-m`` and a module.
        log_file: takes what it prints, of all its starts.
        folder: its working directory; default: the folder of ``log_file``.
        variables: environment variables besides those of this process.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log_file: Path,
        *,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.starts = 0
        self._command = [sys.executable, *arguments]
        self.log_file = log_file
        self._folder = folder or log_file.parent
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._known: set[int] = set()

    @property
    def pid(self) -> int | None:
        """Of the process that was started last; None once it was killed, and before a start."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process. It must not run."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for the one who started it
                env={**environment(), **self._variables},
            )
        # The JVM and the workers end with the driver, because their standard input ends.
        self._guard = Guard(self._process.pid)
        self._known = set()
        self.starts += 1

    def note_processes(self) -> None:
        """Note which processes there are, so that ``kill`` stops them at once."""
        if self._process is not None:
            self._known = members(self._process.pid)

    def kill(self, frozen: Callable[[], bool] = lambda: True) -> int:
        """SIGKILL the whole tree; return how many processes died. ``frozen`` is called when all of
        them are stopped, and none is dead: where it returns False they go on. Idempotent.
        """
        process, guard = self._process, self._guard
        if process is None or guard is None:
            return 0
        killed = kill_all(process.pid, self._known, frozen)
        if not killed:
            return 0
        # While the dead process is not reaped nobody else gets its id: the guard must end before
        # that.
        guard.end()
        process.wait()
        self._process = self._guard = None
        await_gone(process.pid)
        return killed

    def stop(self, timeout_s: float) -> None:
        """SIGTERM to the driver, which gets ``timeout_s`` seconds; then ``kill`` what is left.
        Idempotent.
        """
        if self._process is None:
            return
        self.note_processes()
        if self.ended() is None:
            self._process.terminate()
        deadline = time.monotonic() + timeout_s
        while self.ended() is None and time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
        self.kill()

    def ended(self) -> str | None:
        """How the driver ended, though nobody killed it: ``exit status 0``, or a signal's name.
        None while it runs, and before a start.
        """
        status = None if self._process is None else status_of(self._process.pid)
        if status is None:
            return None
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    def check(self) -> None:
        """
        Raises:
            ExactumError: the driver ended though nobody killed it.
        """
        if (how := self.ended()) is not None:
            raise self.failure(f"ended by itself ({how})")

    def failure(self, what: str) -> ExactumError:
        """The error that says ``what`` became of the driver, with the end of its log."""
        return ExactumError(
            f"the driver of {self.name} {what}. The last lines of "
            f"{self.log_file}:\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        with self.log_file.open(errors="replace") as log:
            return "".join(f"    {line}" for line in deque(log, maxlen=LOG_LINES_SHOWN))
