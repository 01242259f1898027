"""Cells of the fault matrix that no other test has; ``python -m chaos`` plays the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos.matrix import Cell
from chaos.scene import played
from chaos.stage import Stage

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb]

SEED = 20261121
CELLS = [
    "kafka:preparing:cut",
    "kafka:committing:reply-lost",
    "kafka:prepared:expired",
    "postgres:committing:reply-lost",
    "postgres:prepared:pause",
    "postgres-prepared:flushed:reset",
    "postgres-log:verified:reply-lost",
    "mariadb:prepared:half-open",
    "mariadb-prepared:committing:reply-lost",
    "files:verified:disk-full",
    "all:between:cut",
    "kafka:mirrored:kill-driver",
    "kafka:decided:missing",
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage() as made:
        yield made


@pytest.mark.parametrize("name", CELLS)
def test_exact_whatever_happens(stage: Stage, name: str) -> None:
    """The query is held at the point, the fault happens, and in the end every target has every posting once."""
    outcome = played(stage, Cell.of(name), SEED)
    print(outcome)
    assert outcome.verdict == "green", f"{outcome.note}\nagain: python -m chaos --cell {name} --seed {SEED}"
