"""Whether the targets, the decision log and the checkpoint end with the same batch.

A checkpoint, a log or a target that was put back from an older copy looks, alone, like one that was
stopped earlier. Side by side they tell: each start compares them before anything is written, and
each decision of a run before it is made. What does not fit is refused with the numbers, and never
repaired by a guess: a person restores what is older, or accepts what is missing.

A target takes part by its marker (``Participant.remembers``). One that has none may know its own
committed transactions (``Participant.list_committed``).

A start may run beside an incarnation that is still alive: whatever is seen as committed was
recorded before, and the records are read after that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from exactum.errors import CheckpointRefused, InvariantBroken
from exactum.protocol import resolve
from exactum.protocol.decision_log import DecisionLog, PermitLog
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Incarnation,
    PreparedTransaction,
    Sighting,
    run_number,
)
from exactum.protocol.participant import Participant

R = TypeVar("R")

RECENT_BATCHES = 4
"""Completed batches whose records are read. A sink that takes turns with its names, as Kafka's
does, comes back to each within three."""


class Each(Protocol):
    """Calls a function with every participant, and returns what it returned."""

    def __call__(self, function: Callable[[Participant], R], /) -> list[R]: ...


@dataclass(frozen=True)
class Noted:
    """What a checkpoint has on file of its decisions.

    From batch ``first`` on each has its COMMIT in the log, and the targets are compared with these;
    None: not known. ``decided`` is one of them, which Spark may not have logged. Where a person has
    accepted what was missing, all that begins behind the record of attempt ``accepted``. From
    ``undecided_from`` on ``at_least_once`` wrote, which records nothing.
    """

    first: int | None = None
    decided: int | None = None
    accepted: int = -1
    undecided_from: int | None = None

    def last(self, begins: int) -> int | None:
        """The last batch whose COMMIT must be on record, where a query goes on with ``begins``;
        None: none is known.
        """
        if self.first is None:
            return None
        end = begins if self.undecided_from is None else min(begins, self.undecided_from)
        last = max(end - 1, -1 if self.decided is None else self.decided)
        return last if last >= self.first else None

    def covers(self, record: DecisionRecord) -> bool:
        """Whether the comparison goes back to this record."""
        first = -1 if self.first is None else self.first
        return (record.epoch.batch_id, record.attempt) > (first, self.accepted) or (
            record.epoch.batch_id == first and self.accepted < 0
        )


NOTHING_NOTED = Noted()


@dataclass(frozen=True)
class TargetEnd:
    """A sink whose target keeps a marker. ``has``: the last batch in it; None: it has no trace of
    the query. ``owes``: the last one on record with rows for it; None: none is. ``waits``: all that
    it lacks still waits to be committed, so that a start makes it whole.
    """

    name: str
    has: int | None
    owes: int | None = None
    waits: bool = False

    @property
    def has_lost(self) -> bool:
        """Whether it lacks what was committed there, and does not wait."""
        if self.has is None or self.owes is None:
            return False
        return self.has < self.owes and not self.waits


@dataclass(frozen=True)
class Ends:
    """The last batch that each knows, where a query goes on with batch ``begins``.

    ``log``: the last one with a COMMIT; what lies before the comparison counts as one. ``noted``:
    the last one of which the checkpoint knows that it was decided.
    """

    begins: int
    log: int | None
    noted: int | None = None
    targets: tuple[TargetEnd, ...] = ()


def gaps(ends: Ends) -> list[str]:
    """What does not fit together, a line for each; empty where everything does. Pure.

    A target without a trace is taken: it may be new, moved, emptied on purpose, or a fork's.
    """
    log = -1 if ends.log is None else ends.log
    found: list[str] = []
    if ends.noted is not None and ends.noted > log:
        found.append(
            f"the decision log {_ends_with(ends.log)}, and the checkpoint with batch {ends.noted}"
        )
    for target in ends.targets:
        if target.has is None:
            continue
        if target.has > log:
            found.append(
                f"sink {target.name!r} has batch {target.has}, and the decision log "
                f"{_ends_with(ends.log)}"
            )
        elif target.has_lost:
            has = None if target.has < 0 else target.has
            found.append(
                f"sink {target.name!r} {_ends_with(has)}, and the decision log has batch "
                f"{target.owes} as committed there"
            )
    return found


def refuse_gaps(query_id: str, ends: Ends, *, is_running: bool = False) -> None:
    """``is_running``: a start may make the target whole from what waits.

    Raises:
        CheckpointRefused: there are gaps.
    """
    if found := gaps(ends):
        todo = (
            "Start the query again: that loads what still waits for the target, or says what is "
            "lost."
            if is_running
            else "Bring the newer state back. Or accept what that loses or doubles: "
            f"{accept_command(ends.begins)}"
        )
        raise CheckpointRefused(
            "ENDS_DIFFER",
            f"Query {query_id} cannot go on with batch {ends.begins}: {'; '.join(found)}.\n"
            "One of them is older than the rest (restored, failed over, not mounted, moved back), "
            f"or something else wrote batches in between. Nothing was written.\n{todo}",
        )


def accept_command(begins: int) -> str:
    """What a person types to go on with batch ``begins`` all the same."""
    command = f"exactum accept --checkpoint DIR --batch {begins} --sinks FILE.py:NAME"
    return f"'{command}' says it, and asks."


def check_start(
    query_id: str,
    begins: int,
    log: PermitLog,
    each: Each,
    noted: Noted = NOTHING_NOTED,
    *,
    run: int = 0,
) -> tuple[list[DecisionRecord], Ends]:
    """Refuse to begin with batch ``begins`` where the ends do not fit. Returns the records of the
    batches before it (see ``recent``) as well. ``run``: the number of the run that starts.

    Raises:
        CheckpointRefused: they do not fit.
        ExactumError: as ``DecisionLog.read``, ``last_batch`` and ``list_committed``.
    """
    log.read(begins)  # first: a log that was asked for an older one does not see that this is gone
    earlier = recent(log, begins, noted)
    ends = ends_at(begins, log, each, earlier, noted)
    refuse_gaps(query_id, ends)
    if unknown := unknown_commits(begins, log, each, earlier, noted, run=run):
        raise CheckpointRefused(
            "ENDS_DIFFER",
            f"Query {query_id} cannot go on with batch {begins}: sink {unknown[0].participant!r} "
            f"has committed {len(unknown)} transactions that no decision names "
            f"({unknown[0].identity}).\n"
            f"They are of batch {begins}, which would be written twice, or near it: the checkpoint "
            "or its decision log was put back, or lost a record. Nothing was written.\n"
            f"Bring the newer state back. Or accept what that doubles: {accept_command(begins)}",
        )
    return earlier, ends


def ends_at(
    begins: int,
    log: PermitLog,
    each: Each,
    earlier: Sequence[DecisionRecord],
    noted: Noted = NOTHING_NOTED,
) -> Ends:
    """``earlier`` are the records of the last batches before ``begins``.

    Raises:
        ExactumError: as ``DecisionLog.read`` and ``Participant.last_batch``.
    """
    targets = tuple(end for end in each(lambda p: target_end(p, earlier)) if end is not None)
    counted = begins if noted.first is None else min(begins, noted.first)
    last = noted.last(begins)
    on_record = [
        batch
        for batch in {last, *(target.has for target in targets)}
        if batch is not None and (batch < counted or _has_commit(log, batch))
    ]
    end = max(
        [*on_record, *(r.epoch.batch_id for r in resolve.commits_in_force(earlier))], default=None
    )
    if last is not None and (end is None or end < last) and (there := log.last_batch()) is not None:
        end = max(there if there < last else -1, -1 if end is None else end)
    end = None if end is not None and end < 0 else end
    return Ends(begins, end, last, targets)


def target_end(participant: Participant, earlier: Iterable[DecisionRecord]) -> TargetEnd | None:
    """None where the target keeps no marker. ``earlier`` are records of batches that are over.

    Raises:
        ExactumError: as ``Participant.last_batch``.
    """
    if not participant.remembers:
        return None
    commits = resolve.commits_in_force(earlier)
    for record in reversed(commits):
        own = participant.own([p for p in record.of(participant.name) if p.rows])
        if own:
            has, owes = participant.last_batch(own), record.epoch.batch_id
            waits = has is not None and has < owes and _all_wait(participant, has, commits)
            return TargetEnd(participant.name, has, owes, waits)
    return TargetEnd(participant.name, participant.last_batch())


def _all_wait(participant: Participant, has: int, commits: Sequence[DecisionRecord]) -> bool:
    """Whether what its target lacks behind batch ``has`` is open, without a gap. ``commits`` are
    the last ones. What was staged for another place may be there: the target was moved back.
    """
    if not commits or has + 1 < min(record.epoch.batch_id for record in commits):
        return False
    behind = [record for record in commits if record.epoch.batch_id > has]
    lacks = [p for record in behind for p in record.of(participant.name)]
    if not participant.are_for_here(lacks):
        return False
    return {p.identity for p in lacks} <= {s.identity for s in participant.list_open()}


def refuse_lost_commit(
    query_id: str, batch_id: int, each: Each, names: Collection[str], committed: Mapping[str, int]
) -> None:
    """In a run, before batch ``batch_id`` is decided: nothing is written past a gap, nor a second
    time. The sinks ``names`` are asked; ``committed``: the last batch that this run has found or
    committed there. A marker that is gone is a gap as well: what is emptied on purpose is emptied
    between two runs.

    Raises:
        CheckpointRefused: a target has lost what this run committed, or has this batch already.
        ExactumError: as ``Participant.last_batch``.
    """

    def of(participant: Participant) -> TargetEnd | None:
        if participant.name not in names or not participant.remembers:
            return None
        owes, has = committed.get(participant.name), participant.last_batch()
        return TargetEnd(participant.name, -1 if has is None and owes is not None else has, owes)

    targets = tuple(end for end in each(of) if end is not None)
    refuse_gaps(query_id, Ends(batch_id, batch_id - 1, None, targets), is_running=True)


def recent(
    log: DecisionLog | PermitLog,
    batch_id: int,
    noted: Noted = NOTHING_NOTED,
    batches: int = RECENT_BATCHES,
) -> list[DecisionRecord]:
    """The records of so many ``batches`` before ``batch_id``, or as far back as there are sound
    ones that are compared.
    """
    records: list[DecisionRecord] = []
    for earlier in range(batch_id - 1, max(0, batch_id - batches) - 1, -1):
        try:
            records.extend(r for r in log.read(earlier) if noted.covers(r))
        except (CheckpointRefused, InvariantBroken):  # pruned, or damaged: it proves nothing
            break
    return records


def committed_before(
    log: DecisionLog | PermitLog, begins: int, noted: Noted = NOTHING_NOTED
) -> Sequence[PreparedTransaction]:
    """What the targets are compared with at a start, and what is decided of batch ``begins``.

    Raises:
        ExactumError: as ``DecisionLog.read``.
    """
    this = [r for r in log.read(begins) if noted.covers(r)]  # first, as in ``check_start``
    commits = resolve.commits_in_force([*recent(log, begins, noted), *this])
    return [p for record in commits for p in record.prepared]


def unknown_commits(
    begins: int,
    log: PermitLog,
    each: Each,
    earlier: Sequence[DecisionRecord],
    noted: Noted = NOTHING_NOTED,
    *,
    run: int = 0,
) -> tuple[Sighting, ...]:
    """What has been committed and no record names, in targets that know their transactions, and no
    marker.

    What an incarnation's tasks wrote is of its fence's batch or of a later one, and the records of
    those are read. Where ``begins`` is decided, its redelivery finds out what became of its
    transactions: somebody may have taken their names since. Runs with the number of the one that
    starts, or with a higher one, are not on file in this checkpoint: it is an older copy, or they
    start beside it, and then the log has their records.

    Raises:
        ExactumError: as ``DecisionLog.read`` and ``list_committed``.
    """
    this = [r for r in log.read(begins) if noted.covers(r)]
    before = [*this, *earlier]
    incarnations, named = set[Incarnation](), list[PreparedTransaction]()
    if resolve.commit_in_force(this) is None:
        incarnations = {r.incarnation for r in before if r.decision is Decision.ABORT}
        named = [p for record in before for p in record.prepared]
    if not (incarnations or named or run):
        return ()

    def is_asked(by: Incarnation) -> bool:
        return by in incarnations or 0 < run <= run_number(by)

    def of(participant: Participant) -> Sequence[Sighting]:
        own = [p for p in named if p.participant == participant.name]
        return participant.list_committed(is_asked, own)

    unknown = resolve.leftovers([s for seen in each(of) for s in seen], before)
    if unknown:  # or decided by an incarnation that lives, since the records were read
        unknown = resolve.leftovers(unknown, records_from(log, begins))
    return unknown


def records_from(log: PermitLog, batch_id: int) -> list[DecisionRecord]:
    """Up to the first batch that has none."""
    records: list[DecisionRecord] = []
    while found := log.read(batch_id):
        records.extend(found)
        batch_id += 1
    return records


def _has_commit(log: PermitLog, batch_id: int) -> bool:
    """Whether a COMMIT stands, or may have: what is pruned was there, what is damaged proves
    nothing.
    """
    try:
        return resolve.commit_in_force(log.read(batch_id)) is not None
    except (CheckpointRefused, InvariantBroken):
        return True


def _ends_with(batch_id: int | None) -> str:
    return "has no batch of it" if batch_id is None else f"ends with batch {batch_id}"
