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
from exactum.protocol.model import Decision, DecisionRecord
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
    elif isinstance(ending, CheckpointRefused) and world.setup.plans_differ:
        yield from _between(world, "refused", max(world.checkpoint.commits, default=-1))
    else:
        yield from _not_exact(world)
    for target in world.targets:
        yield from target.violations
    yield from _records(world)
    if world.setup.plans_differ:
        yield from _decided_rows(world)
    for process in processes.values():
        yield from _ending(world, process, processes)


def _rows(world: World, last: int) -> Counter[Row]:
    """Of the batches up to ``last``; where plans differ, of the source up to the end on record."""
    if world.setup.plans_differ:
        commit = _commits(world).get(last)
        end = int(commit.offsets.end[0] or 0) if commit else 0
        return Counter(f"offset {at}" for at in range(end))
    tasks = range(world.setup.tasks)
    return Counter(MemoryWrite.row(batch, task) for batch in range(last + 1) for task in tasks)


def _commits(world: World) -> dict[int, DecisionRecord]:
    """The COMMIT of each batch, the last one where a salvage has made another."""
    made = world.history.made
    return {r.epoch.batch_id: r for r in made if r.decision is Decision.COMMIT}


def _decided_rows(world: World) -> Iterator[str]:
    """What a COMMIT names is, once, what lies between the ends of the batch before and its own."""
    for batch_id, record in _commits(world).items():
        expected = _rows(world, batch_id) - _rows(world, batch_id - 1)
        for target in world.targets:
            own = [target.transactions[p.identity] for p in record.of(target.name)]
            rows = Counter(row for transaction in own for row in transaction.rows)
            less, more = dict(expected - rows), dict(rows - expected)
            if less or more:
                yield f"{target.name}: batch {batch_id} is decided without {less}, with {more}"


def _not_exact(world: World) -> Iterator[str]:
    expected = _rows(world, world.setup.batches)
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
    lost = max(_commits(world), default=-1)
    yield from _between(world, f"batch {lost} is reported", lost - 1)
    whole = _rows(world, lost)
    if not world.timeouts or all(Counter(target.visible) == whole for target in world.targets):
        yield f"batch {lost} is reported as undone, and nothing of it is missing"


def _between(world: World, said: str, done: int) -> Iterator[str]:
    """All up to batch ``done`` is visible once, and nothing beyond what is decided."""
    before, whole = _rows(world, done), _rows(world, max(_commits(world), default=-1))
    for target in world.targets:
        seen = Counter(target.visible)
        less, more = dict(before - seen), dict(seen - whole)
        if less or more:
            yield f"{target.name}: {said}, missing {less}, double {more}"


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
    # The last start has a reason where a file of Spark's does not say what its batch has read.
    files, on_record = world.checkpoint.offsets, _commits(world)
    replaced = world.checkpoint.replaced > 0 and (
        rivals or any(on_record[b].offsets.end != (str(files[b]),) for b in files if b in on_record)
    )
    reasons = {
        Fenced: rivals,
        SparkStopped: rivals,
        # An operator leaves a decided epoch that has expired to the next start.
        CheckpointRefused: (rivals and process.began_batch < world.storage.floor)
        or (process.letter in OPERATORS and world.timeouts > 0)
        or world.put_back > 0
        or replaced,
        # A successor's sweep must end in Fenced, unless the look at the log that tells it was
        # struck.
        EpochAborted: world.timeouts > 0 or process.struck or world.put_back > 0 or replaced,
        Unavailable: process.struck,
        OutcomeUnknown: process.struck,
        HeuristicOutcome: (world.setup.forgets and world.timeouts > 0) or world.put_back > 0,
    }
    if not reasons.get(type(end), False):
        yield f"{process.letter} must not end with {type(end).__name__}: {end}"
