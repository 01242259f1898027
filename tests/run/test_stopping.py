"""The queries of a script that is to stop: all of them, and none begins any more."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from exactum.spark.open_queries import Stoppable, open_queries
from exactum.spark.supervised.process import stop_queries
from tests.kit.run.run_command import Command
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


STOPS = """
import sys, time
from pathlib import Path
import exactum
from pyspark.sql.functions import udf

begun = Path("begun").absolute()

def slow(value):
    begun.touch()
    time.sleep(30)
    return str(value)

spark = exactum.local_session("stops", master="local[2]")
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
slowly = rows.select(udf(slow)("value").alias("value"))
once = exactum.exactly_once(exactum.FileSink("out", format="json"))
query = once.start(slowly.writeStream, checkpoint="checkpoint")
while not begun.exists() and query.isActive:
    time.sleep(0.05)
query.stop(now=True)
print("stopped:", query.exception(), flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("status", [0, pytest.param(3, marks=pytest.mark.deep)])
def test_a_query_that_the_script_stops_has_not_failed(tmp_path: Path, status: int) -> None:
    """In the middle of a micro-batch. The line that names how the script ended blamed the query."""
    script = tmp_path / "app.py"
    script.write_text(STOPS)
    with Command(tmp_path, script, ("--restart-attempts", "0"), (str(status),)) as run:
        assert run.ends() == min(status, 1)
    assert "stopped: None" in run.log and (tmp_path / "begun").exists()
    (end,) = [
        line for line in run.log.splitlines() if "ended by itself" in line or "status" in line
    ]
    assert "failed with" not in end and "EpochAborted" not in end


@pytest.mark.slow
def test_no_run_begins_behind_a_dead_supervisor(tmp_path: Path) -> None:
    """It would fence what the next supervisor has started."""
    script = tmp_path / "app.py"
    script.write_text("""
from pathlib import Path
from exactum.errors import Unavailable
from exactum.spark.supervised import process, standby

supervised = process.current()
print("ready", flush=True)
supervised.orphaned.wait()
said = []
for begin in (standby.wait_for_turn, supervised.refuse_start):  # as a start does
    try:
        begin()
    except Unavailable as error:
        said.append(str(error))
Path("said.tmp").write_text("|".join(said))
Path("said.tmp").rename("said")
""")
    with Command(tmp_path, script, ()) as run:
        run.says("ready")
        run.signal(signal.SIGKILL)
        await_true((tmp_path / "said").exists, "the script has tried")
    said = (tmp_path / "said").read_text().split("|")
    assert len(said) == 2
    assert all("exactum run has ended" in text for text in said)
