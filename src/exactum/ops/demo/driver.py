"""One driver process under chaos: started, killed with everything below it, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from exactum.errors import ExactumError
from exactum.local.guard import Guard
from exactum.ops import process_session
from exactum.ops.environment import environment

LOG_LINES_SHOWN = 15


class Driver:
    """Runs ``python -m module arguments...`` in a session of its own. Used from one thread at a
    time.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.starts = 0
        self._command = [sys.executable, "-m", module, *arguments]
        self._log_file = log_file
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._known: set[int] = set()

    def start(self) -> None:
        """Start the process. It must not run."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._log_file.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for the demo alone
                env=environment(),
            )
        # The JVM and the workers end with the driver, because their standard input ends.
        self._guard = Guard(self._process.pid)
        self._known = set()
        self.starts += 1

    def look(self) -> None:
        """Note which processes there are, so that ``kill`` stops them at once."""
        if self._process is not None:
            self._known = process_session.members(self._process.pid)

    def kill(self) -> int:
        """SIGKILL the whole tree; return how many processes died. Idempotent."""
        process, guard = self._process, self._guard
        if process is None or guard is None:
            return 0
        killed = process_session.kill_all(process.pid, self._known)
        # While the dead process is not reaped nobody else gets its id: the guard must end before
        # that.
        guard.end()
        process.wait()
        self._process = self._guard = None
        process_session.await_gone(process.pid)
        return killed

    def check(self) -> None:
        """
        Raises:
            ExactumError: the driver ended though nobody killed it.
        """
        # WNOWAIT leaves it unreaped, so that its id stays its own until ``kill`` has cleaned up.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        if (
            self._process is None
            or (ended := os.waitid(os.P_PID, self._process.pid, options)) is None
        ):
            return
        how = f"exit status {ended.si_status}"
        if ended.si_code != os.CLD_EXITED:
            how = signal.Signals(ended.si_status).name
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
