"""One micro-batch in words: what its decision records say, and what is known of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exactum.checkpoint.offset_log import folder_reader, source_offsets
from exactum.checkpoint.partition_offsets import from_json
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError
from exactum.monitor.decisions import read_batch as read_records
from exactum.monitor.job import JobState
from exactum.monitor.query_stats import ABANDONED, BatchLine
from exactum.monitor.words import GOOD, QUIET, WARN, count
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    SourceOffsets,
    rows_by_participant,
    rows_of,
)
from exactum.protocol.resolve import commit_in_force

TRANSACTIONS_MAX = 500
"""Of one record, on one page."""
PARTITIONS_MAX = 500


class OffsetLine(NamedTuple):
    """What the micro-batch reads of one partition; ``begin`` is None where that is forgotten."""

    topic: str
    partition: int
    begin: int | None
    end: int


@dataclass(frozen=True)
class AttemptState:
    """One record of the decision log. ``meaning`` says in words what it does."""

    record: DecisionRecord
    in_force: bool
    meaning: str

    @property
    def by_sink(self) -> Mapping[str, int]:
        return rows_by_participant(self.record.prepared)


@dataclass(frozen=True)
class BatchState:
    """``word`` is what stands in the heading: stands; decided, not acknowledged; aborted; ..."""

    batch_id: int
    word: str
    tone: str
    meaning: str
    attempts: tuple[AttemptState, ...] = ()
    offsets: tuple[OffsetLine, ...] = ()
    other_offsets: tuple[str, ...] = ()
    """The end of sources that are not Kafka, as Spark writes it."""
    lines: tuple[BatchLine, ...] = ()
    problem: str = ""


def read_batch(job: JobState, batch_id: int, decision_log: str | None = None) -> BatchState:
    """Reads the decision log and Spark's offset log. Never raises for what cannot be read."""
    records: Sequence[DecisionRecord] = ()
    planned, in_force, problem = SourceOffsets(), None, ""
    try:
        place = QueryPlace.of(job.checkpoint, decision_log)
        planned = _planned(place, batch_id)
        records = read_records(place, batch_id)
        in_force = commit_in_force(records)
    except (ExactumError, OSError) as error:  # pruned, among others
        problem = str(error)
    lines = tuple(line for line in job.stats.batches if line.batch_id == batch_id)
    acknowledged = any(line.outcome != ABANDONED for line in lines) or (
        job.finished is not None and batch_id <= job.finished
    )
    word, tone, meaning = _verdict(
        job, batch_id, records, in_force, acknowledged=acknowledged, is_unread=bool(problem)
    )
    offsets = in_force.offsets if in_force is not None else planned
    return BatchState(
        batch_id,
        word,
        tone,
        meaning,
        tuple(_attempt(record, record is in_force, records) for record in records),
        *_offset_lines(offsets),
        lines,
        problem,
    )


def _verdict(
    job: JobState,
    batch_id: int,
    records: Sequence[DecisionRecord],
    in_force: DecisionRecord | None,
    *,
    acknowledged: bool,
    is_unread: bool,
) -> tuple[str, str, str]:
    if in_force is not None:
        what = f"{count(rows_of(in_force.prepared), 'row')} in " + count(
            len(in_force.prepared), "transaction"
        )
        if acknowledged:
            return "stands", GOOD, f"Committed, and every sink has acknowledged it: {what}."
        return (
            "decided, not acknowledged",
            WARN,
            f"COMMIT is recorded: {what} will become visible, whatever crashes. No sink's "
            "acknowledgement is known yet. The next start, or exactum run, sends it again.",
        )
    if acknowledged:
        how = "" if records else " Its decision record is not there any more."
        return "stands", GOOD, f"Every sink has acknowledged it.{how}"
    if is_unread:
        return "not known", WARN, "Its decision records could not be read, see below."
    if records:
        return (
            "aborted",
            QUIET,
            "Every recorded attempt is aborted: nothing of it is visible. It is computed again "
            "from the same offsets.",
        )
    if job.planned is not None and batch_id <= job.planned:
        return (
            "not decided",
            QUIET,
            "Spark has begun it and nothing is decided: what its tasks wrote is invisible, and "
            "is aborted if the driver dies.",
        )
    return "not begun", QUIET, "Spark has not begun this micro-batch."


def _attempt(
    record: DecisionRecord, in_force: bool, records: Sequence[DecisionRecord]
) -> AttemptState:
    if record.decision is Decision.ABORT:
        meaning = (
            "Fence: a newer run closed this attempt when it started. An older run that comes to "
            "decide here finds this record and stops."
        )
    elif record.supersedes is not None:
        meaning = (
            f"Salvage: the transactions of attempt {record.supersedes} were undone outside, and "
            "their rows are committed by these instead."
        )
    elif in_force:
        meaning = "The decision in force: all of these transactions are committed, or will be."
    else:
        later = next((r.attempt for r in records if r.supersedes == record.attempt), None)
        by = "a later attempt" if later is None else f"attempt {later}"
        meaning = f"Superseded by {by}: its transactions were undone outside."
    return AttemptState(record, in_force, meaning)


def _planned(place: QueryPlace, batch_id: int) -> SourceOffsets:
    try:
        return source_offsets(folder_reader(place.folder), batch_id, str(place.folder))
    except (ExactumError, OSError, ValueError):
        return SourceOffsets()


def _offset_lines(offsets: SourceOffsets) -> tuple[tuple[OffsetLine, ...], tuple[str, ...]]:
    lines: list[OffsetLine] = []
    others: list[str] = []
    for source, text in enumerate(offsets.end):
        ends = from_json(text)
        if text is not None and not ends:
            others.append(text)
        begins = from_json(offsets.start[source]) if source < len(offsets.start) else {}
        lines += [
            OffsetLine(topic, partition, begins.get((topic, partition)), end)
            for (topic, partition), end in sorted(ends.items())
        ]
    return tuple(lines[:PARTITIONS_MAX]), tuple(others)
