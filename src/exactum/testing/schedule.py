"""A schedule: which incarnation runs for how many port calls, as a compact text that can be replayed.

    b2p1t2r1k: a12 b* x a!

Before the colon the ``Setup``; after it the steps, one after another:

    a12   incarnation a makes 12 port calls and stops before the next one (it starts with its first step)
    b*    incarnation b runs until it ends
    a!    incarnation a dies where it stands
    x     every transaction that is not settled expires now
    t     a late task of the incarnation that ran last opens a transaction that nobody will prepare
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

LETTERS = "abcdefghijklmnopqrsuvwy"
"""Names of incarnations. ``t`` and ``x`` are steps, ``z`` is the last restart."""

_STEP = re.compile(rf"[{LETTERS}](\d+|\*|!)|x|t")
_SETUP = re.compile(r"b(\d+)p(\d+)t(\d+)r(\d+)(k?)")


@dataclass(frozen=True)
class Setup:
    """The world of a run: numbers of batches, of participants, of tasks and of tasks that are retried."""

    batches: int = 2
    participants: int = 1
    tasks: int = 1
    retried: int = 0
    prunes: bool = True  # after each batch, all before it

    def __str__(self) -> str:
        prunes = "k" if self.prunes else ""
        return f"b{self.batches}p{self.participants}t{self.tasks}r{self.retried}{prunes}"


@dataclass(frozen=True)
class Schedule:
    """A setup and its steps; ``str()`` and ``parse`` are inverse."""

    setup: Setup
    steps: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.setup}: {' '.join(self.steps)}"

    @staticmethod
    def parse(text: str) -> Schedule:
        """Raises ValueError for a text that ``str(schedule)`` cannot have made."""
        head, _, tail = text.partition(":")
        found = _SETUP.fullmatch(head.strip())
        steps = tuple(tail.split())
        if not found or not all(_STEP.fullmatch(s) for s in steps):
            raise ValueError(f"Not a schedule: {text!r}")
        numbers = [int(found[i]) for i in range(1, 5)]
        return Schedule(Setup(numbers[0], numbers[1], numbers[2], numbers[3], found[5] == "k"), steps)


def draw(rng: random.Random, setup: Setup, *, incarnations: int, steps_max: int) -> Schedule:
    """A random schedule of up to ``steps_max`` steps."""
    letters = LETTERS[:incarnations]
    steps: list[str] = []
    for _ in range(rng.randint(2, steps_max)):
        letter, dice = rng.choice(letters), rng.random()
        if dice < 0.06:
            steps.append(f"{letter}!")
        elif dice < 0.14:
            steps.append("x")
        elif dice < 0.20:
            steps.append("t")
        elif dice < 0.26:
            steps.append(f"{letter}*")
        else:
            steps.append(f"{letter}{rng.choice((1, 1, 2, 3, rng.randint(1, 30)))}")
    return Schedule(setup, tuple(steps))
