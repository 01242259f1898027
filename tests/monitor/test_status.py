"""``exactum status`` over checkpoints that are put together here: no Spark, no server."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exactum.checkpoint.layout import DECISIONS, HISTORY
from exactum.monitor.history import HistoryWriter
from exactum.monitor.job import read_job
from exactum.ops import render, status
from exactum.ops.cli import main
from exactum.ops.render import job_value
from exactum.ops.status import checkpoints_below
from exactum.storage.folder import Folder
from tests.kit.monitor.facts import QUERY
from tests.kit.monitor.made_checkpoint import Checkpoint, ago
from tests.kit.python import python
from tests.kit.query_record import damage, note

pytestmark = pytest.mark.usefixtures("still_clock")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "orders")


def value_of(checkpoint: Path | str) -> dict[str, Any]:
    """As ``--json`` has it."""
    return job_value(read_job(checkpoint))


def run_status(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["status", *arguments], env={"COLUMNS": "80"})


def shown(made: Checkpoint) -> str:
    return run_status("--checkpoint", str(made.folder)).stdout


# ---- nobody can tell -------------------------------------------------------------------------


def test_what_is_no_checkpoint(tmp_path: Path) -> None:
    """It is said what is missing, and the status is that of not knowing: no probe takes it for
    sound or for broken.
    """
    Checkpoint(tmp_path / "torn").folder.joinpath("metadata").write_text('{"id"')
    (tmp_path / "empty").mkdir()
    wanted = {"nowhere": "is not a folder", "torn": "cannot be read", "empty": "no file 'metadata'"}
    for name, text in wanted.items():
        found = value_of(tmp_path / name)
        assert (found["status"], found["verdict"]) == (2, "UNKNOWN")
        assert text in found["reason"]
    assert value_of("hdfs://node/orders")["status"] == 2


# ---- dead ------------------------------------------------------------------------------------


def test_dead_and_in_doubt(checkpoint: Checkpoint) -> None:
    """The decision log has what nobody lived to tell: the batch, since when, and how much. The history is
    not needed for that.
    """
    checkpoint.spark(3, 2).tells(ago(60).starts().epoch(2)).commit(3, age_s=45)
    found = value_of(checkpoint.folder)
    assert (found["verdict"], found["status"], found["runs"]) == ("IN DOUBT", 1, [])
    doubt = found["stats"]["in_doubt"]
    assert (doubt["batch_id"], doubt["transactions"], doubt["rows"]) == (3, 2, 10)
    assert (found["at_ms"] - doubt["since_ms"]) / 1000 == pytest.approx(45, abs=0.1)
    assert (found["completed"], found["planned"], found["decided"]) == (2, 3, 3)
    shutil.rmtree(checkpoint.folder / HISTORY)
    found = value_of(checkpoint.folder)
    assert (found["verdict"], "transactions finish" in found["todo"]) == ("IN DOUBT", True)


def test_dead_and_nothing_in_doubt(tmp_path: Path) -> None:
    """The batch was completed and Spark did not come to log it; an operator finished it; it was
    not decided; or it is at most once, where a record promises nothing.
    """
    stories = {
        "completed": ago(60).starts().epoch(3),
        "finished": ago(60).starts().epoch(2).dies().finished(3),
        "undecided": ago(60).starts().epoch(2),
        "most": ago(60).starts(guarantee="at most once").epoch(2),
    }
    for name, story in stories.items():
        made = Checkpoint(tmp_path / name).spark(3, 2).tells(story)
        if name != "undecided":
            made.commit(3)
        assert made.says()[0] == "DOWN", name


def test_decisions_elsewhere(checkpoint: Checkpoint) -> None:
    """The verdict is given without them, and it is said that they are missing."""
    note(checkpoint.folder, QUERY, decision_log="postgresql://db/x", log_id="a")
    checkpoint.spark(3, 2).tells(ago(60).starts().epoch(2))
    found = value_of(checkpoint.folder)
    assert found["verdict"] == "DOWN"
    assert "--decision-log" in found["problems"][0]


def test_decisions_that_cannot_be_read(tmp_path: Path) -> None:
    """They are not said to be missing, and what is wrong is to be mended before a start."""
    for name in ("query", "record"):
        made = Checkpoint(tmp_path / name).spark(3, 2).tells(ago(60).starts().epoch(2)).commit(3)
        record = next((made.folder / DECISIONS).glob("*3-0.json"))
        if name == "query":
            damage(made.folder, '{"torn')
        else:
            record.write_text('{"torn')
        said = shown(made)
        assert "last complete 2; 3 begun, whether it is decided is not known\n" in said
        assert "not decided" not in said and "tart it again" not in said, said
        assert "what to do: First see to this: " in said
        assert "Whether micro-batch 3 is decided is not known." in said
        assert made.spark(3, 3).says()[1].startswith("Its process is gone without a word")
        assert "is not known" not in shown(made)


def test_a_lag_of_long_ago(checkpoint: Checkpoint) -> None:
    """When it was seen is told with it: after a while, and of a dead query at once."""
    checkpoint.spark(3, 3).tells(ago(3).starts().epoch(3).lag(12, 3.0))
    with checkpoint.alive():
        assert "  lag: 12 offsets, 3 s\n" in shown(checkpoint)
    said = shown(checkpoint)
    assert re.search(r"  lag: 12 offsets, 3 s, as of [\d.]+ m?s ago\n", said), said


# ---- alive -----------------------------------------------------------------------------------


def test_alive_and_at_work(checkpoint: Checkpoint) -> None:
    """The history has no begin of a batch: Spark's logs have, and how much each one reads. What
    the dead run before has begun counts from the new one's start.
    """
    story = ago(100).starts()
    for batch_id in range(3):
        story.epoch(batch_id)
    story.now_ms = round(time.time() * 1000)
    checkpoint.spark(3, 2, age_s=70).tells(story.lag(10, 80.0))
    with checkpoint.alive():
        verdict, reason = checkpoint.says()
        assert verdict == "OK"
        assert reason.startswith("Micro-batch 3 of 10 records is at work for ")
        later_ms = story.now_ms + 36_000
        assert checkpoint.says(now_ms=later_ms)[0] == "STALLED"
    assert checkpoint.says()[0] == "DOWN"


def test_alive_and_in_doubt(checkpoint: Checkpoint) -> None:
    """A commit that a sink does not acknowledge."""
    story = ago(100).starts().epoch(2)
    story.now_ms = round(time.time() * 1000)
    checkpoint.spark(3, 2, age_s=50).tells(story.lag(10, 50.0)).commit(3, age_s=20)
    with checkpoint.alive():
        assert checkpoint.says()[0] == "OK"
        os.utime(next((checkpoint.folder / DECISIONS).glob("*3-0.json")), (1, 1))
        assert checkpoint.says()[0] == "IN DOUBT"


def test_alive_on_a_file_system_without_locks(checkpoint: Checkpoint) -> None:
    """No run could leave a file. What it tells shows that it lives, and its silence that it does
    not.
    """
    story = ago(0).starts().epoch(3, 0.0).lag(0)
    HistoryWriter(Folder(checkpoint.spark(3, 3).folder)).write(story.facts)
    assert checkpoint.says()[0] == "OK"
    assert checkpoint.says(now_ms=story.now_ms + 70_000)[0] == "STALLED"


def test_alive_without_a_history(checkpoint: Checkpoint) -> None:
    """Switched off: what a run's file and Spark's logs tell."""
    checkpoint.spark(3, 2)
    with checkpoint.alive():
        assert checkpoint.says()[0] == "OK"
        assert checkpoint.says(now_ms=round(time.time() * 1000) + 400_000)[0] == "STALLED"
        checkpoint.spark(3, 3)
        assert checkpoint.says(now_ms=round(time.time() * 1000) + 400_000)[0] == "OK"
    assert checkpoint.says()[0] == "DOWN"


def test_a_history_that_stands_still_while_the_query_goes_on(checkpoint: Checkpoint) -> None:
    """It cannot be written; Spark's log of commits shows that the query lives."""
    checkpoint.spark(3, 3).tells(ago(500).starts().epoch(0).lag(0))
    with checkpoint.alive():
        assert checkpoint.says()[0] == "OK"


