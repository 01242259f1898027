"""Deterministic simulation: several incarnations of the real coordinator, interleaved at every port
call.

Each process is a thread, but only the one that holds the baton runs, so a schedule (see
``schedule``) always gives the same run. A step of the schedule ends *between* two calls: the one
before has taken effect, the one after has not, so a death there is a crash after one and before the
other.

When the schedule is over, whoever still runs dies, a last incarnation ``z`` starts and runs
everything to the end, one batch more than the others. Then the oracle looks (``verdict``)::

    replay("b2p1t1r0k: a12 b* a*")
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from exactum.protocol.model import Incarnation
from model.process import CALLS_MAX, Process
from model.schedule import LETTERS, Schedule, Setup, draw, draw_setup
from model.verdict import judge
from model.world import System, World


class Violation(AssertionError):
    """A promise was broken. The message holds the schedule, to be given to ``replay``."""


@dataclass(frozen=True)
class SimulationReport:
    """How a run went. ``short`` are the indexes of steps whose process ended before its budget did.

    ``happened`` counts events, deaths and faults by name; runs with the same ``trace`` made the
    same calls in the same order (within one Python process: it is a ``hash``).
    """

    schedule: Schedule
    endings: dict[str, str]
    calls: dict[str, int]
    short: frozenset[int]
    violations: tuple[str, ...]
    happened: Counter[str] = field(default_factory=Counter)
    trace: int = 0


def play(schedule: Schedule, system: System | None = None) -> SimulationReport:
    """Run one schedule to the end, the last restart included, and judge it."""
    world = World(schedule.setup, system or System())
    processes: dict[str, Process] = {}
    short: set[int] = set()
    last = LETTERS[0]
    for index, step in enumerate(schedule.steps):
        if step == "x":
            world.expire()
        elif step == "l":
            world.lose_commit()
        elif step == "G":
            world.put_target_back()
        elif step == "H":
            for each in processes.values():
                each.kill()
            world.put_log_back()
        elif step == "t":
            world.targets[0].begin(Incarnation(last), ["late"])
            world.happened["late tasks"] += 1
        else:
            last = step[0]
            process = processes.get(last)
            if process is None:
                process = processes[last] = Process(world, last, schedule.setup.batches)
            process.step(step[1:])
            if process.ended:
                short.add(index)
        world.look()
    for process in processes.values():
        process.kill()
    last_one = processes["z"] = Process(world, "z", schedule.setup.batches + 1)
    last_one.run_out()
    world.look()
    world.happened["offsets replaced"] = world.checkpoint.replaced
    for process in processes.values():
        world.happened[
            f"ended: {type(process.ending).__name__ if process.ending else 'ran to the end'}"
        ] += 1
    return SimulationReport(
        schedule,
        {letter: _ending(p) for letter, p in processes.items()},
        {letter: p.calls for letter, p in processes.items()},
        frozenset(short),
        tuple(judge(world, processes)),
        world.happened,
        world.trace,
    )


def replay(text: str, system: System | None = None) -> SimulationReport:
    """Run the schedule in ``text`` again.

    Raises:
        Violation: a promise was broken.
    """
    return checked(play(Schedule.parse(text), system))


def checked(outcome: SimulationReport) -> SimulationReport:
    """``outcome`` itself.

    Raises:
        Violation: a promise was broken.
    """
    if outcome.violations:
        found = "\n  ".join(outcome.violations)
        raise Violation(f'replay("{outcome.schedule}")\n  {found}\n  endings: {outcome.endings}')
    return outcome


def _ending(process: Process) -> str:
    return (
        f"{type(process.ending).__name__}: {process.ending}" if process.ending else "ran to the end"
    )


# ---- exploring -----------------------------------------------------------------------------------


def explore(
    setup: Setup, pattern: str, system: System | None = None, stride: int = 1
) -> Iterator[SimulationReport]:
    """Every schedule of a pattern: each ``?`` in it takes the values 0, 1, 2, ... until that
    incarnation ends sooner. ``"a? b? a* b*"`` is every way to interrupt twice, ``"a? a! b*"`` every
    crash.

    Raises:
        Violation: a promise was broken.
    """
    return map(checked, outcomes(setup, pattern, system, stride))


def outcomes(
    setup: Setup, pattern: str, system: System | None = None, stride: int = 1
) -> Iterator[SimulationReport]:
    """As ``explore``, but violations are only noted in the outcome."""
    return _explore(setup, tuple(pattern.split()), (), system, stride)


def _explore(
    setup: Setup, rest: tuple[str, ...], done: tuple[str, ...], system: System | None, stride: int
) -> Iterator[SimulationReport]:
    holes = [i for i, step in enumerate(rest) if step.endswith("?")]
    if not holes:
        yield play(Schedule(setup, done + rest), system)
        return
    before, hole, after = rest[: holes[0]], rest[holes[0]], rest[holes[0] + 1 :]
    for calls in range(0, CALLS_MAX, stride):
        prefix = (*done, *before, f"{hole[:-1]}{calls}")
        ended = False
        for outcome in _explore(setup, after, prefix, system, stride):
            yield outcome
            ended = len(prefix) - 1 in outcome.short
        if ended:
            return


def schedules(
    seed: int, runs: int, setups: Sequence[Setup] = (), steps_max: int = 12
) -> Iterator[Schedule]:
    """``runs`` random schedules from ``seed``, of one to three incarnations, in one of ``setups``
    or in any world.
    """
    rng = random.Random(seed)
    for _ in range(runs):
        setup = rng.choice(setups) if setups else draw_setup(rng)
        yield draw(rng, setup, incarnations=rng.choice((1, 2, 2, 3)), steps_max=steps_max)
