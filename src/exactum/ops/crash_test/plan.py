"""When a job under test is killed. Pure: a seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

SIGHTINGS_MAX = 3
WAIT_MAX_S = 1.5


class CrashMoment(Enum):
    """What a kill waits for.

    Few kills at a random time meet the moments at which output and position disagree. So most wait
    until the one or the other has just moved.
    """

    OUTPUT = "right after the output topic grew"
    BATCH = "in the middle of a micro-batch"
    DONE = "right after a micro-batch was done"
    RANDOM = "at a random time"


@dataclass(frozen=True)
class PlannedCrash:
    """One kill.

    Attributes:
        moment: what it waits for.
        sighting: at which sight of it in this life it strikes; from 1.
        part: the part of a micro-batch that is over when it strikes in the middle.
        wait_s: from the first sign of work to a kill at a random time.
    """

    moment: CrashMoment
    sighting: int
    part: float
    wait_s: float


def plan_crashes(kills: int, seed: int, moments: Sequence[CrashMoment]) -> list[PlannedCrash]:
    """``kills`` kills, at all ``moments`` in turn, each turn in an order of its own."""
    dice = random.Random(seed)
    turns: list[CrashMoment] = []
    while len(turns) < kills:
        turns += dice.sample(list(moments), len(moments))
    return [
        PlannedCrash(
            moment, dice.randint(1, SIGHTINGS_MAX), dice.random(), dice.uniform(0, WAIT_MAX_S)
        )
        for moment in turns[:kills]
    ]
