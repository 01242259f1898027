"""The helper modules of this folder, and the HTTP target of ``targets``, are imported by name."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "targets"))
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory where there is one: for tests in which no disk fails."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)
