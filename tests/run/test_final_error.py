"""What stands last on the terminal of a script whose query failed: what is wrong, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.python import python

SCRIPT = """
import sys
import exactum

folder, what = sys.argv[1:]
spark = exactum.local_session("first-day")
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
sink = exactum.FileSink(f"{folder}/out", format="json", partition_by="nothing")
checkpoint = "/proc/data/orders" if what == "folder" else f"{folder}/checkpoint"
try:
    exactum.exactly_once(sink).start(rows.writeStream, checkpoint=checkpoint).awaitTermination()
except exactum.errors.ExactumError:
    if what == "handled":
        raise KeyError("something else") from None
    raise
"""


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("column", "exactum.errors.FrameRefused: [FILES_"),
        ("folder", "exactum.errors.SettingRefused: [CHECKPOINT_UNMADE]"),
        ("handled", "KeyError: 'something else'"),
    ],
)
def test_the_last_line(tmp_path: Path, what: str, last: str) -> None:
    """It is exactum's message where that ends the script, below Spark's traces and plans, and
    nothing else's.
    """
    lines = python(SCRIPT, tmp_path, what, status=1).stderr.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith(last)]
    assert places, "\n".join(lines[-20:])
    # The JVM, which is another process, may log its own end behind it: nothing else stands there.
    behind = "\n".join(lines[places[-1] + 1 :])
    for ours in ("Traceback", "=== Streaming Query ===", "exactum.errors"):
        assert ours not in behind
