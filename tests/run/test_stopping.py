"""The end of a script that is to stop: all of its queries stop between two epochs, and none begins any more;
by its supervisor, and by SIGTERM to its Python, to the JVM above it, or to both.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactum.spark.open_queries import Stoppable, open_queries
from exactum.spark.supervised.process import stop_queries
from tests.kit.kafka.broker import Broker
from tests.kit.python import python
from tests.kit.run.bare_command import BareCommand, spark_submit
from tests.kit.run.run_command import command, new_world
from tests.kit.waiting import await_true


def a_query(session: SparkSession, checkpoint: Path) -> StreamingQuery:
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return rows.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


class Slow(Stoppable):
    """In the middle of an epoch, until somebody has asked three times."""

    def __init__(self, other: StreamingQuery) -> None:
        self._other = other
        self.others_ran: list[bool] = []

    def between_epochs(self, log_timeout_s: float) -> bool:
        self.others_ran.append(self._other.isActive)
        return len(self.others_ran) > 3


@pytest.mark.spark
@pytest.mark.parametrize("slow", [0, 1])
def test_queries_of_every_session_are_stopped(
    spark: SparkSession, tmp_path: Path, slow: int
) -> None:
    """``newSession()`` has queries of its own. None is stopped while another is in the middle of
    its epoch: the script may end with the first one that stops.
    """
    queries = [
        a_query(session, tmp_path / str(place))
        for place, session in enumerate((spark, spark.newSession()))
    ]
    run = Slow(queries[1 - slow])
    open_queries.gates[str(queries[slow].runId)] = run
    try:
        assert stop_queries() == 2
    finally:
        del open_queries.gates[str(queries[slow].runId)]
        left = [query for query in queries if query.isActive]
        for query in left:
            query.stop()
    assert not left
    assert run.others_ran and all(run.others_ran)


@pytest.mark.slow
def test_no_run_begins_behind_a_dead_supervisor(tmp_path: Path) -> None:
    """It would fence what the next supervisor has started."""
    script = """
from pathlib import Path
from exactum.errors import Unavailable
from exactum.spark.supervised import process, standby

supervised = process.current()
print("ready", flush=True)
supervised.orphaned.wait()
try:
    standby.wait_for_turn()  # as a start does
except Unavailable as error:
    Path("said.tmp").write_text(str(error))
    Path("said.tmp").rename("said")
"""
    with command(tmp_path, script) as run:
        run.says("ready")
        run.signal(signal.SIGKILL)
        await_true((tmp_path / "said").exists, "the script has tried")
    assert "exactum run has ended" in (tmp_path / "said").read_text()


PYTHON = [sys.executable]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param(PYTHON, 0, id="Python"),
        # The JVM ends with the signal, whatever the script does.
        pytest.param(spark_submit, 143, id="JVM", marks=pytest.mark.deep),
    ],
)
def test_a_query_stops_between_two_epochs(
    broker: Broker,
    tmp_path: Path,
    words: Sequence[str] | Callable[[], Sequence[str]],
    status: int,
) -> None:
    """A script that is never idle. Below spark-submit the JVM has the signal, as in a driver pod: it
    waits until the script has ended by itself.
    """
    world = new_world(broker, tmp_path, records=2000)
    command = words() if callable(words) else words
    with world.reader() as reader:
        with world.run("busy", command, by=BareCommand, drain=False, max_offsets=4) as run:
            run.until(lambda: len(world.events("EpochCompleted")) >= 3, "three epochs stand")
            run.signal(signal.SIGTERM)
            assert run.ends() == status
            assert "the script ends by itself" in run.log
        world.check_stopped_between_epochs(reader)
    assert not world.is_done(), "it was stopped in the middle of its work"


SLOW = """
import sys, time
from pathlib import Path
import exactum
from pyspark.sql.functions import udf

begun = Path("begun").absolute()

def slow(value):
    begun.touch()
    time.sleep(100)
    return str(value)

spark = exactum.local_session(
    "slow", master="local[2]", **{"spark.exactum.stopTimeoutSeconds": sys.argv[1]}
)
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
slowly = rows.select(udf(slow)("value").alias("value"))
once = exactum.exactly_once(exactum.FileSink("out", format="json"))
once.start(slowly.writeStream, checkpoint="checkpoint").awaitTermination()
"""


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("timeout", "signals"),
    [
        ("3", 1),
        pytest.param("300", 2, marks=pytest.mark.deep),
        pytest.param("0", 1, marks=pytest.mark.deep),
    ],
)
def test_a_batch_that_is_too_slow_is_cut_off(tmp_path: Path, timeout: str, signals: int) -> None:
    """When the time is over, at a second signal, and at the first where exactum is to leave SIGTERM
    alone: as without exactum.
    """
    script = tmp_path / "app.py"
    script.write_text(SLOW)
    with BareCommand(tmp_path, script, PYTHON, [timeout]) as run:
        run.until((tmp_path / "begun").exists, "a batch is under way")
        for number in range(signals):
            if number:
                run.says("SIGTERM: the queries")  # two that nobody has handled yet are one
            run.signal(signal.SIGTERM)
        await_true(lambda: not run.alive, "it has ended")
        assert run._process.returncode == -signal.SIGTERM
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").glob("*.json"))


HANDLERS = """
import os, signal, sys, time
from exactum.spark.open_queries import open_queries
from exactum.spark.run.termination import Termination

signal.signal(signal.SIGTERM, Termination(60))
if sys.argv[1] == "fork":
    open_queries.gates["run"] = None
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.read(reader, 1)  # a signal that comes within fork() is dropped by Python
        os.kill(pid, signal.SIGTERM)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(status, flush=True)
        os._exit(0)
    os.write(writer, b"x")
else:
    os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


@pytest.mark.parametrize(("case", "status"), [("fork", 0), ("idle", -signal.SIGTERM)])
def test_who_has_no_query_ends_at_once(case: str, status: int) -> None:
    """A process that was forked from the script's, and a script whose queries are over."""
    said = python(HANDLERS, case, status=status).stdout
    assert said == (f"{-signal.SIGTERM}\n" if case == "fork" else "")
