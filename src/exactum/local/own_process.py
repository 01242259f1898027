"""Processes that we start, each in a session of its own (in the sense of ``setsid``): started,
frozen, and killed with everything below them; and none that outlives who started it.

A driver's JVM, the daemon of its Python workers (which has a process group of its own) and the
workers stay in its session, even when the parent that could name them is dead.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from exactum.errors import ExactumError

GONE_TIMEOUT_S = 10.0
KILL_TIMEOUT_S = 60.0  # a server of many gigabytes on a busy machine
POLL_INTERVAL_S = 0.005
STOP_POLL_S = 0.05
SUCCESS = "exit status 0"
KEEPS_ID = hasattr(os, "waitid")
"""Whether it can be seen how a child has ended without reaping it. On macOS from Python 3.13 on."""


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


def await_gone(session: int, timeout_s: float = GONE_TIMEOUT_S) -> None:
    """Wait until no process of the session lives.

    Raises:
        ExactumError: one still does after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while left := members(session):
        if time.monotonic() > deadline:
            raise ExactumError(
                f"the processes {sorted(left)} did not end {timeout_s:.0f} s after SIGKILL."
            )
        time.sleep(POLL_INTERVAL_S)


def status_of(child: subprocess.Popen[bytes]) -> int | None:
    """How a child of this process has ended, negative for a signal; None while it runs. Where that
    can be (``KEEPS_ID``) it is not reaped: its id stays its own.
    """
    if not KEEPS_ID:
        return child.poll()
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
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


# ---- none outlives its owner -----------------------------------------------------------------

# It reads a pipe that nobody writes to. The pipe ends when the owner dies, and then the process is
# killed. (PR_SET_PDEATHSIG would fire when the *thread* that started the process ends, and exists
# on Linux only.)
SCRIPT = 'read -r _; kill -s KILL -- "$1" 2>/dev/null'


class Guard:
    """Ends a process that this one has just started when this one is gone, however that ended.

    Args:
        pid: the process.
        group: whether everything in its process group, which it leads, is killed with it.
    """

    def __init__(self, pid: int, *, group: bool = False) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "exactum-guard", f"-{pid}" if group else str(pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def end(self) -> None:
        """End the watch. At the latest before the dead process is reaped: its id may become
        somebody else's.
        """
        self._process.kill()
        self._process.communicate()


# ---- one process -----------------------------------------------------------------------------


class OwnProcess:
    """A server or a driver, one start after the other. Used from one thread at a time.

    Args:
        log_file: takes what it prints, of all its starts.
        folder: its working directory; default: the folder of ``log_file``.
        variables: environment variables besides those of this process.
    """

    def __init__(
        self,
        log_file: Path,
        *,
        folder: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.log_file = log_file
        self.starts = 0
        self._folder = folder or log_file.parent
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._known: set[int] = set()

    @property
    def pid(self) -> int | None:
        """None where it does not run."""
        process = self._process
        return None if process is None or status_of(process) is not None else process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists; a paused one does."""
        return self.pid is not None

    def start(self, command: Sequence[str]) -> None:
        """Start it. Idempotent while it runs."""
        if self.running:
            return
        self.kill()  # what is left of one that has ended
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for the one who started it
                env={**os.environ, **self._variables},
            )
        # A driver's JVM and workers end with it, because their standard input ends.
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

        Raises:
            ExactumError: one of them lives ``KILL_TIMEOUT_S`` later.
        """
        process = self._process
        if process is None:
            return 0
        killed = 0
        if process.returncode is None:  # else nothing says whose its id is now
            killed = kill_all(process.pid, self._known, frozen)
            if not killed:
                return 0
            await_gone(process.pid, KILL_TIMEOUT_S)
        # While the dead process is not reaped nobody else gets its id: the guard must end before
        # that.
        if self._guard is not None:
            self._guard.end()
        process.wait()
        self._process = self._guard = None
        return killed

    def stop(self, timeout_s: float) -> bool:
        """Let it end by itself; ``kill`` what is left after ``timeout_s`` seconds. Idempotent.

        Returns whether it went by itself.
        """
        self.ask_to_stop()
        return self.await_stop(timeout_s)

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once. Idempotent."""
        self._signal(signal.SIGCONT, signal.SIGTERM)  # a paused process takes no SIGTERM

    def await_stop(self, timeout_s: float) -> bool:
        """Wait until it has ended; ``kill`` what is left then. Returns as ``stop`` does."""
        deadline = time.monotonic() + timeout_s
        while (runs := self.running) and time.monotonic() < deadline:
            time.sleep(STOP_POLL_S)
        self.kill()
        return not runs

    def pause(self) -> None:
        """SIGSTOP: the process keeps its ports and answers nobody. Idempotent."""
        self._signal(signal.SIGSTOP)
        if (pid := self.pid) is not None and KEEPS_ID:
            # A thread that runs may answer once more.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: undo ``pause``. Idempotent."""
        self._signal(signal.SIGCONT)

    def ended(self) -> str | None:
        """How it ended, though nobody killed it: ``exit status 0``, or a signal's name. None while
        it runs, and before a start.
        """
        status = None if self._process is None else status_of(self._process)
        if status is None:
            return None
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"

    def log_tail(self, lines: int = 40) -> str:
        """The last ``lines`` lines of the log, empty if there is none."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open(errors="replace") as log:
            return "".join(deque(log, maxlen=lines))

    def _signal(self, *numbers: signal.Signals) -> None:
        if (pid := self.pid) is not None:
            for number in numbers:
                os.kill(pid, number)
