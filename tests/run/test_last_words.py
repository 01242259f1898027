"""What stands last on the terminal of a script whose query failed: what is wrong, and what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("last_words_job.py")
TIMEOUT_S = 240
JVM_LOG = re.compile(r"\d\d/\d\d/\d\d |\s+at |\s*\.\.\. \d+ more|Caused by: |(java|org)\.")


@pytest.mark.parametrize(
    ("what", "last"),
    [
        ("column", "exactum.errors.FrameRefused: FileSink("),
        ("forgotten", "exactum.errors.SettingRefused: Spark called exactum.exactly_once itself"),
        ("handled", "KeyError: 'something else'"),
    ],
)
def test_the_last_line(tmp_path: Path, what: str, last: str) -> None:
    """It is exactum's message where that ends the script, below Spark's traces and plans, and nothing else's."""
    ended = subprocess.run(
        [sys.executable, str(JOB), str(tmp_path), what], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 1
    # The JVM, which is another process, may log its own end behind it.
    lines = [line for line in ended.stderr.splitlines() if line.strip() and not JVM_LOG.match(line)]
    assert lines[-1].startswith(last), "\n".join(lines[-5:])
