"""A process of its own that a test starts: its log, its end, and nothing of it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from exactum.local.guard import Guard
from tests.kit.waiting import WAIT_MAX_S

END_TIMEOUT_S = WAIT_MAX_S
LOG_TAIL_CHARACTERS = 8_000
POLL_S = 0.02


class Child:
    """Leader of a session; ``end`` kills all of its process group. Its output goes to one file."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env=dict(environment),
            )
        self._guard = Guard(self._process.pid, group=True)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def failed(self, what: str) -> AssertionError:
        return AssertionError(
            f"{self.name}: {what}\n---- the end of {self._log}:\n{self.log[-LOG_TAIL_CHARACTERS:]}"
        )

    def until(self, reached: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait until ``reached``; that the process ends before is a failure."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            code = self._process.poll()
            if code is not None and not reached():
                raise self.failed(f"it ended with {code} before {what}")
            if time.monotonic() > deadline:
                raise self.failed(f"not within {timeout_s:.0f} s: {what}")
            time.sleep(POLL_S)

    def finishes(self, timeout_s: float) -> None:
        """Wait until it has ended well."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"it did not end within {timeout_s:.0f} s") from None
        if code != 0:
            raise self.failed(f"it ended with {code}")

    def kill(self) -> None:
        """SIGKILL the process and its group at once. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(END_TIMEOUT_S)

    def end(self) -> None:
        """Ask it to end, kill what is left, and let the guard go. Idempotent."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._guard.end()
