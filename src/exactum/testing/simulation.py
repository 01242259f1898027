"""Deterministic simulation: several incarnations of the real coordinator, interleaved at every port call.

Each incarnation is a thread, but only the one that holds the baton runs, so a schedule (see
``schedule``) always gives the same run. A step of the schedule ends *between* two port calls: the one
before has taken effect, the one after has not, so a death there is a crash after one and before the other.

When the schedule is over, whoever still runs dies, a last incarnation ``z`` starts and runs everything to
the end, one batch more than the others. Then the oracle looks; it knows rows, records and who ran, and
shares no code with the coordinator::

    replay("b2p1t1r0k: a12 b* a*")
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    Fenced,
)
from exactum.protocol.coordinator import Coordinator
from exactum.protocol.decision_log import DecisionLog
from exactum.protocol.model import Decision, DecisionRecord, Incarnation, SourceOffsets
from exactum.protocol.participant import Participant
from exactum.protocol.sink import Guarantee, QueryRun, Write
from exactum.testing.faults import Crash, interpose
from exactum.testing.memory import MemoryDecisionLog, MemoryParticipant, MemoryStorage, MemoryTarget, MemoryWrite
from exactum.testing.schedule import LETTERS, Schedule, Setup, draw

QUERY_ID = "simulated"
CALLS_MAX = 2_000
"""Port calls of one incarnation; more means that it runs in circles."""


class SparkStopped(Exception):
    """Spark found that another query had written its batch to the checkpoint."""


class Violation(AssertionError):
    """A promise was broken. The message holds the schedule, to be given to ``replay``."""


MakeLog = Callable[[MemoryStorage], DecisionLog]
MakeCoordinator = Callable[[QueryRun, list[Participant], DecisionLog], Coordinator]


def _memory_log(storage: MemoryStorage) -> DecisionLog:
    return MemoryDecisionLog(storage, QUERY_ID)


def _coordinator(run: QueryRun, participants: list[Participant], log: DecisionLog) -> Coordinator:
    return Coordinator(run, participants, log)


@dataclass(frozen=True)
class System:
    """What is under test. Replace a part by a broken one to see that the oracle can fail."""

    log: MakeLog = _memory_log
    coordinator: MakeCoordinator = _coordinator


@dataclass
class Checkpoint:
    """Spark's offset log and commit log: create-if-absent, and the restart rule."""

    offsets: set[int] = field(default_factory=set)
    commits: set[int] = field(default_factory=set)

    def first_batch(self) -> int:
        latest = max(self.offsets, default=-1)
        return latest + 1 if latest == -1 or latest in self.commits else latest

    @staticmethod
    def add(log: set[int], batch_id: int) -> None:
        if batch_id in log:
            raise SparkStopped(f"batch {batch_id} is there already")
        log.add(batch_id)


