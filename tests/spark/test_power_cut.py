"""A power cut while a decision stands: what Spark wrote before it is on the disk, and the query
goes on exactly.

The system calls of a query that is killed when an epoch stands tell what was on the disk. The rest
is taken away, and the query is started again.
"""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from exactum.errors import CheckpointRefused, EpochAborted
from tests.kit.crash.jobs import Job, command
from tests.kit.crash.queries import rows_of_files, sums_of_files
from tests.kit.errors import check_query_error
from tests.kit.spark import power
from tests.kit.spark.files import InputFiles, rows_in
from tests.kit.spark.folder_sink import FolderSink
from tests.kit.waiting import WAIT_MAX_S, await_true

pytestmark = pytest.mark.spark

EPOCHS, DIES_AT = 7, 4
KEYS = 3
RECORD = re.compile(r"/exactum/decisions/(?!0{20}-0\.)\d+-\d+\.json$")
"""Not the first, an ABORT that fences older runs: Spark plans the state beside it."""
QUERIES = {"rocksdb": sums_of_files, "stateless": rows_of_files}
IN_THE_BACKGROUND = (".zip", "/SSTs", "/logs", ".tmp")
"""What no decision rests on: snapshots of state, and what is not finished."""


def give(folder: Path) -> None:
    files = InputFiles(folder / "input")
    for epoch in range(EPOCHS):
        files.give({"key": f"k{n % KEYS}", "number": 10 * epoch + n} for n in range(2 * KEYS))


def expected(kind: str) -> list[tuple[str, int]]:
    """Each row once; or the sum of each key after each epoch."""
    rows, sums = [], dict.fromkeys((f"k{n}" for n in range(KEYS)), 0)
    for epoch in range(EPOCHS):
        for n in range(2 * KEYS):
            rows.append((f"k{n % KEYS}", 10 * epoch + n))
            sums[f"k{n % KEYS}"] += 10 * epoch + n
        if kind != "stateless":
            rows = [*rows[: KEYS * epoch], *sums.items()]
    return sorted(rows)


def output(folder: Path) -> list[tuple[str, int]]:
    return sorted((row["key"], row["number"]) for row in rows_in(folder / "out"))


def spec_of(folder: Path, kind: str, *faults: dict[str, Any]) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    places = {name: str(folder.parent / name) for name in ("checkpoint", "input", "out")}
    return {"query": QUERIES[kind], "folder": str(folder), "faults": faults, **places}


def session(kind: str, fsync: str) -> dict[str, Any]:
    store = "spark.sql.streaming.stateStore"
    rocks = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    return {
        "spark.exactum.checkpoint.fsync": fsync,
        f"{store}.maintenanceInterval": "200ms",
        f"{store}.minDeltasForSnapshot": 2,
        **({f"{store}.providerClass": rocks} if kind == "rocksdb" else {}),
    }


def dies(folder: Path, kind: str, fsync: str) -> list[power.Call]:
    give(folder)
    life = folder / "life"
    spec = spec_of(life, kind, {"step": "batch", "when": "after", "nth": DIES_AT + 1})
    words = command([spec], session(kind, fsync))
    done = power.traced(words, life, WAIT_MAX_S)
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), done.stderr[-3000:]
    return power.calls(life)


def goes_on(folder: Path, kind: str) -> str:
    """The outcome."""
    life = folder / "another-life"
    specs = [spec_of(life, kind)]
    with Job(life, specs, command(specs, session(kind, "true"))) as job:
        (result,) = job.finishes()
    print(result)
    return str(result["outcome"])


def unsafe(disk: power.Disk) -> list[str]:
    """What of Spark's, and needed by the decision that is recorded now, is not on the disk."""
    found = {*disk.unnamed(), *disk.unwritten()}
    own = f"{disk.root}/exactum"
    return sorted(
        p
        for p in found
        if not p.startswith(own) and not any(part in p for part in IN_THE_BACKGROUND)
    )


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["rocksdb", "stateless"])
def test_after_a_power_cut_it_goes_on(kind: str, tmp_path: Path) -> None:
    disk = power.Disk(tmp_path / "checkpoint")
    decisions = snapshots = 0
    for call in dies(tmp_path, kind, "true"):
        if call.name.startswith("link") and RECORD.search(call.paths[1]):
            decisions += 1
            assert unsafe(disk) == [], f"not on the disk when {call.paths[1]} is recorded"
        if call.name.startswith("rename") and call.paths[1].endswith(".zip"):
            snapshots += 1
            store = os.path.dirname(call.paths[1])
            lost = [
                path
                for path in (*disk.unnamed(), *disk.unwritten())
                if path.startswith(f"{store}/SSTs")
            ]
            assert call.paths[0] not in disk.unwritten()
            assert lost == [], f"not on the disk when {call.paths[1]} names it"
        disk.play(call)
    assert decisions > DIES_AT
    assert (snapshots > 0) == (kind != "stateless")
    power.cut(disk)
    assert goes_on(tmp_path, kind) == "finished"
    assert output(tmp_path) == expected(kind)


