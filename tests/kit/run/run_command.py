"""``exactum run`` as a process of its own, and what it prints; the script that it runs, and how
that one dies.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from exactum.ops.processes import members
from tests.kit.crash import oracle
from tests.kit.crash.jobs import Topics
from tests.kit.environment import environment
from tests.kit.process_tree import ProcessTree, signal_session
from tests.kit.waiting import WAIT_MAX_S

HERE = Path(__file__).parent
EXACTUM = ("-m", "exactum.ops.cli")
SESSION: Mapping[str, Any] = {
    "master": "local[2]",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.streaming.pollingDelay": "50ms",  # a query with nothing to read asks for more
}


C = TypeVar("C", bound="Command")


class Command(ProcessTree):
    """One ``exactum run``. Everything it prints, and its scripts print, goes to one file."""

    def __init__(
        self,
        folder: Path,
        script: Path,
        options: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        program: Sequence[str] = EXACTUM,
    ) -> None:
        """``program``: Python's arguments that make it the command ``exactum``."""
        folder.mkdir(parents=True, exist_ok=True)
        words = self.words(script, options, arguments, program)
        super().__init__(words, folder / "run.log", folder, environment())

    @staticmethod
    def words(
        script: Path, options: Sequence[str], arguments: Sequence[str], program: Sequence[str]
    ) -> Sequence[object]:
        return [sys.executable, *program, "run", script, *options, "--", *arguments]

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids():
            signal_session(pid, signal.SIGCONT)
        if self._process.poll() is None:
            for _ in range(3):  # politely, at once, for sure
                self._process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
            try:
                self._process.wait(WAIT_MAX_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def pids(self) -> list[int]:
        """The processes that it started, in order."""
        return [int(pid) for pid in re.findall(r"started .* as process (\d+)", self.log)]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def says(self, text: str, times: int = 1, timeout_s: float = WAIT_MAX_S) -> None:
        self.until(
            lambda: self.log.count(text) >= times, f"{text!r} is said {times} times", timeout_s
        )

    def until_gone(self, pid: int, timeout_s: float) -> None:
        """Wait until nothing of a process's session lives, whether the command does or not."""
        deadline_s = time.monotonic() + timeout_s
        while members(pid):
            if time.monotonic() > deadline_s:
                raise self.failed(f"process {pid} is not gone within {timeout_s:.0f} s")
            time.sleep(0.05)

    def signal_session(self, pid: int, number: int) -> None:
        """To everything that a process has started, and itself."""
        signal_session(pid, number)

    def ends(self, timeout_s: float = WAIT_MAX_S) -> int:
        """Its exit status. Nothing that it started is left."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise self.failed(f"it did not end within {timeout_s:.0f} s") from None
        left = [member for pid in self.pids() for member in members(pid)]
        if left:
            raise self.failed(f"processes are left: {left}")
        return status


@dataclass
class World(Topics):
    """A topic of numbered records, the script over it, and the death that it is to die."""

    def plan(self, death: Mapping[str, Any]) -> None:
        """The next life dies like this."""
        (self.folder / "death").write_text(json.dumps(death))

    def run(
        self, name: str, options: Sequence[str], *, by: Callable[..., C] = Command, **play: Any
    ) -> C:
        """Start the script. ``by`` makes the command of its folder, script, options and
        arguments.
        """
        whole = {
            "bootstrap_servers": self.bootstrap_servers,
            "source": self.source.topic,
            "target": self.outputs[0],
            "checkpoint": str(self.folder / "checkpoint"),
            "events": str(self.folder / "events"),
            "death": str(self.folder / "death"),
            "drain": True,
            "session": SESSION,
            **play,
        }
        return by(self.folder / name, HERE / "run_application.py", options, [json.dumps(whole)])

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        path = self.folder / "events"
        events = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [event for event in events if not kind or event["event"] == kind]

    def completed_by(self, pid: int) -> list[dict[str, Any]]:
        return [each for each in self.events("EpochCompleted") if each["pid"] == pid]

    def check_stopped_between_epochs(self, reader: oracle.CommittedReader) -> None:
        """Spark's commit log ends with the last epoch that stands in the sink, and has it: a next run
        has nothing to finish and nothing to sweep. What is visible is what was finished.
        """
        last = self.events("EpochCompleted")[-1]["batch_id"]
        assert (self.checkpoint.decided(), self.checkpoint.finished()) == (last, last)
        oracle.check_at_rest(self.bootstrap_servers, self.outputs, self.checkpoint.query_id)
        self.check_between(reader)

    def is_done(self) -> bool:
        """Whether all of the input was read."""
        ends = self.checkpoint.ends(self.checkpoint.finished())
        return sum(ends.values()) == self.source.count


def new_world(
    bootstrap_servers: str, create_topic: Callable[..., str], folder: Path, *, records: int
) -> World:
    source = oracle.Input(create_topic("in", partitions=2))
    if records:
        source.produce(bootstrap_servers, records)
    return World(bootstrap_servers, folder, source, [create_topic("out", partitions=2)])
