"""The environment of every process that a test starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
OWN = [str(ROOT), str(ROOT / "examples")]


def python_path() -> str:
    """``tests``, ``chaos`` and the examples, before what the caller's own environment says."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([*OWN, *(path for path in given if path and path not in OWN)])


def environment(**more: str) -> dict[str, str]:
    """As the caller's, with the tests' modules on the path and output that is not held back."""
    return {
        **os.environ,
        "PYTHONPATH": python_path(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONUNBUFFERED": "1",
        **more,
    }
