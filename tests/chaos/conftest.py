"""The fault matrix and the soak are a folder at the root, imported by name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import chaos  # noqa: F401  (which makes the modules of tests/crash and tests/targets known)
