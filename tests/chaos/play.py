"""The fault matrix: ``make chaos``. What has passed on the same sources is not played again
(``--resume``); ``-k`` chooses cells by their names.
"""

from __future__ import annotations

import os
import random

import pytest

from chaos.matrix import cells
from chaos.stage import Stage, play, setting_of

SEED = int(os.environ.get("EXACTUM_CHAOS_SEED", "7"))
CELLS = [cell for cell in cells() if not cell.impossible]
# Shuffled, always alike, so that a run that is cut short has played a fair sample.
random.Random(SEED).shuffle(CELLS)
CELLS.sort(key=lambda cell: setting_of(cell).value)


@pytest.mark.parametrize("name", [cell.name for cell in CELLS])
def test_exact_whatever_happens(stage: Stage, name: str) -> None:
    play(stage, name, SEED)
