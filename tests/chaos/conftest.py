"""What the cells of the fault matrix are played on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.stage import Stage


@pytest.fixture(scope="session")
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()