def test_a_history_that_cannot_be_read(checkpoint: Checkpoint) -> None:
    checkpoint.spark(3, 3).tells(ago(5).starts())
    shutil.rmtree(checkpoint.folder / HISTORY)
    (checkpoint.folder / HISTORY).write_text("no folder")
    with checkpoint.alive():
        found = value_of(checkpoint.folder)
    assert found["status"] == 0
    assert "directory" in found["problems"][0]


def test_a_query_that_waits_for_its_first_batch(checkpoint: Checkpoint) -> None:
    """Nothing is heard of it but that it waits."""
    story = ago(300).starts().epoch(3).ends()
    story.now_ms = round(time.time() * 1000)
    checkpoint.spark(3, 3).tells(story.waits(incarnation="i2"))
    with checkpoint.alive():
        assert read_job(checkpoint.folder).has_begun
        assert checkpoint.says()[1] == "It was started, and has found nothing to read yet."
    assert checkpoint.says()[0] == "DOWN"


@pytest.mark.parametrize("last", ["waited", "worked", "decided"])
def test_a_run_that_has_told_nothing_yet_is_not_judged_by_the_one_before(
    checkpoint: Checkpoint, last: str
) -> None:
    """Its lock says that it lives: the silence, the lag and the doubt were its predecessor's."""
    story = ago(700).starts().epoch(2).lag(90, 60.0).after(300).lag(90, 360.0)
    checkpoint.spark(2, 2, age_s=400)
    if last == "waited":
        story.waits("Getting offsets")
    elif last == "decided":
        story.decides(3)
        checkpoint.spark(3, 2, age_s=400).commit(3, age_s=400)
    checkpoint.tells(story.dies())
    with checkpoint.alive("i2"):
        now_ms = round(time.time() * 1000)
        assert checkpoint.says()[0] == "OK"
        assert checkpoint.says(now_ms=now_ms + 25_000)[0] == "OK"
        assert checkpoint.says(now_ms=now_ms + 35_000)[0] in ("STALLED", "IN DOUBT")
    assert checkpoint.says()[0] in ("DOWN", "IN DOUBT")


