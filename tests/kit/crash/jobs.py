"""Jobs as processes of their own, and the world they live in: topics, a checkpoint and an
oracle.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.crash import oracle
from tests.kit.crash.queries import upper
from tests.kit.environment import environment
from tests.kit.kafka.broker import Broker
from tests.kit.process_tree import ProcessTree

HERE = Path(__file__).parent
SESSION: Mapping[str, Any] = {
    "master": "local[2]",
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.streaming.pollingDelay": "50ms",  # a query with nothing to read asks for more
    # The few records of a test stand for many: several tasks, each with a transaction of its own.
    "spark.exactum.coalesceSmallEpochs.enabled": False,
}


def command(
    specs: Sequence[Mapping[str, Any]] | Path,
    session: Mapping[str, Any],
    at_once: int = 1,
    program: Sequence[object] = (sys.executable,),
) -> list[str]:
    """What runs a job with these specs, or with those that appear in a folder, so many of them
    ``at_once``. ``program``: Python, or what starts it below spark-submit.
    """
    given = str(specs) if isinstance(specs, Path) else specs
    play = {"session": {**SESSION, **session}, "specs": given, "at_once": at_once}
    return [*map(str, program), str(HERE / "job.py"), json.dumps(play, default=named)]


def named(query: Callable[..., Any]) -> str:
    return f"{query.__module__}:{query.__name__}"


class Job(ProcessTree):
    """The program ``job`` with these specs, by the words of ``command``."""

    def __init__(
        self,
        folder: Path,
        specs: Sequence[Mapping[str, Any]],
        words: Sequence[str],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self._specs = specs
        own = variables or environment(SPARK_LOCAL_DIRS=str(folder / "spark"))
        super().__init__(words, folder / "job.log", folder, own)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def faults(self) -> str:
        """The faults that struck, a line each; the job and its workers run in the job's folder."""
        path = self.folder / "faults"
        return path.read_text() if path.exists() else ""

    def dies(self) -> None:
        """Wait until it was killed by the fault that was planned."""
        code = self.wait()
        if code != -signal.SIGKILL or "FAULT kill" not in self.faults:
            raise self.failed(f"the job was to be killed, and ended with {code}")

    def finishes(self) -> list[dict[str, Any]]:
        """Wait until all specs are done and return their results."""
        code = self.wait()
        if code != 0:
            raise self.failed(f"the job ended with {code}")
        return [self.result(number) for number in range(len(self._specs))]

    def result(self, number: int = 0) -> dict[str, Any]:
        """How a spec ended: ``outcome`` finished, stopped or failed; then ``error``,
        ``message``, ``spark``.
        """
        result: dict[str, Any] = json.loads(self.act_folder(number).joinpath("result").read_text())
        return result

    def events(self, number: int = 0) -> list[dict[str, Any]]:
        path = self.act_folder(number) / "events"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def act_folder(self, number: int = 0) -> Path:
        return Path(self._specs[number]["folder"])

    def ended(self, number: int = 0) -> bool:
        """Whether a spec has left its result."""
        return (self.act_folder(number) / "result").exists()

    def held(self, number: int = 0) -> None:
        """Wait until the fault ``hold`` is reached."""
        self.until((self.act_folder(number) / "reached").exists, "it was held")

    def let_go(self, number: int = 0) -> None:
        (self.act_folder(number) / "go").touch()


@dataclass
class Topics:
    """An input, output topics and a checkpoint of a query, as everybody sees them who looks."""

    bootstrap_servers: str
    folder: Path
    source: Any
    """Where it reads, and what it must make of it: an ``oracle.Input``, or the bank's transfers."""
    outputs: Sequence[str]

    @property
    def checkpoint(self) -> oracle.Checkpoint:
        return oracle.Checkpoint(self.folder / "checkpoint", self.source.topic)

    def reader(self) -> oracle.CommittedReader:
        return oracle.CommittedReader(self.bootstrap_servers, self.outputs)

    def check_between(self, reader: oracle.CommittedReader) -> None:
        """What must hold at any moment while no job runs."""
        seen = reader.caught_up()
        oracle.check_no_duplicates(seen)
        oracle.check_order(seen, self.source.upper())
        deadline = time.monotonic() + oracle.REST_TIMEOUT_S
        while True:
            try:
                oracle.check_epochs(seen, self.source, self.checkpoint, self.outputs)
                return
            except oracle.OracleFailure:
                # The broker writes the markers a moment after its answer, so what is finished may
                # come late; what came too early stays, and fails at the end.
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            seen = reader.caught_up()

    def check_exact(self, reader: oracle.CommittedReader) -> None:
        """The whole promise, at rest: exact, the same for all readers, nothing open, nothing
        hidden.
        """
        oracle.check_at_rest(self.bootstrap_servers, self.outputs, self.checkpoint.query_id)
        first = reader.caught_up()
        oracle.check_exact(first, self.source.upper(), self.outputs)
        oracle.check_same(first, oracle.read_all(self.bootstrap_servers, self.outputs))


@dataclass
class World(Topics):
    """A query of the program ``job``, through several lives. ``variables``: instead of those that
    it has on this machine.
    """

    spec: Mapping[str, Any] = field(default_factory=dict)
    session: Mapping[str, Any] = field(default_factory=dict)
    lives: int = 0
    program: Sequence[object] = (sys.executable,)
    variables: Mapping[str, str] | None = None

    def job(self, *specs: Mapping[str, Any], at_once: int = 1) -> Job:
        """Start the job with these specs (one, if none is given), each over the world's own spec."""
        self.lives += 1
        folder = self.folder / f"life{self.lives}"
        whole = []
        for number, spec in enumerate(specs or ({},)):
            act_folder = folder / str(number)
            act_folder.mkdir(parents=True)
            whole.append(
                {
                    "query": upper,
                    "folder": str(act_folder),
                    "bootstrap_servers": self.bootstrap_servers,
                    "source": self.source.topic,
                    "outputs": list(self.outputs),
                    "checkpoint": str(self.folder / "checkpoint"),
                    **self.spec,
                    **spec,
                }
            )
        words = command(whole, self.session, at_once, self.program)
        return Job(folder, whole, words, self.variables)


def new_world(
    broker: Broker,
    folder: Path,
    *,
    records: int,
    outputs: int = 1,
    spec: Mapping[str, Any] | None = None,
    session: Mapping[str, Any] | None = None,
) -> World:
    """Topics of three partitions each, and ``records`` numbered records in the input."""
    source = oracle.Input(broker.topic("in", partitions=3))
    source.produce(broker.servers, records)
    topics = [broker.topic(f"out{number}", partitions=3) for number in range(outputs)]
    return World(broker.servers, folder, source, topics, spec or {}, session or {})


def live_and_die(world: World, deaths: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """One life for each death, checked after each; then one that lives, and the whole promise."""
    with world.reader() as reader:
        for number, (when, fault) in enumerate(deaths, 1):
            print(f"death {number} of {len(deaths)}: {when}", flush=True)
            with world.job({"faults": [fault]}) as job:
                job.dies()
                world.check_between(reader)
                check_quiet(job)
        with world.job({"max_offsets": 3000}) as job:
            assert job.finishes() == [{"outcome": "finished"}]
            world.check_exact(reader)
            check_quiet(job)


def check_quiet(job: Job) -> None:
    """Nothing of exactum's is logged as a warning or an error: all is well after a restart."""
    loud = [
        line
        for line in job.log.splitlines()
        if "exactum" in line and ("WARNING" in line or "ERROR" in line)
    ]
    if loud:
        raise job.failed(f"not quiet: {loud}")
