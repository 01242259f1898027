"""The oracle of a simulation: what is wrong at rest. It knows rows, records and who ran, no code of
the protocol.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from exactum.errors import (
    CheckpointRefused,
    EpochAborted,
    Fenced,
    HeuristicOutcome,
    OutcomeUnknown,
    Unavailable,
)
from exactum.protocol.model import Decision
from exactum.testing.faults import Crash
from exactum.testing.sink_place import SparkStopped
from model.memory import MemoryWrite, Row
from model.process import Process
from model.schedule import OPERATORS
from model.world import World


def judge(world: World, processes: Mapping[str, Process]) -> Iterator[str]:
    """Everything that is wrong after ``z`` has ended."""
    yield from world.problems
    ending = processes["z"].ending
    if world.put_back and isinstance(ending, (CheckpointRefused, HeuristicOutcome)):
        yield from _doubled(world)  # said, and a person decides; what is missing is named
    elif isinstance(ending, HeuristicOutcome):
        yield from _beyond_the_report(world)
    else:
        yield from _not_exact(world)
    for target in world.targets:
        yield from target.violations
    yield from _records(world)
    for process in processes.values():
        yield from _ending(world, process, processes)


def _rows(world: World, batch_id: int) -> Counter[Row]:
    return Counter(MemoryWrite.row(batch_id, task) for task in range(world.setup.tasks))


def _not_exact(world: World) -> Iterator[str]:
    expected = sum((_rows(world, b) for b in range(world.setup.batches + 1)), Counter[Row]())
    for target in world.targets:
        seen = Counter(target.visible)
        if seen != expected:
            yield (
                f"{target.name}: missing {dict(expected - seen)}, too many {dict(seen - expected)}"
            )
        if target.unsettled():
            yield f"{target.name}: left open {target.unsettled()}"


def _doubled(world: World) -> Iterator[str]:
    for target in world.targets:
        if twice := {row: n for row, n in Counter(target.visible).items() if n > 1}:
            yield f"{target.name}: too many {twice}"


def _beyond_the_report(world: World) -> Iterator[str]:
    """The last run said that decided rows are gone: of one decided epoch, and all before it is
    whole.
    """
    lost = max(
        (r.epoch.batch_id for r in world.history.made if r.decision is Decision.COMMIT), default=-1
    )
    before = sum((_rows(world, b) for b in range(lost)), Counter[Row]())
    whole = before + _rows(world, lost)
    for target in world.targets:
        seen = Counter(target.visible)
        if before - seen or seen - whole:
            yield (
                f"{target.name}: batch {lost} is reported, missing {dict(before - seen)}, double "
                f"{dict(seen - whole)}"
            )
    if not world.timeouts or all(Counter(target.visible) == whole for target in world.targets):
        yield f"batch {lost} is reported as undone, and nothing of it is missing"


def _records(world: World) -> Iterator[str]:
    """No slot is given twice, and the newest wins: behind somebody's fence nobody older decides."""
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
            yield f"{record.incarnation} decided {slot} behind the fence of {keeper or 'nobody'}"


def _ending(world: World, process: Process, processes: Mapping[str, Process]) -> Iterator[str]:
    """Who was killed was killed; every other ending needs its reason."""
    end = process.ending
    if end is None or isinstance(end, Crash):
        return
    others = {letter for letter, p in processes.items() if not p.finisher} - {process.letter, "z"}
    rivals = bool(others) and process.letter != "z"
    reasons = {
        Fenced: rivals,
        SparkStopped: rivals,
        # An operator leaves a decided epoch that has expired to the next start.
        CheckpointRefused: (rivals and process.began_batch < world.storage.floor)
        or (process.letter in OPERATORS and world.timeouts > 0)
        or world.put_back > 0,
        # A successor's sweep must end in Fenced, unless the look at the log that tells it was
        # struck.
        EpochAborted: world.timeouts > 0 or process.struck or world.put_back > 0,
        Unavailable: process.struck,
        OutcomeUnknown: process.struck,
        HeuristicOutcome: (world.setup.forgets and world.timeouts > 0) or world.put_back > 0,
    }
    if not reasons.get(type(end), False):
        yield f"{process.letter} must not end with {type(end).__name__}: {end}"
