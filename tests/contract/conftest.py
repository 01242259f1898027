"""The target that a test is played over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.targets import TARGETS, Target


@pytest.fixture
def target(request: pytest.FixtureRequest, memory: Path) -> Iterator[Target]:
    folder = memory / "place"
    folder.mkdir()
    with TARGETS[request.param].made(request, folder) as made:
        yield made