class _Driver:
    """One incarnation: Spark's micro-batch loop around a coordinator, in a thread that waits for the baton."""

    def __init__(self, world: _World, letter: str, batches: int) -> None:
        self.letter = letter
        self.calls = 0
        self.ended = False
        self.ending: BaseException | None = None
        self.began_batch = 0
        self._world = world
        self._batches = batches
        self._budget = 0
        self._dying = False
        self._go = threading.Lock()
        self._go.acquire()
        self._back = threading.Lock()
        self._back.acquire()
        self._thread = threading.Thread(target=self._main, daemon=True, name=f"driver {letter}")
        self._thread.start()

    def advance(self, calls: int) -> None:
        """Let it make ``calls`` port calls, or fewer if it ends."""
        if self.ended or calls == 0:
            return
        self._budget = calls
        self._go.release()
        self._back.acquire()

    def kill(self) -> None:
        if not self.ended:
            self._dying = True
            self.advance(1)

    def around(self, label: str, call: Callable[[], object]) -> object:
        """The point between two port calls, where others may run or this one may die."""
        if self._budget == 0 and not self._dying:
            self._back.release()
            self._go.acquire()
        if self._dying:
            raise Crash(label)
        self._budget -= 1
        self.calls += 1
        if self.calls > CALLS_MAX:
            raise RuntimeError(f"{self.letter} made more than {CALLS_MAX} port calls: it runs in circles")
        return call()

    def _main(self) -> None:
        self._go.acquire()
        try:
            self._spark()
        except BaseException as error:  # noqa: BLE001  (the oracle judges how it ended)
            self.ending = error
        self.ended = True
        self._back.release()

    def _spark(self) -> None:
        world, checkpoint = self._world, self._world.checkpoint
        run = QueryRun(QUERY_ID, Incarnation(self.letter), Guarantee.EXACTLY_ONCE)
        ports: list[Participant] = [interpose(MemoryParticipant(target, run), self.around) for target in world.targets]
        log = interpose(world.system.log(world.storage), self.around)
        coordinator = world.system.coordinator(run, ports, log)
        setup = world.setup
        write: Write = MemoryWrite(world.targets, tasks=setup.tasks, retried=setup.retried, around=self.around)
        found = self.around("restart", checkpoint.first_batch)
        if not isinstance(found, int):
            raise TypeError(f"first_batch gave {found!r}")
        self.began_batch = found
        for batch_id in range(found, self._batches):
            if batch_id not in checkpoint.offsets:
                self.around("offsets", partial(checkpoint.add, checkpoint.offsets, batch_id))
            coordinator.run(batch_id, SourceOffsets((), (f"end of {batch_id}",)), write)
            if setup.prunes:
                coordinator.prune(batch_id)
            self.around("commits", partial(checkpoint.add, checkpoint.commits, batch_id))


class _History(dict[tuple[str, int, int], DecisionRecord]):
    """The records of a storage, and in ``made`` every one ever made, in the order of time."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[DecisionRecord] = []

    def setdefault(self, slot: tuple[str, int, int], record: DecisionRecord, /) -> DecisionRecord:
        stands = super().setdefault(slot, record)
        if stands is record:
            self.made.append(record)
        return stands


class _World:
    """Everything that outlives an incarnation, and the incarnations of one run."""

    def __init__(self, setup: Setup, system: System) -> None:
        self.setup = setup
        self.system = system
        self.history = _History()
        self.storage = MemoryStorage(records=self.history)
        self.checkpoint = Checkpoint()
        self.targets = [MemoryTarget(f"target{i}") for i in range(setup.participants)]
        self.drivers: dict[str, _Driver] = {}
        self.reader_saw: list[Counter[str]] = [Counter() for _ in self.targets]
        self.problems: list[str] = []
        self.timeouts = 0

    def driver(self, letter: str, batches: int) -> _Driver:
        if letter not in self.drivers:
            self.drivers[letter] = _Driver(self, letter, batches)
        return self.drivers[letter]

    def look(self) -> None:
        """A reader who looks from time to time, between two steps."""
        for target, before in zip(self.targets, self.reader_saw, strict=True):
            now = Counter(target.visible)
            if before - now:
                self.problems.append(f"{target.name}: {dict(before - now)} was visible and is not any more")
            before.update(now - before)


@dataclass(frozen=True)
class Outcome:
    """How a run went. ``short`` are the indexes of steps whose incarnation ended before its budget did."""

    schedule: Schedule
    endings: dict[str, str]
    calls: dict[str, int]
    short: frozenset[int]
    violations: tuple[str, ...]


def play(schedule: Schedule, system: System | None = None) -> Outcome:
    """Run one schedule to the end, the last restart included, and judge it."""
    world = _World(schedule.setup, system or System())
    short: set[int] = set()
    last = LETTERS[0]
    for index, step in enumerate(schedule.steps):
        if step == "x":
            for target in world.targets:
                world.timeouts += target.expire()
        elif step == "t":
            world.targets[0].begin(Incarnation(last), ["late"])
        else:
            last = step[0]
            driver = world.driver(last, schedule.setup.batches)
            if step[1:] == "!":
                driver.kill()
            else:
                driver.advance(CALLS_MAX + 1 if step[1:] == "*" else int(step[1:]))
                if driver.ended:
                    short.add(index)
        world.look()
    for driver in world.drivers.values():
        driver.kill()
    world.driver("z", schedule.setup.batches + 1).advance(CALLS_MAX + 1)
    world.look()
    return Outcome(
        schedule,
        {letter: _ending(d) for letter, d in world.drivers.items()},
        {letter: d.calls for letter, d in world.drivers.items()},
        frozenset(short),
        tuple(_judge(world)),
    )


def replay(text: str, system: System | None = None) -> Outcome:
    """Run the schedule in ``text`` again.

    Raises:
        Violation: a promise was broken.
    """
    return _checked(play(Schedule.parse(text), system))


def _checked(outcome: Outcome) -> Outcome:
    if outcome.violations:
        found = "\n  ".join(outcome.violations)
        raise Violation(f'replay("{outcome.schedule}")\n  {found}\n  endings: {outcome.endings}')
    return outcome


# ---- oracle --------------------------------------------------------------------------------------


def _ending(driver: _Driver) -> str:
    return f"{type(driver.ending).__name__}: {driver.ending}" if driver.ending else "ran to the end"


def _judge(world: _World) -> Iterator[str]:
    """What is wrong at rest. Shares no code with the protocol."""
    yield from world.problems
    setup = world.setup
    expected = Counter(MemoryWrite.row(b, t) for b in range(setup.batches + 1) for t in range(setup.tasks))
    for target in world.targets:
        seen = Counter(target.visible)
        if seen != expected:
            missing, extra = dict(expected - seen), dict(seen - expected)
            yield f"{target.name}: missing {missing}, too many {extra}"
        if target.unsettled():
            yield f"{target.name}: left open {target.unsettled()}"
        yield from target.violations
    yield from _judge_records(world)
    yield from _judge_endings(world)


def _judge_records(world: _World) -> Iterator[str]:
    """No slot is given twice, and the newest wins: behind somebody's door nobody older decides."""
    keeper = ""
    slots: set[tuple[int, int]] = set()
    for record in world.history.made:
        slot = (record.epoch.batch_id, record.attempt)
        if slot in slots:
            yield f"slot {slot} was given twice, the second time to {record.incarnation}"
        slots.add(slot)
        if record.decision is Decision.ABORT:
            keeper = record.incarnation
        elif record.supersedes is None and record.incarnation != keeper:
            yield f"{record.incarnation} decided {slot} behind the door of {keeper or 'nobody'}"


