"""Where targets of a test's own keep their files."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(memory: Path) -> Path:
    return memory
