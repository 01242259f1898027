"""What stands last on the terminal of a script whose query failed: what is wrong, and what to
do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.run import final_error_job
from tests.kit.waiting import WAIT_MAX_S

pytestmark = pytest.mark.spark

JOB = Path(final_error_job.__file__)
TIMEOUT_S = WAIT_MAX_S


@pytest.mark.deep
@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("column", "exactum.errors.FrameRefused: [FILES_"),
        ("folder", "exactum.errors.SettingRefused: [CHECKPOINT_UNMADE]"),
        ("file", "exactum.errors.SettingRefused: [CHECKPOINT_UNMADE]"),
        ("handled", "KeyError: 'something else'"),
    ],
)
def test_the_last_line(tmp_path: Path, what: str, last: str) -> None:
    """It is exactum's message where that ends the script, below Spark's traces and plans, and
    nothing else's.
    """
    ended = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path), what],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 1
    lines = ended.stderr.splitlines()
    places = [place for place, line in enumerate(lines) if line.startswith(last)]
    assert places, "\n".join(lines[-20:])
    # The JVM, which is another process, may log its own end behind it: nothing else stands there.
    behind = "\n".join(lines[places[-1] + 1 :])
    for ours in ("Traceback", "=== Streaming Query ===", "exactum.errors"):
        assert ours not in behind
