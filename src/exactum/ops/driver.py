"""One driver process that is started, killed with everything below it, and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exactum.errors import ExactumError
from exactum.local.guard import Guard
from exactum.ops import process_session
from exactum.ops.environment import environment

LOG_LINES_SHOWN = 15
STOP_POLL_S = 0.05
SUCCESS = "exit status 0"


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
        self._log_file = log_file
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
        with self._log_file.open("ab") as log:
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

    def look(self) -> None:
        """Note which processes there are, so that ``kill`` stops them at once."""
        if self._process is not None:
            self._known = process_session.members(self._process.pid)

    def kill(self, frozen: Callable[[], bool] = lambda: True) -> int:
        """SIGKILL the whole tree; return how many processes died. ``frozen`` is called when all of
        them are stopped, and none is dead: where it returns False they go on. Idempotent.
        """
        process, guard = self._process, self._guard
        if process is None or guard is None:
            return 0
        killed = process_session.kill_all(process.pid, self._known, frozen)
        if not killed:
            return 0
        # While the dead process is not reaped nobody else gets its id: the guard must end before
        # that.
        guard.end()
        process.wait()
        self._process = self._guard = None
        process_session.await_gone(process.pid)
        return killed

    def stop(self, timeout_s: float) -> None:
        """SIGTERM to the driver, which gets ``timeout_s`` seconds; then ``kill`` what is left.
        Idempotent.
        """
        if self._process is None:
            return
        self.look()
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
        # WNOWAIT leaves it unreaped, so that its id stays its own until ``kill`` has cleaned up.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if (
            self._process is None
            or (ended := os.waitid(os.P_PID, self._process.pid, options)) is None
        ):
            return None
        if ended.si_code != os.CLD_EXITED:
            return signal.Signals(ended.si_status).name
        return f"exit status {ended.si_status}"

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
            f"{self._log_file}:\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        with self._log_file.open(errors="replace") as log:
            return "".join(f"    {line}" for line in deque(log, maxlen=LOG_LINES_SHOWN))
