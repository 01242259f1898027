"""One run of the job under test: its process, and what its output and checkpoint show."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exactum.errors import ExactumError
from exactum.ops.crash_test.topics import LocalTopics
from exactum.ops.processes import SUCCESS, Driver
from exactum.ops.shown_checkpoint import ShownCheckpoint
from exactum.testing.crash_verdict import CrashRun

STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
SETTLE_S = 0.5
"""How long the output has to stand still before the job counts as drained."""


@dataclass(frozen=True)
class JobProgress:
    """How far the job is: the end of the output topic, and the last micro-batches planned and
    done.
    """

    output: int
    planned: int
    done: int


class Job:
    """Starts, watches and kills one run. For one thread.

    Args:
        run: where it reads and writes.
        command: the script and its arguments.
        topics: of the cluster.
        log_file: takes what it prints.
        variables: environment variables besides those of this process.
        output_is_topic: whether ``run.output`` is a topic.
    """

    def __init__(
        self,
        run: CrashRun,
        command: Sequence[str],
        topics: LocalTopics,
        log_file: Path,
        *,
        variables: Mapping[str, str],
        output_is_topic: bool,
    ) -> None:
        self.run = run
        self.log_file = log_file
        self._topics = topics
        self._output_is_topic = output_is_topic
        self._checkpoint = ShownCheckpoint(Path(run.checkpoint))
        self._driver = Driver(
            Path(command[0]).name, command, log_file, folder=Path.cwd(), variables=variables
        )

    @property
    def starts(self) -> int:
        """How often it was started."""
        return self._driver.starts

    def start(self) -> None:
        """Start it. It must not run."""
        self._driver.start()

    def look(self) -> None:
        """Note its processes, so that ``kill`` stops them at once."""
        self._driver.look()

    def kill(self) -> None:
        """SIGKILL it with everything it started. Idempotent."""
        self._driver.kill()

    def progress(self) -> JobProgress:
        """How far it is now."""
        output = sum(self._topics.ends(self.run.output).values()) if self._output_is_topic else 0
        shown = self._checkpoint
        return JobProgress(output, shown.last_offset(), shown.last_commit())

    def is_done(self) -> bool:
        """Whether it has ended with status 0.

        Raises:
            ExactumError: it ended in another way, though nobody killed it.
        """
        if self._driver.ended() == SUCCESS:
            return True
        self._driver.check()
        return False

    def failure(self, what: str) -> ExactumError:
        """The error that says ``what`` became of it, with the end of its log."""
        return self._driver.failure(what)

    def drain(self, timeout_s: float) -> None:
        """Return when it has read all input, and has ended or was stopped.

        Raises:
            ExactumError: it ended with an error, or did not come to the end in ``timeout_s``.
        """
        ends = self._topics.ends(self.run.input)
        deadline = time.monotonic() + timeout_s
        while not self.is_done():
            if self._has_read(ends):
                self._await_rest(deadline)
                self._driver.stop(STOP_TIMEOUT_S)
                return
            if time.monotonic() > deadline:
                raise self.failure(
                    f"did not read all of its input within {timeout_s:.0f} s (timeout_s). A job "
                    "has come to the end when it ends with status 0, or when the checkpoint at "
                    "run.checkpoint shows it"
                )
            time.sleep(POLL_S)
        self.kill()

    def _has_read(self, ends: Mapping[int, int]) -> bool:
        read = self._checkpoint.read_up_to()
        return all(read.get((self.run.input, part), 0) >= end for part, end in ends.items())

    def _await_rest(self, deadline: float) -> None:
        """Wait until nothing moves any more: what is on its way must not be lost by the stop."""
        last, since = self.progress(), time.monotonic()
        while time.monotonic() < min(since + SETTLE_S, deadline):
            time.sleep(POLL_S)
            if (now := self.progress()) != last:
                last, since = now, time.monotonic()
