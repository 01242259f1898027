"""``exactum run`` as a process of its own, and what it prints; the script that it runs, and how
that one dies.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from exactum.local.own_process import members
from tests.kit.crash import oracle
from tests.kit.crash.jobs import Topics
from tests.kit.environment import environment
from tests.kit.kafka.broker import Broker
from tests.kit.process_tree import ProcessTree, signal_session
from tests.kit.waiting import await_true

HERE = Path(__file__).parent
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
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        words = self.words(script, options, arguments)
        super().__init__(words, folder / "run.log", folder, environment())

    @staticmethod
    def words(script: Path, options: Sequence[str], arguments: Sequence[str]) -> Sequence[object]:
        exactum = [sys.executable, "-m", "exactum.ops.cli"]
        return [*exactum, "run", script, *options, "--", *arguments]

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()  # nobody starts another script from here on
        for pid in self.pids():
            signal_session(pid, signal.SIGKILL)

    def pids(self) -> list[int]:
        """The processes that it started, in order."""
        return [int(pid) for pid in re.findall(r"started .* as process (\d+)", self.log)]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def says(self, text: str, times: int = 1) -> None:
        self.until(lambda: self.log.count(text) >= times, f"{text!r} is said {times} times")

    def until_gone(self, pid: int) -> None:
        """Wait until nothing of a process's session lives, whether the command does or not."""
        await_true(lambda: not members(pid), f"nothing of process {pid} is left")

    def ends(self) -> int:
        """Its exit status. Nothing that it started is left."""
        status = self.wait()
        left = [member for pid in self.pids() for member in members(pid)]
        if left:
            raise self.failed(f"processes are left: {left}")
        return status


def command(folder: Path, program: str, *options: str, arguments: Sequence[str] = ()) -> Command:
    """Over a script of its own."""
    script = folder / "app.py"
    script.write_text(program)
    return Command(folder, script, options, arguments)


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
            "query": "shout",
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


def new_world(broker: Broker, folder: Path, *, records: int) -> World:
    source = oracle.Input(broker.topic("in", partitions=2))
    source.produce(broker.servers, records)
    return World(broker.servers, folder, source, [broker.topic("out", partitions=2)])
