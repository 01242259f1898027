"""What stands last on the terminal of a script whose query failed: what is wrong, and what to
do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from exactum.spark.final_error import FinalError
from tests.kit.run import final_error_job
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.spark

JOB = Path(final_error_job.__file__)
TIMEOUT_S = WAIT_MAX_S


@pytest.mark.deep
@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("column", "exactum.errors.FrameRefused: FileSink("),
        pytest.param(
            "forgotten",
            "exactum.errors.SettingRefused: [SINKS_WANTED] Spark called exactum.exactly_once itself",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "folder",
            "The query was not started: Spark cannot make or write /proc/data/orders.",
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "file",
            f"The query was not started: Spark cannot make or write {JOB}.",
            marks=pytest.mark.deep,
        ),
        pytest.param("handled", "KeyError: 'something else'", marks=pytest.mark.deep),
    ],
)
def test_the_last_line(tmp_path: Path, what: str, last: str) -> None:
    """It is exactum's message where that ends the script, below Spark's traces and plans, and
    nothing else's.
    """
    ended = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path), what],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith(last)]
    assert places, "\n".join(lines[-20:])
    # The JVM, which is another process, may log its own end behind it: nothing else stands there.
    behind = "\n".join(lines[places[-1] + 1 :])
    for ours in ("Traceback", "=== Streaming Query ===", "exactum.errors"):
        assert ours not in behind


@pytest.mark.deep
@pytest.mark.parametrize("place", ["/proc/data/orders", __file__], ids=["no folder", "a file"])
def test_what_spark_says_of_a_checkpoint_that_it_cannot_make(
    spark: SparkSession, place: str
) -> None:
    """Found in Spark's own words, whatever those are in this version of it."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", place)
    with pytest.raises(Py4JJavaError) as failed:
        writer.start()
    told = FinalError().text(failed.value) or ""
    assert told.startswith(f"The query was not started: Spark cannot make or write {place}.")
