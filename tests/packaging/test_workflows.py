"""What runs outside of this repository is well-formed, and calls what is in it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.kit.environment import ROOT
from tests.kit.python import ran
from tests.smoke.matrix import PAGE, ROWS, Outcome, kept, page, table

WORKFLOWS = {path.name: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml")}


def test_each_workflow_is_sound() -> None:
    """By zizmor, without asking anybody: well-formed, no credentials left behind, no text of others
    in a shell. (CI has actionlint as well.)
    """
    program = Path(sys.executable).with_name("zizmor")
    ran([program, "--offline", "--no-progress", ROOT / ".github" / "workflows"])


def test_ci_runs_the_one_script() -> None:
    assert "bash .ci/run" in WORKFLOWS["ci.yml"]


def test_every_target_and_file_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = "\n".join(WORKFLOWS.values())
    targets = re.findall(r"run: make ([\w-]+)", text)
    assert targets
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []
    named = re.findall(r"(?:tests|requirements|docs)/[\w./-]*\w", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_a_release_needs_no_password_and_one_job_alone_may_publish() -> None:
    release = WORKFLOWS["release.yml"]
    assert "secrets." not in release
    build, publish = release.split("  publish:\n")
    assert "id-token: write" not in build
    assert "id-token: write" in publish
    assert "run:" not in publish  # nothing but the upload sees the token
    assert "environment: release" in publish
    assert "pypa/gh-action-pypi-publish@" in publish
    assert "twine check --strict" in build


def test_every_workflow_says_what_it_may_do_and_how_long() -> None:
    for name, text in WORKFLOWS.items():
        assert re.search(r"^permissions:\n  contents: read\n", text, re.MULTILINE), name
        assert text.count("runs-on:") == text.count("timeout-minutes:"), name


def test_the_table_of_versions_is_what_was_run() -> None:
    """And a failure is told in it; every row was run, or says why not."""
    outcomes = kept()
    assert list(outcomes) == [row.name for row in ROWS]
    assert page(PAGE.read_text(), outcomes) == PAGE.read_text(), "make matrix writes it"
    bad = Outcome(ROWS[0].name, "2026-01-01", "3.10", "4.0.1", "4.3", failure="a row is lost")
    assert "FAILED: a row is lost" in list(table({ROWS[0].name: bad}))[-1]