def test_a_start_that_failed_says_why(checkpoint: Checkpoint) -> None:
    """It comes to no run, and is newer than the last one; the end of an older run is not."""
    story = ago(60).starts("i2").epoch(0).ends("RowsRefused", "halt", incarnation="i2").after(5)
    checkpoint.spark(0, 0).tells(story.ends("Unavailable", "restart", incarnation="i3"))
    assert "Unavailable" in checkpoint.says()[1]
    assert read_job(checkpoint.folder).stats.runs == 1
    checkpoint.tells(ago(4).ends("Fenced", "fenced", incarnation="i1"))
    assert "Unavailable" in checkpoint.says()[1]


@pytest.mark.parametrize("says_so_late", [False, True])
def test_a_start_that_is_refused_behind_a_clean_end(
    checkpoint: Checkpoint, says_so_late: bool
) -> None:
    """It is down, though the run before had read all and ended; and a failure that is over is not
    told as if it were not. In one process, the end of the run before may be told last.
    """
    story = ago(60).starts(ends=True).epoch(0).after(1)
    refused = {"error": "CheckpointRefused", "disposition": "halt", "reason": "no"}
    if says_so_late:
        story.ends(**refused, incarnation="i2").ends(incarnation="i1")
    else:
        story.ends(incarnation="i1").ends(**refused, incarnation="i2")
    checkpoint.spark(0, 0).tells(story)
    assert checkpoint.says() == (
        "DOWN",
        "No process runs it. It ended with CheckpointRefused: no.",
    )
    assert "worked since" not in shown(checkpoint)
    checkpoint.tells(ago(40).starts("i3", ends=True).ends(incarnation="i3", has_read_all=True))
    assert checkpoint.says()[0] == "OK"
    assert ", and it has worked since: no\n" in shown(checkpoint)


def test_a_checkpoint_without_its_offsets(checkpoint: Checkpoint) -> None:
    checkpoint.spark(3, 3).tells(ago(5).starts().epoch(3))
    shutil.rmtree(checkpoint.folder / "offsets")
    (checkpoint.folder / "offsets").mkdir()
    assert "[CHECKPOINT_DAMAGED]" in shown(checkpoint)


def test_a_query_that_is_stopped_as_it_says_that_it_waits(checkpoint: Checkpoint) -> None:
    """One thread says that, another one how it ended: the first may come last."""
    checkpoint.spark(0, 0).tells(ago(5).ends(incarnation="i1").after(0.01).waits())
    assert checkpoint.says() == ("DOWN", "It was stopped; nothing failed.")


def test_a_query_that_has_planned_its_first_batch_has_not_begun(checkpoint: Checkpoint) -> None:
    """It said that it waits for data, or that it is being planned; then Spark planned a batch."""
    checkpoint.spark(0, -1).tells(ago(5).waits(incarnation="i2"))
    with checkpoint.alive():
        assert not read_job(checkpoint.folder).has_begun
        assert "Micro-batch 0" in checkpoint.says()[1]
    (checkpoint.folder / "offsets/0").unlink()
    checkpoint.tells(ago(4).waits("Getting offsets", "i2"))
    with checkpoint.alive():
        assert not read_job(checkpoint.folder).has_begun
        assert checkpoint.says()[1] == "It was started, and has not begun a micro-batch yet."


def test_an_older_run_that_ends_late_takes_nothing_from_the_newer_one(
    checkpoint: Checkpoint,
) -> None:
    """Two were started: what the fenced one and its supervisor say comes after the other's start."""
    story = ago(60).starts("i1").epoch(0).after(5).starts("i2").after(1)
    story.ends("Fenced", "fenced", incarnation="i1").dies("halt", disposition="fenced")
    checkpoint.spark(0, 0).tells(story)
    with checkpoint.alive("i2"):
        assert checkpoint.says()[0] == "OK"
        assert [run.incarnation for run in read_job(checkpoint.folder).runs] == ["i2"]
    assert checkpoint.says()[0] == "DOWN"


