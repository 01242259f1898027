"""Plants each fault in turn and runs the tests that can see it: ``make mutants``. What has passed on the
same sources is not played again (``--resume``); ``-k`` chooses faults by their names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.environment import ROOT
from tests.planted.fault import Fault
from tests.planted.faults import FAULTS

TIMEOUT_S = 1_500
"""Of one file or folder: a test that hangs has found the fault."""
COMMAND = (
    *(sys.executable, "-m", "pytest", "-q", "-x", "-m", "not deep", "--tb=line"),
    *("-p", "no:cacheprovider", "--timeout", "300"),
    *("-n", "2", "--dist", "loadfile", "--max-worker-restart", "0"),
)


@pytest.mark.timeout(4 * TIMEOUT_S)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """By one file or folder after the other, as the fault names them: what is cheap most often
    finds it.
    """
    copy = tmp_path / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    path = copy / "exactum" / fault.file
    path.write_text(fault.plant(path.read_text()))
    assert any(is_found(copy, tests) for tests in fault.tests), fault.row


def is_found(copy: Path, tests: str) -> bool:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy}:{ROOT}",
        "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1",
        "EXACTUM_SWEEP_EVERY": "5",
    }
    command = [*COMMAND, *tests.split()]
    try:
        ended = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    failed = [line for line in ended.stdout.splitlines() if line.startswith("FAILED")]
    print(f"{tests}: {failed[:1] or ended.stdout[-500:]}")
    # A server or a session that does not start has found nothing, and says so. (xdist ends with 2
    # where -x stopped it.)
    assert ended.returncode == 0 or failed, ended.stdout[-3000:] + ended.stderr[-1000:]
    return bool(failed)
