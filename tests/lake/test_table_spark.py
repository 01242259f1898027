"""A real Spark query into a table, whose process is killed around the table's commits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.crash.jobs import Job, command
from tests.kit.lake.job import into_a_table, place_of
from tests.kit.lake.tables import Delta
from tests.kit.spark.files import InputFiles, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCHES, ROWS = 3, 20


def live(folder: Path, kill: str, kind: str) -> None:
    """One life of the job, to its end or to its death."""
    own = folder / f"life-{kill}"
    own.mkdir()
    spec = {
        "query": into_a_table,
        "folder": str(own),
        "checkpoint": str(folder / "checkpoint"),
        "input": str(folder / "in"),
        "tables": str(folder),
        "kill": kill,
        "kind": kind,
    }
    with Job(own, [spec], command([spec], {})) as job:
        if kill:
            job.dies()
        else:
            assert job.finishes() == [{"outcome": "finished"}]


# The contract has every call of both tables, before it and after it; here a real Spark is killed.
@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("iceberg", "after"),
        *(
            pytest.param(kind, "before after", marks=pytest.mark.deep)
            for kind in ("iceberg", "append", "upsert")
        ),
    ],
)
def test_killed_at_a_commit(kind: str, kills: str, tmp_path: Path) -> None:
    """Before it, or when it is done and nobody was told: each row is in the table once and in the
    files once; each batch made one version.
    """
    # What a table refuses: null as the key of an upsert, and the empty text as Delta's partition.
    bad = {"append": [""], "upsert": [None], "iceberg": []}[kind]
    files = InputFiles(tmp_path / "in")
    for batch in range(BATCHES):
        rows = [
            {"id": batch * ROWS + n, "key": f"k{n % 5}", "v": f"{batch}/{n}"} for n in range(ROWS)
        ]
        rows += [{"id": -1, "key": key, "v": "bad"} for key in bad]
        files.give(rows)
    for kill in (*kills.split(), ""):
        live(tmp_path, kill, kind)
    place = place_of(tmp_path, kind)
    found = place.read().to_pylist()
    if kind == "upsert":
        assert {row["key"]: row["v"].partition("/")[0] for row in found} == {
            f"k{n}": f"{BATCHES - 1}" for n in range(5)
        }
        assert len(found) == 5
    else:
        assert sorted(row["id"] for row in found) == list(range(BATCHES * ROWS))
    assert place.versions() == BATCHES
    good = list(range(BATCHES * ROWS))
    assert (
        sorted(row["id"] for row in rows_in(tmp_path / "files")) == [-1] * BATCHES * len(bad) + good
    )
    dead = Delta(tmp_path / "dead").read().to_pylist()
    assert [json.loads(row["row_json"])["v"] for row in dead] == ["bad"] * BATCHES * len(bad)
    assert all("'key'" in row["error"] for row in dead)
