"""One server's process: started, stopped, killed, paused, and never outliving its owner."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from exactum.errors import LocalServerError
from exactum.local.guard import Guard

START_TIMEOUT_S = 180.0  # a server that ended is seen at once; a busy machine may need minutes
STOP_TIMEOUT_S = 20.0
KILL_TIMEOUT_S = 60.0


class ServerProcess:
    """The process of one server, its folder and its log. It is used from one thread at a time.

    Args:
        name: what errors call it.
        folder: of its data and its log; the process works in it.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.log_file = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def pid(self) -> int:
        """The id of the running process. Raises LocalServerError if it does not run."""
        if self._process is None or not self.running:
            raise LocalServerError(f"{self.name} is not running.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists (a paused one does)."""
        if self._process is None:
            return False
        if self._process.poll() is None:
            return True
        self._forget()
        return False

    def start(self, command: Sequence[str]) -> None:
        """Start the process. Idempotent while it runs."""
        if self.running:
            return
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is for the owner alone
            )
        self._guard = Guard(self._process.pid)

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> bool:
        """Let the server shut down; kill it after `timeout_s` seconds. Idempotent.

        Returns whether it went by itself.
        """
        self.ask_to_stop()
        return self.await_stop(timeout_s)

    def ask_to_stop(self) -> None:
        """Send SIGTERM and return at once. Idempotent."""
        self._signal(signal.SIGCONT, signal.SIGTERM)  # a paused process takes no SIGTERM

    def await_stop(self, timeout_s: float) -> bool:
        """Wait until the process has ended; kill it after `timeout_s`. Returns as `stop` does."""
        process = self._process
        if process is None:
            return True
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._forget()
        return True

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone. Idempotent."""
        process = self._process
        if process is None:
            return
        self._signal(signal.SIGKILL)
        process.wait(KILL_TIMEOUT_S)
        self._forget()

    def pause(self) -> None:
        """SIGSTOP: the process keeps its ports and answers nobody. Idempotent."""
        self._signal(signal.SIGSTOP)
        # A thread that runs may answer once more; macOS cannot tell when all of them have stopped.
        if self.running and hasattr(os, "waitid"):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT: undo `pause`. Idempotent."""
        self._signal(signal.SIGCONT)

    def log_tail(self, lines: int = 40) -> str:
        """Return the last `lines` lines of the server's log, empty if there is none."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open(errors="replace") as log:
            return "".join(deque(log, maxlen=lines))

    def _signal(self, *numbers: signal.Signals) -> None:
        if self._process is not None and self.running:
            for number in numbers:
                os.kill(self._process.pid, number)

    def _forget(self) -> None:
        """End the guard at once: the dead process's id may become somebody else's."""
        if self._guard is not None:
            self._guard.end()
        self._process = self._guard = None
