"""The command: what it prints, with which status it ends, and that it lets go of everything."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactum.checkpoint.query_record import KnownSink
from exactum.errors import SettingRefused, Unavailable
from exactum.ops.doctor import machine
from exactum.ops.doctor.command import examine
from exactum.problem import Level, Problem, clock, ok
from tests.kit.doctor.diagnosis import diagnosed, tree
from tests.kit.environment import python_path
from tests.kit.query_record import note
from tests.kit.waiting import WAIT_MAX_S, await_true


def test_this_machine_is_looked_at_without_any_option() -> None:
    """This one runs the tests, so nothing is wrong with it."""
    found = diagnosed()
    assert found.all_is_well(), found.output
    assert found.has("ok", "machine", f"Python {sys.version.split()[0]}")
    assert found.has("ok", "machine", "Java")
    assert found.has("ok", "machine", "with PySpark")


# ---- one area after the other ------------------------------------------------------------------


def test_what_a_check_raises_is_a_finding_and_the_others_go_on() -> None:
    def of_ours() -> Iterator[Problem]:
        yield ok("ours", "before")
        raise SettingRefused("It is refused.")

    def away() -> list[Problem]:
        raise Unavailable("Nobody answers.")

    def broken() -> list[Problem]:
        raise ValueError("what nobody thought of")

    areas = [
        ("ours", of_ours),
        ("away", away),
        ("broken", broken),
        ("last", lambda: [ok("last", "x")]),
    ]
    found = [(f.where, f.level, f.what) for f in examine(areas)]
    assert found == [
        ("ours", Level.OK, "before"),
        ("ours", Level.ERROR, "[USER_CODE] It is refused."),
        ("away", Level.ERROR, "Nobody answers."),
        ("broken", Level.UNKNOWN, "The check ended with ValueError: what nobody thought of"),
        ("last", Level.OK, "x"),
    ]


@pytest.mark.slow
def test_a_killed_doctor_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM while it has folders of its own."""
    place = tmp_path / "place"
    place.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, str(place / "a" / "cp")],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    await_true(lambda: bool([*place.glob(".exactum-doctor-*/made")]), "it has made folders")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=WAIT_MAX_S)
    assert process.returncode not in (0, None)
    assert tree(place) == set()


SLOWLY = """
import sys, time
from exactum.ops import cli
from exactum.storage import proof

def slow(where, work):
    (work / "made").touch()
    for _ in range(40):
        time.sleep(0.5)
        yield proof.ok(where, "slow")

proof.mount_problems = slow
cli.main(["doctor", "--checkpoint", *sys.argv[1:]])
"""
"""The command, with checks of a checkpoint that take their time."""


# ---- this machine ------------------------------------------------------------------------------


def test_a_package_of_a_wrong_version_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = machine._version
    monkeypatch.setattr(
        machine, "_version", lambda name: "3.5.6" if name == "pyspark" else real(name)
    )
    assert diagnosed().has("error", "machine", "pyspark 3.5.6 (needs")


def test_java_that_is_old_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that says so."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert diagnosed().has("error", "machine", "Java 8.0_402", "too old")
    java.write_text("#!/bin/sh\nexit 1\n")
    assert diagnosed().has("error", "machine", "No Java that works")


def test_a_cache_without_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXACTUM_CACHE", str(tmp_path / "cache"))
    found = diagnosed()
    assert found.has("warning", "machine", "not in exactum's cache")
    assert not (tmp_path / "cache").exists()


def test_clocks_that_differ() -> None:
    far = clock("a", "the server", -90.0, 0.1)
    assert (far.level, far.what) == (
        Level.WARNING,
        "The clock of the server is 90 s behind this machine's.",
    )
    near = clock("a", "the server", 2.5, 1.0)
    assert near.level is Level.OK


def test_sinks_that_cannot_be_imported_end_it_before_anything_is_looked_at() -> None:
    found = diagnosed("--sinks", "no_such_module:SINKS")
    assert found.status == 2
    assert "no_such_module" in found.output


def test_a_sink_of_ones_own_is_not_tried(tmp_path: Path) -> None:
    """Who crashes it at every call is named."""
    sink = (
        "type('Bank', (exactum.TwoPhaseCommitSink,), {name: lambda *of: None for name in "
        "('begin_transaction', 'invoke', 'pre_commit', 'commit', 'abort')})()"
    )
    found = diagnosed(sinks=sink, folder=tmp_path)
    assert found.all_is_well(), found.output
    assert found.has("ok", "Bank", "was not tried")


def test_a_query_that_ran_before_is_told_and_its_sinks_are_asked_for(tmp_path: Path) -> None:
    """Their names are on file."""
    checkpoint = tmp_path / "cp"
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "commits" / "7").touch()
    (checkpoint / "metadata").write_text(json.dumps({"id": "q-1"}))
    present = tuple(KnownSink(name, {}) for name in ("files:out", "Bank"))
    note(checkpoint, "q-1", sinks=(*present, KnownSink("old", {}, present=False)))
    before = tree(tmp_path)
    found = diagnosed("--checkpoint", str(checkpoint))
    assert found.has("ok", "checkpoint", "query q-1", "done up to 7")
    assert found.has("unknown", "sinks: Not looked at: 'Bank', 'files:out'.")
    assert found.status == 2
    assert tree(tmp_path) == before
    sink = f"exactum.FileSink({str(tmp_path / 'out')!r}, format='json')"
    found = diagnosed("--checkpoint", str(checkpoint), sinks=sink, folder=tmp_path)
    assert found.has("ok", "files:", "can be made") and not found.has("unknown", "sinks")


def test_a_decision_log_that_the_query_keeps_elsewhere(tmp_path: Path) -> None:
    """The empty one in the checkpoint would say of everything that it is undecided."""
    checkpoint = tmp_path / "cp"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": "q-1"}))
    note(checkpoint, "q-1", decision_log="postgresql://db/x", log_id="a")
    found = diagnosed("--checkpoint", str(checkpoint))
    assert found.has("error", "checkpoint", "has its decisions in the log a (postgresql://db/x)")