@pytest.mark.deep
def test_without_fsync_it_is_refused(tmp_path: Path) -> None:
    """So what the tests above take away can be something; and nothing is written that should not
    be.
    """
    disk = power.Disk(tmp_path / "checkpoint")
    for call in dies(tmp_path, "rocksdb", "false"):
        disk.play(call)
    before = output(tmp_path)
    lost = [os.path.relpath(path, disk.root) for path in power.cut(disk)]
    assert {"metadata", f"offsets/{DIES_AT}"} <= set(lost)
    assert any(path.startswith(f"state/0/0/{DIES_AT + 1}_") for path in lost)
    assert goes_on(tmp_path, "rocksdb") == "failed"
    assert output(tmp_path) == before


def dies_when_2_stands(query: Any) -> None:
    exact = query.exactly_once().for_each_batch(checkpoint=query.checkpoint)

    def dies(frame: DataFrame, batch_id: int) -> None:
        exact(frame, batch_id)
        if batch_id == 2:
            raise RuntimeError("the power is cut")

    query.give(1, 2, 3, batches=3)
    assert "the power is cut" in str(query.run(dies))


def test_offsets_that_a_power_cut_took_are_written_again(query: Any) -> None:
    """As docs/operations.md says, for a checkpoint that Spark's own file system wrote."""
    dies_when_2_stands(query)
    offsets = query.checkpoint / "offsets"
    (offsets / "2").unlink()
    query.give(4)
    refused = query.run(query.exactly_once())
    check_query_error(refused, CheckpointRefused, "OFFSETS_DIFFER", "docs/operations.md")
    record = json.loads(
        next((query.checkpoint / "exactum" / "decisions").glob("*2-0.json")).read_text()
    )
    first_lines = (offsets / "1").read_text().splitlines()[:2]
    (offsets / "2").write_text(
        "\n".join([*first_lines, *(end or "-" for end in record["offsets"]["end"])])
    )
    (offsets / ".2.crc").unlink()
    assert query.run(query.exactly_once()) is None
    assert query.values() == sorted([1, 2, 3] * 3 + [4])


def test_a_file_of_spark_that_somebody_replaced_behind_a_batch(query: Any) -> None:
    """As a driver that was frozen while it named its own does when it wakes. The next batch would
    begin where that one ends.
    """
    query.give(1)
    query.give(2)
    assert query.run(query.exactly_once()) is None
    file = query.checkpoint / "offsets" / "1"
    kept = file.read_text()
    file.write_text(kept.replace('"logOffset":1', '"logOffset":0'))
    file.with_name(".1.crc").unlink()
    query.give(3)
    refused = query.run(query.exactly_once())
    check_query_error(refused, CheckpointRefused, "OFFSETS_DIFFER", "epoch 1")
    file.write_text(kept)
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2, 3]


def test_a_file_of_spark_that_another_driver_replaced_before_its_batch(
    query: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that plan a batch in the same moment: what the file says is not what this one writes."""
    query.give(1)
    assert query.run(query.exactly_once()) is None
    query.give(2)
    file = query.checkpoint / "offsets" / "1"
    opened = FolderSink.open

    def late(self: FolderSink, *given: Any) -> Any:
        await_true(file.exists, "Spark has planned batch 1")
        file.with_name(".1.crc").unlink()
        file.write_text(file.read_text().replace('"logOffset":1', '"logOffset":0'))
        return opened(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(FolderSink, "open", late)
        refused = query.run(query.exactly_once())
    check_query_error(refused, EpochAborted, "", "another driver has planned it")
    assert query.values() == [1]
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]


def test_other_files_are_not_taken_for_those_of_a_decided_batch(query: Any) -> None:
    """Where the power cut took what Spark knew of them as well, it plans the batch anew, with what
    has come since: of the same number, which is all that its offset says.
    """
    query.give(1)
    query.give(2)
    assert query.run(query.exactly_once()) is None
    for name in ("offsets", "sources/0", "commits"):
        for file in ("1", ".1.crc"):
            (query.checkpoint / name / file).unlink()
    (other,) = (query.checkpoint.parent / "input").glob("*1.json")
    other.rename(other.with_name("came-later.json"))
    refused = query.run(query.exactly_once())
    check_query_error(refused, CheckpointRefused, "OFFSETS_DIFFER", "files")
    (other.with_name("came-later.json")).rename(other)
    for name in ("offsets", "sources/0"):
        for file in ("1", ".1.crc"):
            (query.checkpoint / name / file).unlink()
    assert query.run(query.exactly_once()) is None
    assert query.values() == [1, 2]


@pytest.mark.deep
@pytest.mark.parametrize("name", ["commits/1", "metadata"])
def test_what_else_a_power_cut_may_empty(query: Any, name: str) -> None:
    """As docs/operations.md says: a commit is not needed, and the query's id is in every record."""
    dies_when_2_stands(query)
    damaged = query.checkpoint / name
    damaged.write_bytes(b"")
    damaged.with_name(f".{damaged.name}.crc").unlink()
    assert query.run(query.exactly_once()) is not None
    record = json.loads(
        next((query.checkpoint / "exactum" / "decisions").glob("*2-0.json")).read_text()
    )
    damaged.unlink()
    if name == "metadata":
        damaged.write_text(json.dumps({"id": record["query_id"]}))
    assert query.run(query.exactly_once()) is None
    assert query.values() == sorted([1, 2, 3] * 3)
