"""Plants each fault in turn and runs the tests that can see it: ``make mutants``. What has passed on the
same sources is not played again (``--resume``); ``-k`` chooses faults by their names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

TIMEOUT_S = 1_500
"""Of one file or folder."""
COMMAND = (
    *(sys.executable, "-m", "pytest", "-q", "-x", "-m", "not deep", "--tb=line"),
    *("-p", "no:cacheprovider", "--timeout", "300"),
    *("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0"),
)
HUNG = "from pytest-timeout"
"""Stands in what pytest says of a test that it ended for its time."""


@pytest.mark.timeout(6 * TIMEOUT_S)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """By one file or folder after the other, as the fault names them: what is cheap most often
    finds it.
    """
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "exactum" / fault.file
    path.write_text(fault.plant(path.read_text()))
    assert any(is_found(fault, copy, tests) for tests in fault.tests), fault.row


@dataclass(frozen=True)
class Ended:
    """How tests ended: the files in which one failed, and whether one did not end by itself."""

    red: tuple[str, ...] = ()
    hung: bool = False


def is_found(fault: Fault, copy: Path, tests: str) -> bool:
    """They fail with the fault, and those of the same files pass without it: a test that is red
    anyway has found nothing, nor has one that hangs, where the fault does not say so.
    """
    named, *options = tests.split()
    ended = played(copy, (named, *options))
    if ended.hung and not fault.hangs:
        print(f"{tests}: does not end with the fault")
        return False
    files = ended.red or ((named,) if ended.hung else ())
    return bool(files) and is_green(files, tuple(options))


@cache
def is_green(files: tuple[str, ...], options: tuple[str, ...]) -> bool:
    """Whether they pass on the unchanged sources; played once. A file is whole: ``played`` gives it
    to one process, so its tests have been behind one another with the fault as well.
    """
    ended = played(ROOT / "src", (*files, *options))
    if ended != Ended():
        print(f"{' '.join(files)}: fails without the fault as well")
    return ended == Ended()


def played(sources: Path, tests: tuple[str, ...]) -> Ended:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{sources}:{ROOT}",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        "EXACTUM_SWEEP_EVERY": "5",
    }
    try:
        ended = subprocess.run(
            [*COMMAND, *tests],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ended(hung=True)
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    print(f"{' '.join(tests)}: {failed[:1] or ended.stdout[-500:]}")
    # A server or a session that does not start has found nothing, and says so. (xdist ends with 2
    # where -x stopped it.)
    assert ended.returncode == 0 or failed, ended.stdout[-3000:] + ended.stderr[-1000:]
    red = {line.split()[1].partition("::")[0] for line in failed}
    return Ended(tuple(sorted(red)), hung=HUNG in ended.stdout)
