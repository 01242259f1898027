"""The tables that tests write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.lake.iceberg import Lake
from tests.kit.lake.tables import Delta


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return Delta(tmp_path / "lake")


@pytest.fixture(params=[Delta, Lake], ids=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Delta | Lake]:
    """A table of each format that is not there yet."""
    made: Delta | Lake = request.param(tmp_path / "lake")
    yield made
    made.close()
