"""docs/adding-a-sink.md: the sink on the page keeps the contract, and works in a query."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import exactum
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-sink.md"
CONTRACT_TIMEOUT_S = WAIT_MAX_S


def blocks() -> list[str]:
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) == 4
    return found


@pytest.mark.sweep
def test_the_sink_on_the_page_keeps_the_contract(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text("\n".join(blocks()))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(tmp_path / "test_page.py"),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=CONTRACT_TIMEOUT_S,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 15, done.stdout[-500:]
    assert "skipped" not in done.stdout


@pytest.mark.spark
def test_the_sink_on_the_page_in_a_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run, and another one after a death between the sink's commit and Spark's."""
    page = tmp_path / "sink_on_the_page.py"
    page.write_text("\n".join(blocks()[:3]))
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(page))
    from sink_on_the_page import SqliteSink  # type: ignore[import-not-found]

    target = tmp_path / "target.db"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text(
        "".join(json.dumps({"v": n}) + "\n" for n in range(100))
    )
    for death in (True, False):
        once = exactum.exactly_once(SqliteSink(str(target)))
        write = once.for_each_batch(checkpoint=tmp_path / "checkpoint")

        def each_batch(frame, batch_id, write=write, death=death):  # type: ignore[no-untyped-def]
            write(frame, batch_id)
            if death:
                raise RuntimeError("died behind the commit")

        rows = spark.readStream.schema("v long").json(str(tmp_path / "in"))
        writer = rows.writeStream.foreachBatch(each_batch).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start()
        began_s = time.monotonic()
        while query.isActive and time.monotonic() - began_s < 120:
            time.sleep(0.1)
        assert (query.exception() is not None) == death
    with sqlite3.connect(target) as database:
        found = [json.loads(text)["v"] for (text,) in database.execute("SELECT row FROM target")]
        assert sorted(found) == list(range(100))
        (marker,) = database.execute("SELECT batch FROM marker").fetchall()
        assert marker == (0,)
