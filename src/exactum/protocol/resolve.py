"""From facts to what must be done: pure functions, no I/O, no state.

The facts of a batch are its decision records, slot by slot, and the slot whose ABORT this
incarnation put there when it started (its *fence*). Everything the coordinator does follows from
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from exactum.errors import CheckpointRefused, Fenced, InvariantBroken
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Incarnation,
    PreparedTransaction,
    Sighting,
    SourceOffsets,
)


@dataclass(frozen=True)
class Fence:
    """Where this incarnation began: its own ABORT stands in slot (batch_id, attempt)."""

    batch_id: int
    attempt: int


@dataclass(frozen=True)
class Redeliver:
    """The batch is decided: make sure that ``record`` is carried out."""

    record: DecisionRecord


@dataclass(frozen=True)
class Close:
    """The batch is undecided: put an ABORT into this free slot, which fences older runs."""

    attempt: int


@dataclass(frozen=True)
class Stands:
    """The batch is decided, and this incarnation carried ``record`` out when it started: there is
    nothing to write.
    """

    record: DecisionRecord


@dataclass(frozen=True)
class RunAttempt:
    """The batch is undecided and ours: write it under this attempt."""

    attempt: int


@dataclass(frozen=True)
class FencedBy:
    """A record that is not ours stands where ours would have to: stop."""

    record: DecisionRecord


def commit_in_force(records: Sequence[DecisionRecord]) -> DecisionRecord | None:
    """The COMMIT in force: the last one, which may supersede an earlier one (salvage), or None.

    Raises:
        InvariantBroken: two COMMITs of which the later does not supersede the earlier.
    """
    in_force: DecisionRecord | None = None
    for record in records:
        if record.decision is not Decision.COMMIT:
            continue
        if in_force is not None and record.supersedes != in_force.attempt:
            raise InvariantBroken(
                f"{record.epoch} is decided twice, in attempts {in_force.attempt} and "
                f"{record.attempt}. Keep the decision log as it is and report this."
            )
        in_force = record
    return in_force


def commits_in_force(records: Iterable[DecisionRecord]) -> list[DecisionRecord]:
    """Of several batches, the oldest first.

    Raises:
        InvariantBroken: as ``commit_in_force``.
    """
    by_batch: dict[int, list[DecisionRecord]] = {}
    for record in sorted(records, key=lambda r: (r.epoch.batch_id, r.attempt)):
        by_batch.setdefault(record.epoch.batch_id, []).append(record)
    return [r for r in map(commit_in_force, by_batch.values()) if r is not None]


def at_start(records: Sequence[DecisionRecord]) -> Redeliver | Close:
    """What a starting incarnation finds: a COMMIT to redeliver, or the free slot to close."""
    in_force = commit_in_force(records)
    return Redeliver(in_force) if in_force else Close(attempt=len(records))


def when_asked(
    batch_id: int, fence: Fence, records: Sequence[DecisionRecord]
) -> Stands | RunAttempt | FencedBy:
    """What a running incarnation does with a batch that Spark asks it to write.

    Below its fence lie only batches that it redelivered itself. At the fence the next slot is its
    own, and beyond it the first one. A record in that slot is somebody else's.
    """
    if batch_id < fence.batch_id:
        in_force = commit_in_force(records)
        if in_force is None:
            raise InvariantBroken(
                f"Batch {batch_id} lies before batch {fence.batch_id}, where this incarnation "
                "began, yet no COMMIT of it is on record."
            )
        return Stands(in_force)
    attempt = fence.attempt + 1 if batch_id == fence.batch_id else 0
    return FencedBy(records[attempt]) if len(records) > attempt else RunAttempt(attempt)


def leftovers(
    sightings: Iterable[Sighting], records: Iterable[DecisionRecord]
) -> tuple[Sighting, ...]:
    """Those that no COMMIT names. Safe to abort if they were seen before a record of our own was
    made.
    """
    named = {p.identity for r in records if r.decision is Decision.COMMIT for p in r.prepared}
    return tuple(s for s in sightings if s.identity not in named)


def superseding(
    record: DecisionRecord,
    attempt: int,
    incarnation: Incarnation,
    replaced: Sequence[PreparedTransaction],
    replacements: Sequence[PreparedTransaction],
) -> DecisionRecord:
    """The record that takes ``record``'s place once ``replacements`` stand for ``replaced``."""
    gone = {p.identity for p in replaced}
    kept = tuple(p for p in record.prepared if p.identity not in gone)
    return replace(
        record,
        attempt=attempt,
        incarnation=incarnation,
        prepared=kept + tuple(replacements),
        supersedes=record.attempt,
    )


def require_same(
    participant: str,
    verb: str,
    asked: Sequence[PreparedTransaction],
    answered: Sequence[PreparedTransaction],
) -> None:
    """A transaction that a participant passes over in silence must not be taken for done.

    Raises:
        InvariantBroken: the participant answered for others than it was asked about.
    """
    if sorted(p.identity for p in asked) != sorted(p.identity for p in answered):
        raise InvariantBroken(
            f"{participant} was asked about {[p.identity for p in asked]} and {verb} "
            f"{[p.identity for p in answered]}. This is a defect of that sink."
        )


def taken_over(record: DecisionRecord, incarnation: Incarnation) -> Fenced:
    """What stops the run ``incarnation`` when it meets ``record``, which is not its own."""
    return Fenced(
        f"{record.epoch}: another run of this query has taken over (incarnation "
        f"{record.incarnation}; this one is {incarnation}). This run stops; everything it had not "
        "decided is aborted, and nothing is lost or doubled. Two drivers ran on one checkpoint, or "
        "an older one woke up: run the query in one place only."
    )


def refuse_other_offsets(record: DecisionRecord, offsets: SourceOffsets) -> None:
    """A batch that is on record must be the batch that Spark is asking for.

    Raises:
        CheckpointRefused: the two read different offsets, so rows would be lost or doubled.
    """
    if record.offsets.contradicts(offsets):
        raise CheckpointRefused(
            "OFFSETS_DIFFER",
            f"{record.epoch} is on record as committed with source offsets "
            f"{_text(record.offsets)}, but the checkpoint now says {_text(offsets)} for the same "
            "batch. Restore checkpoint and decision log from the same moment, or start with a new "
            "checkpoint location. After a power cut that took Spark's file docs/operations.md says "
            "how to write it again. Nothing was written.",
        )


def _text(offsets: SourceOffsets) -> str:
    ends = ", ".join(str(e) for e in offsets.end)
    starts = ", ".join(str(s) for s in offsets.start)
    files = f" (files {offsets.files})" if any(offsets.files) else ""
    return (f"[{starts}] to [{ends}]" if offsets.start else f"up to [{ends}]") + files
