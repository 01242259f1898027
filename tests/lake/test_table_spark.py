"""A real Spark query into a table, whose process is killed around the table's commits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.kit.environment import environment
from tests.kit.lake import job
from tests.kit.lake.iceberg import Lake
from tests.kit.lake.tables import read
from tests.kit.waiting import WAIT_MAX_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES, ROWS = 3, 20


def live(folder: Path, kill: str, kind: str) -> None:
    """One life of the job's process group, to its end or to its death."""
    play = json.dumps({"folder": str(folder), "kill": kill, "kind": kind})
    with (folder / "job.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, job.__file__, play],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment(SPARK_LOCAL_DIRS=str(folder / "spark")),
            timeout=WAIT_MAX_S,
            check=False,
        )
    log_text = (folder / "job.log").read_text(errors="replace")[-6_000:]
    assert done.returncode == (-signal.SIGKILL if kill else 0), log_text


def versions(folder: Path, kind: str) -> int:
    if kind == "iceberg":
        return len(Lake(folder / "lake").table.snapshots())
    return DeltaTable(str(folder / "table")).version()


@pytest.mark.parametrize(
    "kind", ["append", "iceberg", pytest.param("upsert", marks=pytest.mark.deep)]
)
def test_killed_at_every_commit(kind: str, tmp_path: Path) -> None:
    """Before and after it, again and again: each row is in the table once and in the files once;
    each batch made one version.
    """
    # What a table refuses: null as the key of an upsert, and the empty text as Delta's partition.
    bad = {"append": [""], "upsert": [None], "iceberg": []}[kind]
    (tmp_path / "in").mkdir()
    for batch in range(BATCHES):
        rows = [
            {"id": batch * ROWS + n, "key": f"k{n % 5}", "v": f"{batch}/{n}"} for n in range(ROWS)
        ]
        rows += [{"id": -1, "key": key, "v": "bad"} for key in bad]
        file = tmp_path / "in" / f"{batch}.json"
        file.write_text("".join(json.dumps(r) + "\n" for r in rows))
        os.utime(file, (1_700_000_000 + batch,) * 2)  # Spark takes them by their times
    for kill in ("before", "after", ""):
        live(tmp_path, kill, kind)
    lake = kind == "iceberg"
    found = (Lake(tmp_path / "lake").read() if lake else read(tmp_path / "table")).to_pylist()
    if kind == "upsert":
        assert {row["key"]: row["v"].partition("/")[0] for row in found} == {
            f"k{n}": f"{BATCHES - 1}" for n in range(5)
        }
        assert len(found) == 5
    else:
        assert sorted(row["id"] for row in found) == list(range(BATCHES * ROWS))
    assert versions(tmp_path, kind) == BATCHES
    lines = [
        line
        for file in (tmp_path / "files").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    good = list(range(BATCHES * ROWS))
    assert sorted(json.loads(line)["id"] for line in lines) == [-1] * BATCHES * len(bad) + good
    dead = read(tmp_path / "dead").to_pylist()
    assert [json.loads(row["row_json"])["v"] for row in dead] == ["bad"] * BATCHES * len(bad)
    assert all("'key'" in row["error"] for row in dead)
