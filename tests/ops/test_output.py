"""What each command prints, word for word: into a pipe, on a terminal, and as JSON.

With EXACTUM_OUTPUT=1 the files of tests/kit/ops/output are made anew; read what changed in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner

from exactum import FileSink
from exactum.checkpoint.savepoint.create import create
from exactum.ops import render
from exactum.ops.cli import main
from exactum.problem import Level, Problem, error, ok, unknown, warning
from exactum.protocol.sink import Rejection
from exactum.spark.write.dead_letter import dead_letters
from tests.kit.environment import ROOT
from tests.kit.monitor.fixed_output import NOW_MS, same_everywhere
from tests.kit.monitor.made_checkpoint import Checkpoint, ago
from tests.kit.transactions.given import of_checkpoint
from tests.kit.verify.recorded_query import RecordedQuery

OUTPUT = ROOT / "tests" / "kit" / "ops" / "output"
NOISE = (
    (re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r"), ""),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "QUERY-ID"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b[0-9a-f]{16}\b"), "RANDOM"),
    (re.compile(r"\b[0-9a-f]{24}\b"), "LETTER"),
    (re.compile(r"\([\d,]+ bytes and [^)]*\)"), "(ROOM)"),
    (re.compile(r" +$", re.MULTILINE), ""),
)
ID_AND_NAME = (("id", "bigint"), ("name", "string"))


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with same_everywhere(monkeypatch, tmp_path):
        yield


def ran(*arguments: str, terminal: bool = False) -> str:
    """What the command prints, and its exit status, without what differs each time."""
    return quiet(raw(*arguments, terminal=terminal))


def raw(*arguments: str, terminal: bool = False) -> str:
    return printed(main, *arguments, terminal=terminal)


def quiet(text: str) -> str:
    for pattern, word in NOISE:
        text = pattern.sub(word, text)
    return text.replace(str(Path.cwd()), "/tmp")


def printed(command: click.Command, *arguments: str, terminal: bool = False) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "is_terminal", lambda: terminal)
        done = CliRunner().invoke(command, arguments, prog_name="exactum")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    said = f"(standard error)\n{done.stderr}" if done.stderr else ""
    return f"{done.stdout}{said}(status {done.exit_code})\n"


def check(name: str, *arguments: str, again: bool = True) -> None:
    """``again``: it may be typed more than once."""
    if again:
        check_text(name, {**both(*arguments), "json": ran(*arguments, "--json")})
    else:
        check_text(name, {"pipe": ran(*arguments)})


def both(*arguments: str) -> dict[str, str]:
    return {"pipe": ran(*arguments), "terminal": ran(*arguments, terminal=True)}


def check_text(name: str, sections: dict[str, str]) -> None:
    text = "".join(f"---- {kind}\n{part}" for kind, part in sections.items())
    path = OUTPUT / f"{name}.txt"
    if os.environ.get("EXACTUM_OUTPUT"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


# ---- status ----------------------------------------------------------------------------------


def test_status(tmp_path: Path) -> None:
    """Works, is down with a failure, is in doubt, is unknown."""
    works = Checkpoint(tmp_path / "works").spark(5, 4, age_s=3)
    story = ago(400).starts()
    for number in range(5):
        story.after(78).epoch(number).lag(1_200, 2.5, topic="orders")
    works.tells(story)
    down = Checkpoint(tmp_path / "down", "2f0d9c7a-1111-4222-8333-444455556666").spark(3, 3, 90)
    story = ago(4_000, down.query_id).starts().epoch(3)
    down.tells(story.ends("RowsRefused", "halt", "a row\nis too long"))
    doubt = Checkpoint(tmp_path / "doubt", "3f0d9c7a-1111-4222-8333-444455556667").spark(8, 7, 300)
    doubt.commit(8, 200).tells(ago(900, doubt.query_id).starts().epoch(7).lag(9, 40.0))
    Checkpoint(tmp_path / "unknown", "4f0d9c7a-1111-4222-8333-444455556668").spark(1, 1)
    with works.alive():
        as_json = ran("status", "--checkpoint", "works", "--json")
        check_text("status", {**both("status"), "json": as_json})


# ---- transactions, verify, savepoint ---------------------------------------------------------


def rows(batch_id: int) -> list[list[pa.RecordBatch]]:
    ids = range(batch_id * 10, batch_id * 10 + 3)
    return [
        [pa.record_batch({"id": pa.array(ids, pa.int64()), "name": [f"n{n}" for n in ids]})]
    ] * 2


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordedQuery:
    def sink() -> FileSink:
        return FileSink(str(tmp_path / "files"), format="json")

    made = RecordedQuery(tmp_path / "checkpoint", {"files": (sink, ID_AND_NAME, rows)})
    monkeypatch.setenv("EXACTUM_SINKS", of_checkpoint(made.folder) or "")
    return made


AT = ("--checkpoint", "checkpoint")


def test_transactions_that_are_decided(query: RecordedQuery, tmp_path: Path) -> None:
    query.run([0, 1], dies_after_decision=True)
    _made_long_ago(tmp_path)
    check("transactions-decided", "transactions", "list", *AT)
    check("transactions-finish", "transactions", "finish", *AT, again=False)


def test_transactions_that_are_not_decided(query: RecordedQuery, tmp_path: Path) -> None:
    query.run([0, 1], dies_before_decision=True)
    _made_long_ago(tmp_path)
    check("transactions-abort", "transactions", "abort", *AT, again=False)


def test_a_query_without_its_sinks(query: RecordedQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    query.run([0, 1], dies_after_decision=True)
    monkeypatch.delenv("EXACTUM_SINKS")
    check("sinks-not-given-list", "transactions", "list", *AT)


def _made_long_ago(folder: Path) -> None:
    """What the tasks left, by the clock of these tests."""
    for path in (folder / "files").rglob("*"):
        os.utime(path, (NOW_MS / 1_000 - 200, NOW_MS / 1_000 - 200))


def test_rows_that_are_missing(query: RecordedQuery, tmp_path: Path) -> None:
    query.run([0, 1])
    for path in sorted((tmp_path / "files").rglob("*.json*"))[:1]:
        if path.is_file():
            path.unlink()
    check("verify-missing", "verify", *AT)


def test_sinks_that_are_gone(query: RecordedQuery, tmp_path: Path) -> None:
    query.run([0, 1], dies_after_decision=True)
    (tmp_path / "files").rename(tmp_path / "away")
    (tmp_path / "files").write_text("no folder")
    check("transactions-trouble", "transactions", "list", *AT)


def test_a_savepoint(query: RecordedQuery, tmp_path: Path) -> None:
    query.run([0, 1])
    create(str(query.folder), tmp_path / "saved", stop_query=False, timeout_s=5.0)
    texts = both("savepoint", "inspect", "saved")
    # When it was made, and the size, which has the paths of the test's folder in it.
    for kind, text in texts.items():
        texts[kind] = re.sub(
            r"\d\.\d KiB", "2.5 KiB", re.sub(r"\d{4}-\d\d-\d\dT[^ ]*", "THEN", text)
        )
    check_text("savepoint", texts)


def test_what_the_doctor_finds() -> None:
    long = "This sentence is long enough for more than one line of a terminal, which folds it. "
    found = [
        ok("machine", "Python is there."),
        ok("machine", "Java is there."),
        warning("topic orders", "It has 1 partition.", "One task reads it.", "Add partitions."),
        error("kafka", long * 3, "Why\nit matters.", "Mend it."),
        Problem(Level.ERROR, "sink out", "It is refused."),
        unknown("checkpoint", "No answer within 60 s.", "It hangs.", "See why."),
    ]
    shown = click.Command("doctor", callback=lambda: render.show_problems(found))
    texts = {
        kind: quiet(printed(shown, terminal=kind == "terminal")) for kind in ("pipe", "terminal")
    }
    check_text("doctor", texts)


# ---- dead letters ----------------------------------------------------------------------------


def test_dead_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sink() -> FileSink:
        return FileSink(str(tmp_path / "dead"), format="json")

    columns = tuple(sink().dead_letter_columns)
    refused = pa.record_batch(
        {
            "key": ["k0", "k1", "k2"],
            "value": ["one", "two", "three"],
            "topic": ["in"] * 3,
            "partition": pa.array([0, 0, 1], pa.int32()),
            "offset": pa.array([4, 5, 6], pa.int64()),
        }
    )
    reasons = ("row 1 of 'k0' is too long", "row 2 of 'k1' is too long", "no number")
    letters = dead_letters(Rejection(refused, reasons), "table", [name for name, _ in columns])
    query = RecordedQuery(
        tmp_path / "checkpoint", {"dead letters": (sink, columns, lambda batch_id: [[letters]])}
    )
    query.run([0])
    monkeypatch.setenv("EXACTUM_SINKS", of_checkpoint(query.folder) or "")
    check("dead-letters", "dead-letters", "list", *AT)
    check("dead-letters-each", "dead-letters", "list", *AT, "--each")
    identity = raw("dead-letters", "list", *AT, "--each").partition("\t")[0]
    check("dead-letters-show", "dead-letters", "show", *AT, identity)
