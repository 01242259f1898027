"""A terminal in which a command of a page runs: what it has printed, and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from exactum.ops.processes import members
from tests.kit.waiting import WAIT_MAX_S

POLL_S = 0.1
INTERRUPT_TIMEOUT_S = WAIT_MAX_S


class Terminal:
    """Runs one command of a shell, in a process session of its own, as a terminal does.

    What it prints goes to ``log``. Who makes one closes it.
    """

    def __init__(self, command: str, folder: Path, env: Mapping[str, str], log: Path) -> None:
        self.command = command
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._log.read_text(errors="replace")

    def awaited(self, line: str, timeout_s: float, nth: int = 1) -> re.Match[str]:
        """The ``nth`` place where the pattern ``line`` stands in what was printed, waited for."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            ended = self._process.poll() is not None  # asked first: what it printed is then all
            found = list(re.finditer(line, self.printed))
            if len(found) >= nth:
                return found[nth - 1]
            assert not ended, f"{self.command} ended without {line!r}:\n{self.printed[-3000:]}"
            assert time.monotonic() < deadline_s, (
                f"{self.command} did not print {line!r} within {timeout_s:g} s:\n"
                f"{self.printed[-3000:]}"
            )
            time.sleep(POLL_S)

    def ended(self, timeout_s: float) -> int:
        """The command's exit status, waited for."""
        return self._process.wait(timeout_s)

    def interrupt(self) -> None:
        """Ctrl-C, which goes to every process of the terminal's foreground, and its end."""
        os.killpg(self._process.pid, signal.SIGINT)
        self.ended(INTERRUPT_TIMEOUT_S)

    def close(self) -> None:
        """End the command if it still runs: by Ctrl-C, so that it ends what it has started
        elsewhere; what is left of it afterwards, by force. Idempotent.
        """
        try:
            if self._process.poll() is None:
                self.interrupt()
        finally:
            for pid in members(self._process.pid):
                os.kill(pid, signal.SIGKILL)
            self._process.wait()
