"""The streaming application on the cluster, submitted as docs/cluster.md says, and the test's
hold on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from exactum.local import columnar_kafka_jar, spark_kafka_jars
from tests.kit.crash import oracle
from tests.kit.crash.jobs import World
from tests.kit.environment import ROOT
from tests.kit.standalone.machines import JVM_OPTIONS, SPARK, SPARK_HOME, Machines
from tests.kit.standalone.pipeline import shuffled
from tests.kit.standalone.shipment import environment

ROUND = 60
PREPARED = 2
"""Tasks of a round that nothing holds back: all of the shuffle's but one."""
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


class Visit(NamedTuple):
    """A task attempt that came to the slow record."""

    partition: int
    attempt: int
    pid: int
    host: str


class Application:
    """The running application, with its input. ``pythons`` are the driver's and the nodes'."""

    def __init__(
        self, machines: Machines, topics: World, shipped: Path, pythons: tuple[Path, Path]
    ) -> None:
        self.machines = machines
        self.servers, self.source = topics.bootstrap_servers, topics.source
        self.traps = topics.folder / "traps"
        self.traps.mkdir(parents=True)
        self.new_round()
        jars = ",".join(str(jar) for jar in [*spark_kafka_jars(), columnar_kafka_jar()])
        submit = [SPARK_HOME / "bin" / "spark-submit", "--master", machines.url]
        submit += ["--py-files", shipped, "--jars", jars]
        topics.program = [
            *submit,
            *(word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")),
        ]
        topics.variables = environment(
            **SPARK,
            SPARK_LOCAL_DIRS=str(topics.folder),
            PYTHONPATH=str(ROOT),  # of the driver, which has exactum by what is shipped alone
            PYSPARK_DRIVER_PYTHON=str(pythons[0]),
            PYSPARK_PYTHON=str(pythons[1]),
        )
        own = {"drain": False, "round": ROUND, "traps": str(self.traps)}
        self._topics = topics
        self._job = topics.job({"query": shuffled, **own})

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        self._job.kill()

    def new_round(self) -> str:
        """Append one batch of input whose last record is slow; returns that record's value."""
        first = self.source.count
        slow = f"n{first + ROUND - 1:06d}"
        if first:  # the first round is for warming up
            (self.traps / slow).touch()
        self.source.produce(self.servers, ROUND)
        return slow

    def visits(self, slow: str) -> list[Visit]:
        """The attempts that have come to the slow record, in order."""
        found = []
        while (path := self.traps / f"{slow}.{len(found) + 1}").exists():
            text = path.read_text()
            if not text.endswith("\n"):  # it is being written
                break
            found.append(Visit(*json.loads(text)))
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
            opened = len(oracle.ongoing(self.servers, self._topics.checkpoint.query_id))
            return opened >= PREPARED + len(self.visits(slow))

        self.until(
            everyone_has_one,
            f"{PREPARED} prepared transactions and one of each attempt at {slow} were open",
        )
        return self.visits(slow)

    def let_go(self, slow: str) -> None:
        """Everybody but the first attempt may pass the slow record."""
        (self.traps / f"{slow}.go").touch()

    def completed(self) -> None:
        """Wait until all input stands in the output, and check the whole promise."""
        rows = self.source.count
        self.until(
            lambda: sum(e["rows"] for e in self.events("EpochCompleted")) >= rows,
            f"{rows} rows were written",
        )
        with self._topics.reader() as reader:
            self._topics.check_exact(reader)
        assert not self.events("EpochAbandoned")

    def swept(self) -> int:
        """How many transactions that nobody decided for were aborted so far."""
        return sum(event["transactions"] for event in self.events("LeftoversSwept"))

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self._job.events() if event["event"] == name]

    def stop(self) -> None:
        """Stop the query and wait for the application's end."""
        (self._job.act_folder() / "stop").touch()
        assert self._job.finishes() == [{"outcome": "stopped"}]

    def until(self, reached: Callable[[], bool], what: str) -> None:
        self._job.until(reached, what)
