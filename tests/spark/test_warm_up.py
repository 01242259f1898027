"""What is started and imported before it is needed, in processes of its own: in this one it is
there already.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.python import python

SESSION = """
import json, logging, os, pathlib, sys
import exactum
from exactum.spark.jvm import frames
from exactum.spark.startup import warm_up
from exactum.spark.write.write_task import record_batch

def children(parent):
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = process.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == parent:
            found.append(int(process.parent.name))
    return sorted(found)

def workers():
    return [worker for daemon in children(jvm) for worker in children(daemon)]

def write(batches):
    pathlib.Path(folder, str(os.getpid())).touch()
    return (record_batch([]) for batch in batches)

folder = sys.argv[1]
logging.basicConfig()
logging.getLogger("exactum").setLevel(logging.DEBUG)
session = exactum.local_session(
    "warm up", master="local[2]", **{"spark.exactum.warmWorkers": "false"}
)
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
before = workers()
warm_up.touch_workers(session)
warm = workers()
call = frames.call(["id"], write, "prepared string")
frames.applied(session.range(0, 2, 1, 2), call).collect()
used = sorted(int(path.name) for path in pathlib.Path(folder).iterdir())
print(json.dumps({"before": before, "warm": warm, "used": used, "after": workers()}))
"""


@pytest.mark.deep
@pytest.mark.spark
def test_a_write_job_finds_its_workers_there(tmp_path: Path) -> None:
    """Spark gives a job the workers of another one whose environment is the same."""
    done = python(SESSION, tmp_path)
    found = json.loads(done.stdout)
    assert found["before"] == []
    assert len(found["warm"]) == 2, done.stderr[-3000:]
    assert set(found["used"]) <= set(found["warm"])
    assert found["after"] == found["warm"]


CONVERTED = """
import sys
from exactum.spark.startup import warm_up
warm_up._import()
before = set(sys.modules)
from pyspark.sql.types import NumpyScalarConverter
NumpyScalarConverter().can_convert(object())
print(sorted(set(sys.modules) - before))
"""


def test_the_first_call_to_the_jvm_imports_nothing_more() -> None:
    """PySpark imports its own test tools then, and pandas with them, while everybody waits."""
    assert python(CONVERTED).stdout.strip() == "[]"
