"""The folders in which tests of file sinks write."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"
