"""A schedule: which process runs for how many port calls, as a compact text that can be replayed.

    b2p1t2r1k: a12 b* x a! c~ A3

Before the colon the ``Setup``; after it the steps, one after another:

    a12   incarnation a makes 12 port calls and stops before the next one (it starts with its first
          step)
    b*    incarnation b runs until it ends
    a!    incarnation a dies where it stands
    a-    incarnation a's next call is not carried out: Unavailable
    a~    incarnation a's next call is carried out and its reply is lost: OutcomeUnknown
    a+    incarnation a's next call is carried out twice, as by a client that sends again
    A3    a finisher (no driver: it commits what is decided, see ``protocol.finish``); it takes all
          of the above
    D3    an operator who aborts what nobody decided (see ``protocol.takeover``); all of the above
    x     every transaction that is not settled expires now
    t     a late task of the process that ran last opens a transaction that nobody will prepare
    l     the first target loses its last commit: what was committed is prepared once more
    G     the first target is put back to before its last batch, and nothing of that waits there
    H     whoever runs dies, and the decision log is put back to before its newest COMMIT
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, fields

LETTERS = "abcdefghijkmnopqrsuvwy"
"""Names of incarnations. ``l``, ``t`` and ``x`` are steps, ``z`` is the last restart."""
FINISHERS = "ABC"
"""Names of finishers."""
OPERATORS = "DEF"
"""Names of operators who abort."""
PUT_BACK = "lGH"
"""Steps that put a target or the log back to an older moment."""
FAULTS = "-~+"
"""Steps that strike one call."""

OTHERS_SHARES = (0.0, 0.04, 0.04, 0.25)
"""Of the steps of a random schedule, those of finishers and operators: each as likely."""

_STEP = re.compile(rf"[{LETTERS}{FINISHERS}{OPERATORS}](\d+|[*!~+-])|x|t|[{PUT_BACK}]")
_SETUP = re.compile(r"b(\d+)p(\d+)t(\d+)r(\d+)(k?)(o?)(g?)(s?)(d?)")


@dataclass(frozen=True)
class Setup:
    """The world of a run: numbers of batches, of participants, of tasks and of tasks that are
    retried.
    """

    batches: int = 2
    participants: int = 1
    tasks: int = 1
    retried: int = 0
    prunes: bool = True  # after each batch, all before it
    sweeps_own: bool = (
        False  # after each batch, as between the epochs of a quiet stream, and after a failed one
    )
    forgets: bool = (
        False  # the rows of aborted transactions are gone: what is decided and expired is lost
    )
    slots: bool = (
        False  # the decision log is the one of named slots, interleaved at each call of its storage
    )
    plans_differ: bool = (
        False  # each driver plans another end for a batch; its file may replace another driver's
    )

    def __str__(self) -> str:
        numbers = f"b{self.batches}p{self.participants}t{self.tasks}r{self.retried}"
        flags = (self.prunes, self.sweeps_own, self.forgets, self.slots, self.plans_differ)
        return numbers + "".join(letter for letter, on in zip("kogsd", flags, strict=True) if on)


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
        values = [int(text) if text.isdigit() else bool(text) for text in found.groups()]
        names = [field.name for field in fields(Setup)]
        setup = Setup(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
        return Schedule(setup, steps)


def draw(rng: random.Random, setup: Setup, *, incarnations: int, steps_max: int) -> Schedule:
    """A random schedule of up to ``steps_max`` steps. Some have many of finishers and operators:
    what only they can break takes several steps of theirs.
    """
    letters, others = LETTERS[:incarnations], rng.choice(OTHERS_SHARES)
    steps: list[str] = []
    for _ in range(rng.randint(3, steps_max)):
        letter, dice = rng.choice(letters), rng.random()
        if dice < others:
            letter, dice = rng.choice(FINISHERS[:2] + OPERATORS[:2]), rng.random()
        if dice < 0.06:
            steps.append(f"{letter}!")
        elif dice < 0.15:
            steps.append("x")
        elif dice < 0.19:
            steps.append("t")
        elif dice > 0.97:
            steps.append(rng.choice(PUT_BACK))
        elif dice < 0.23:
            steps.append(f"{letter}*")
        elif dice < 0.31:  # a run before it, for most first calls are Spark's
            steps += (f"{letter}{rng.randint(1, 25)}", f"{letter}{rng.choice(FAULTS)}")
        else:
            some, many = (rng.randint(1, 12), rng.randint(1, 12)), rng.randint(1, 40)
            steps.append(f"{letter}{rng.choice((1, 2, *some, many))}")
    return Schedule(setup, tuple(steps))


def draw_setup(rng: random.Random) -> Setup:
    """A random world, more often a small one."""
    tasks = rng.choice((1, 1, 2))
    return Setup(
        batches=rng.choice((1, 2, 2, 3)),
        participants=rng.choice((1, 1, 2)),
        tasks=tasks,
        retried=rng.randint(0, tasks),
        prunes=rng.random() < 0.6,
        sweeps_own=rng.random() < 0.3,
        forgets=rng.random() < 0.1,
        slots=rng.random() < 0.2,
        plans_differ=rng.random() < 0.2,
    )
