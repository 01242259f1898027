"""A program that a test starts, and all that this starts: nothing of it survives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exactum.local.own_process import members
from tests.kit.waiting import WAIT_MAX_S

LOG_TAIL_CHARACTERS = 6_000


def signal_session(session: int, number: int) -> None:
    """Send a signal to every process of a session but this one, and to those born meanwhile: who
    leads one is a test's program, and nothing below it leaves it.
    """
    done = {os.getpid()}
    while new := members(session) - done:
        for pid in new:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        done |= new


class ProcessTree:
    """It leads a session of its own, and prints into the file ``log``."""

    def __init__(
        self, command: Sequence[object], log: Path, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=environment,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def failed(self, what: str) -> AssertionError:
        return AssertionError(
            f"{what}\n---- the end of {self._log}:\n{self.log[-LOG_TAIL_CHARACTERS:]}"
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def members(self) -> set[int]:
        """The processes of its session."""
        return members(self._process.pid)

    def until(self, reached: Callable[[], bool], what: str, timeout_s: float = WAIT_MAX_S) -> None:
        """Wait until ``reached``; an end before that is a failure."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            if self._process.poll() is not None and not reached():
                raise self.failed(f"it ended with {self._process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(0.01)

    def wait(self, timeout_s: float = WAIT_MAX_S) -> int:
        """Its exit code, once nothing of it is left."""
        deadline = time.monotonic() + timeout_s
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"it did not end within {timeout_s:.0f} s") from None
        while self.members():
            if time.monotonic() > deadline:
                raise self.failed(f"processes are left: {self.members()}")
            time.sleep(0.01)
        return code

    def kill(self) -> None:
        """SIGKILL the whole tree, at one moment. Idempotent."""
        signal_session(self._process.pid, signal.SIGSTOP)
        signal_session(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_MAX_S)

    def pause(self) -> None:
        signal_session(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        signal_session(self._process.pid, signal.SIGCONT)
