"""Code that a test runs in a Python of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit.environment import environment
from tests.kit.waiting import WAIT_MAX_S


def python(
    code: str, *arguments: Any, status: int = 0, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """What it said, once it has ended with this status."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(**env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    assert done.returncode == status, done.stderr[-4000:]
    return done
