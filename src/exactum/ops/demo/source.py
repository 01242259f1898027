"""The producer process as the demo sees it: started, and stopped with the number of its orders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from exactum.errors import ExactumError

STOP_TIMEOUT_S = 40.0


class Source:
    """The producer. It ends with the demo, because its standard input ends then."""

    def __init__(
        self, bootstrap_servers: str, topic: str, records_per_second: float, log_file: Path
    ) -> None:
        arguments = (bootstrap_servers, topic, str(records_per_second))
        self._command = [sys.executable, "-m", "exactum.ops.demo.producer", *arguments]
        self._log_file = log_file
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin to write."""
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # a Ctrl-C in the terminal is for the demo alone
            )

    def stop(self) -> int:
        """End the production and return how many orders were written.

        Raises:
            ExactumError: the producer failed, or ended before.
        """
        if self._process is None:
            return 0
        try:
            output, _ = self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ExactumError(
                f"the producer did not end within {STOP_TIMEOUT_S:.0f} s."
            ) from error
        if self._process.returncode != 0:
            raise ExactumError(f"the producer failed:\n{self._log_file.read_text()}")
        return int(output)

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def check(self) -> None:
        """
        Raises:
            ExactumError: the producer ended by itself.
        """
        if self._process is not None and self._process.poll() is not None:
            raise ExactumError(f"the producer ended by itself:\n{self._log_file.read_text()}")
