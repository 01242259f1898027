"""The streaming application on the cluster, submitted as docs/cluster.md says, and the test's
hold on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exactum.local import columnar_kafka_jar, spark_kafka_jars
from tests.kit.crash import oracle
from tests.kit.standalone.machines import JVM_OPTIONS, SPARK_HOME, Machines, Program
from tests.kit.waiting import WAIT_MAX_S

ROUND = 60
PREPARED = 2
"""Tasks of a round that nothing holds back: all of the shuffle's but one."""
TIMEOUT_S = WAIT_MAX_S
SETTINGS: Mapping[str, object] = {
    "spark.cores.max": 2,
    "spark.executor.cores": 1,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": " ".join(JVM_OPTIONS),
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": " ".join(JVM_OPTIONS),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": 1.0,
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.locality.wait": 0,
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": 1.5,
    "spark.speculation.quantile": 0.5,
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.sql.adaptive.enabled": "false",
    # Small steps: what comes before a slow record is in the sink while the record is still being
    # worked on.
    "spark.buffer.size": 128,
    "spark.sql.execution.pandas.udf.buffer.size": 128,
    "spark.sql.execution.python.udf.maxRecordsPerBatch": 2,
    "spark.sql.execution.arrow.maxRecordsPerBatch": 2,
}


@dataclass(frozen=True)
class Visit:
    """A task attempt that came to the slow record."""

    partition: int
    attempt: int
    pid: int
    host: str


@dataclass
class Application:
    """The running application, with its input."""

    machines: Machines
    servers: str
    folder: Path
    source: oracle.Input
    output: str
    shipped: Path
    driver_python: Path
    python: Path
    program: Program | None = None

    def __enter__(self) -> Application:
        (self.folder / "traps").mkdir(parents=True)
        self.new_round()
        play = {
            "folder": str(self.folder),
            "bootstrap_servers": self.servers,
            "source": self.source.topic,
            "output": self.output,
            "round": ROUND,
        }
        command: list[str | Path] = [
            SPARK_HOME / "bin" / "spark-submit",
            "--master",
            self.machines.url,
        ]
        command += [
            "--py-files",
            self.shipped,
            "--jars",
            ",".join(str(jar) for jar in [*spark_kafka_jars(), columnar_kafka_jar()]),
        ]
        for name, value in SETTINGS.items():
            command += ["--conf", f"{name}={value}"]
        command += [Path(__file__).with_name("pipeline.py"), json.dumps(play)]
        pythons = {
            "PYSPARK_DRIVER_PYTHON": str(self.driver_python),
            "PYSPARK_PYTHON": str(self.python),
        }
        self.program = Program(command, self.folder / "driver.log", self.folder, **pythons)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.program is not None
        self.program.kill()

    def new_round(self) -> str:
        """Append one batch of input whose last record is slow; returns that record's value."""
        first = self.source.count
        slow = f"n{first + ROUND - 1:06d}"
        if first:  # the first round is for warming up
            (self.folder / "traps" / slow).touch()
        self.source.produce(self.servers, ROUND)
        return slow

    def visits(self, slow: str) -> list[Visit]:
        """The attempts that have come to the slow record, in order."""
        found = []
        while (path := self.folder / "traps" / f"{slow}.{len(found) + 1}").exists():
            text = path.read_text()
            if not text.endswith("\n"):  # it is being written
                break
            found.append(Visit(**json.loads(text)))
        return found

    def held(self, slow: str, visitors: int) -> list[Visit]:
        """Wait until so many attempts are at the slow record with open transactions, and the
        others are prepared.
        """
        self.until(
            lambda: len(self.visits(slow)) >= visitors, f"{visitors} attempts came to {slow}"
        )

        def everyone_has_one() -> bool:
            # Asked before the visits are counted: that of a speculative copy, which may be open
            # before the first attempt's, is not to be taken for the first attempt's.
            opened = len(oracle.ongoing(self.servers, self.query_id))
            return opened >= PREPARED + len(self.visits(slow))

        self.until(
            everyone_has_one,
            f"{PREPARED} prepared transactions and one of each attempt at {slow} were open",
        )
        return self.visits(slow)

    def let_go(self, slow: str) -> None:
        """Everybody but the first attempt may pass the slow record."""
        (self.folder / "traps" / f"{slow}.go").touch()

    def completed(self) -> None:
        """Wait until all input stands in the output, and check the whole promise."""
        rows = self.source.count
        self.until(
            lambda: sum(e["rows"] for e in self.events("EpochCompleted")) >= rows,
            f"{rows} rows were written",
        )
        oracle.check_at_rest(self.servers, [self.output], self.query_id)
        seen = oracle.read_all(self.servers, [self.output])
        oracle.check_exact(seen, self.source.upper(), [self.output])
        assert not self.events("EpochAbandoned")

    def swept(self) -> int:
        """How many transactions that nobody decided for were aborted so far."""
        return sum(event["transactions"] for event in self.events("LeftoversSwept"))

    def events(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / "events"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        events = [json.loads(line) for line in lines if line.endswith("\n")]
        return [event for event in events if event["event"] == name]

    def imported(self) -> dict[str, Any]:
        """Where exactum was imported from: ``driver``, and (host, file) of the tasks on
        ``executors``.
        """
        self.until((self.folder / "imported").exists, "the executors said where exactum comes from")
        found: dict[str, Any] = json.loads((self.folder / "imported").read_text())
        return found

    @property
    def query_id(self) -> str:
        return str(json.loads((self.folder / "checkpoint" / "metadata").read_text())["id"])

    def stop(self) -> None:
        """Stop the query and wait for the application's end."""
        assert self.program is not None
        (self.folder / "stop").touch()
        code = self.program.wait(TIMEOUT_S)
        if code != 0:
            raise self.program.failed(f"the application ended with {code}")

    def until(self, reached: Any, what: str) -> None:
        assert self.program is not None
        self.program.until(reached, what, TIMEOUT_S)