def test_who_runs_it_cannot_be_seen(checkpoint: Checkpoint) -> None:
    """Nobody is not the same as not known."""
    checkpoint.spark(0, 0).tells(ago(60).starts("i1").epoch(0))
    with checkpoint.alive("i1"):
        runs = checkpoint.folder / "exactum/runs"
        runs.rename(runs.with_name("kept"))
        runs.write_text("no folder")
        assert checkpoint.says()[0] == "UNKNOWN"
        runs.unlink()
        runs.with_name("kept").rename(runs)


def test_a_lag_says_what_it_does_not_count(checkpoint: Checkpoint) -> None:
    """Zero is the lag of what is asked alone."""
    story = ago(3).starts().epoch(3).lag(0, not_counted=["source 1 (not of Kafka)"])
    checkpoint.spark(3, 3).tells(story)
    with checkpoint.alive():
        assert checkpoint.says() == ("OK", "Nothing is left to read in what is counted.")
        assert "lag: 0 offsets; not counted: source 1 (not of Kafka)\n" in shown(checkpoint)
    checkpoint.tells(ago(2).lag(0))
    with checkpoint.alive():
        assert "lag: 0 offsets\n" in shown(checkpoint)


# ---- the command -----------------------------------------------------------------------------


def test_exit_status_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not work is worse than one of which nobody can tell."""
    down = Checkpoint(tmp_path / "down").spark(1, 1).tells(ago(60).starts(ends=False).epoch(1))
    done = Checkpoint(tmp_path / "done").spark(1, 1)
    done.tells(ago(60).starts(ends=True).epoch(1).ends(has_read_all=True))
    names = (str(down.folder), str(tmp_path / "none"), str(done.folder))
    one, two, three = (value_of(name)["status"] for name in names)
    assert render.worst([three]) == 0
    assert render.worst([three, two]) == 2
    assert render.worst([three, two, one]) == 1
    saved = Checkpoint(tmp_path / "saved" / "checkpoint").spark(3, 3)
    (saved.folder.parent / "manifest.json").write_text("{}")
    assert checkpoints_below(tmp_path) == [str(done.folder), str(down.folder)]
    assert checkpoints_below(done.folder) == [str(done.folder)]
    monkeypatch.chdir(tmp_path)
    said = run_status()
    assert said.exit_code == 1
    assert "orders: DOWN. Its process is gone without a word" in said.stdout
    assert "orders: OK. It has read what it was to read, and has ended." in said.stdout
    assert "what to do: Start it again" in said.stdout
    assert run_status("--checkpoint", str(done.folder)).exit_code == 0
    monkeypatch.chdir(done.folder / "commits")
    empty = run_status()
    assert (empty.exit_code, "--checkpoint DIR" in empty.stderr) == (2, True)


def test_waiting_until_it_is_ready(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """For so long, and no longer; a query that has completed nothing since its start is not ready
    yet.
    """
    checkpoint.spark(3, 2, age_s=50).tells(ago(60).starts().epoch(2))
    with checkpoint.alive():
        command = ["--checkpoint", str(checkpoint.folder), "--wait-ready"]
        began_s = time.monotonic()
        said = run_status(*command, "1")
        assert time.monotonic() - began_s >= 1
        assert (said.exit_code, "not ready within 1 s" in said.stderr) == (1, True)
        assert run_status(*command[:2]).exit_code == 0
        completes = SimpleNamespace(
            monotonic=time.monotonic, sleep=lambda pause_s: checkpoint.spark(3, 3, age_s=-1.0)
        )
        monkeypatch.setattr(status, "time", completes)
        assert run_status(*command, "3600").exit_code == 0


def test_it_is_light(checkpoint: Checkpoint) -> None:
    """A probe runs it every few seconds: it loads neither Spark nor a client."""
    checkpoint.spark(3, 2).commit(3).tells(ago(60).starts().epoch(2))
    heavy = {"pyspark", "pyarrow", "numpy", "kafka", "confluent_kafka", "rich"}
    program = f"""
import sys
from exactum.ops import cli
try:
    cli.main(["status", "--json", "--checkpoint", {str(checkpoint.folder)!r}])
finally:
    print(sorted({heavy} & sys.modules.keys()), file=sys.stderr)
"""
    done = python(program, status=1)
    assert done.stderr.strip() == "[]"
    assert json.loads(done.stdout)["queries"][0]["verdict"] == "IN DOUBT"