def _judge_endings(world: _World) -> Iterator[str]:
    for letter, driver in world.drivers.items():
        end = driver.ending
        alone = len(world.drivers) == 1 or letter == "z"
        if end is None or (isinstance(end, (Crash, Fenced, SparkStopped)) and not alone):
            continue
        if isinstance(end, EpochAborted) and world.timeouts:
            continue  # by a successor's sweep it must have been Fenced
        pruned = driver.began_batch < world.storage.floor
        if isinstance(end, CheckpointRefused) and pruned and not alone:
            continue
        yield f"{letter} must not end with {type(end).__name__}: {end}"


# ---- exploring -----------------------------------------------------------------------------------


def explore(setup: Setup, pattern: str, system: System | None = None, stride: int = 1) -> Iterator[Outcome]:
    """Every schedule of a pattern: each ``?`` in it takes the values 0, 1, 2, ... until that
    incarnation ends sooner. ``"a? b? a* b*"`` is every way to interrupt twice, ``"a? a! b*"`` every crash.

    Raises:
        Violation: a promise was broken.
    """
    return map(_checked, outcomes(setup, pattern, system, stride))


def outcomes(setup: Setup, pattern: str, system: System | None = None, stride: int = 1) -> Iterator[Outcome]:
    """As ``explore``, but violations are only noted in the outcome."""
    return _explore(setup, tuple(pattern.split()), (), system, stride)


def _explore(
    setup: Setup, rest: tuple[str, ...], done: tuple[str, ...], system: System | None, stride: int
) -> Iterator[Outcome]:
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


def wander(
    seed: int, runs: int, setups: list[Setup], system: System | None = None, steps_max: int = 12
) -> Iterator[Outcome]:
    """``runs`` random schedules from ``seed``, of two or three incarnations.

    Raises:
        Violation: a promise was broken.
    """
    rng = random.Random(seed)
    for _ in range(runs):
        schedule = draw(rng, rng.choice(setups), incarnations=rng.choice((2, 3)), steps_max=steps_max)
        yield _checked(play(schedule, system))
