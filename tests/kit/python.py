"""Programs that a test runs in a process of their own, to their end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.kit.environment import environment
from tests.kit.waiting import WAIT_MAX_S


def ran(
    command: Iterable[Any], *, status: int | None = 0, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """What it said, once it has ended with this status; None: with any."""
    done = subprocess.run(
        [*map(str, command)],
        env=environment(**env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=WAIT_MAX_S,
        check=False,
    )
    assert status in (None, done.returncode), done.stdout[-4000:] + done.stderr[-4000:]
    return done


def python(code: str, *arguments: Any, **how: Any) -> subprocess.CompletedProcess[str]:
    """Of code; ``how``: as ``ran`` takes it."""
    return ran([sys.executable, "-c", code, *arguments], **how)
