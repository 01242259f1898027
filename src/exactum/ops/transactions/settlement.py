"""Finishing what is decided, and aborting what is not, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import CheckpointRefused, ExactumError, SettingRefused
from exactum.monitor.decisions import read_around
from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter
from exactum.monitor.words import now_ms
from exactum.ops.render import ExitStatus
from exactum.ops.targets.sinks import QueryTargets, inspector_of, inspectors
from exactum.problem import Problem, not_seen
from exactum.protocol.ends import Ends, TargetEnd, refuse_gaps, target_end
from exactum.protocol.finish import Finished, commit_decided, finished
from exactum.protocol.inspection import Inspector
from exactum.protocol.model import CommitPermit, PreparedTransaction
from exactum.protocol.participant import Participant
from exactum.protocol.resolve import Fence
from exactum.protocol.takeover import TakenOver, abort_undecided


@dataclass
class FinishOutcome:
    """What of each decided batch stands now. ``committed_again`` are of batches that are over, in a
    target that had lost their commit; ``open_undecided`` is what else is open, where no run of the
    query lives.
    """

    batches: Sequence[Finished] = ()
    committed_again: int = 0
    open_undecided: int = 0
    problems: list[Problem] = field(default_factory=list)
    living: bool = False

    @property
    def left(self) -> int:
        return sum(batch.left for batch in self.batches)

    @property
    def settled(self) -> Sequence[Finished]:
        """What a history is told. What is left may be done by a driver that lives, and it tells."""
        return () if self.left or self.problems else self.batches

    @property
    def status(self) -> ExitStatus:
        """CANNOT_TELL: not all targets could be asked."""
        if self.problems:
            return ExitStatus.CANNOT_TELL
        waits = self.left or (not self.batches and self.open_undecided)
        return ExitStatus.NEEDS_PERSON if waits else ExitStatus.FINE


def finish_query(
    place: QueryPlace, targets: QueryTargets, *, take_over: bool = False
) -> FinishOutcome:
    """Commit what the log has decided and Spark has not logged as done. Idempotent; takes nothing
    from a driver that lives, but for write-ahead sinks (see ``--take-over``).

    Raises:
        ExactumError: the decision log refused, did not answer, or is not the query's.
    """
    before, onwards = read_around(place, place.first_unfinished())
    permits = onwards.commits
    noted = place.record().noted  # what a person has accepted is not brought in any more
    over = [permit for permit in before.commits if noted.covers(permit.record)]
    records = [permit.record for permit in over]
    living = bool(run_file.living(place.files))  # what it has open is its own affair
    outcome = FinishOutcome(problems=targets.unseen(), living=living)
    decided = {p.participant for permit in permits for p in permit.record.prepared}
    committed: list[PreparedTransaction] = []
    for target in targets.each:
        is_named = target.name in decided
        # A write-ahead sink is left to the next start: to send takes the sending over.
        may_have_lost = (
            target.present
            and not target.has_one_sender
            and any(permit.record.of(target.name) for permit in over)
        )
        if permits and not (is_named or may_have_lost):
            continue
        try:
            if is_named and target.has_one_sender:
                _refuse_if_living(place, take_over, "Its sender would be taken over")
            with closing(inspector_of(target, place)) as inspector:
                participant = inspector.participant()
                if may_have_lost:
                    _refuse_gap(place, target_end(participant, records))
                    _commit_again(inspector, over, outcome)
                if is_named:
                    own = [p for permit in permits for p in permit.record.of(target.name)]
                    end = target_end(participant, records)
                    _refuse_elsewhere(participant, own, end)
                    _refuse_gap(place, end)
                    committed += commit_decided(participant, permits)
                elif not permits and not living:
                    outcome.open_undecided += len(_undecided(inspector, over))
        except ExactumError as error:
            if target.present or is_named:
                outcome.problems.append(_of_sink(target.name, str(error)))
    known = (*targets.left_out, *(target.name for target in targets.each))
    for name in sorted(decided.difference(known)):
        why = "a decided epoch names it, and the query has it no longer"
        outcome.problems.append(_of_sink(name, why))
    outcome.batches = finished([permit.record for permit in permits], committed)
    return outcome


def _of_sink(name: str, why: str) -> Problem:
    return not_seen(f"sink {name!r}", why)


def abort_of_query(place: QueryPlace, targets: QueryTargets, *, take_over: bool) -> TakenOver:
    """Abort what is open, unless a COMMIT names it.

    Raises:
        CheckpointRefused: a run of the query lives, or the decision log is not the query's.
        SettingRefused: a sink is not given or cannot be reached; nothing was changed.
        ExactumError: as ``abort_undecided``.
    """
    targets.refuse_left_out()
    _refuse_if_living(place, take_over, "To abort what it may be about to decide stops it")
    record = place.record()
    with closing(place.open_log()) as log, inspectors(place, targets) as open_sinks:
        return abort_undecided(
            place.query_id,
            place.first_unfinished(),
            [inspector.participant() for inspector in open_sinks],
            log,
            noted=record.noted,
            run=record.runs + 1,
        )


def _commit_again(
    inspector: Inspector, over: Sequence[CommitPermit], outcome: FinishOutcome
) -> None:
    """What a batch that is over names and is open: its target has gone back in time."""
    opened = {view.identity for view in inspector.list_open()}
    again: set[str] = set()
    for permit in over:
        own = permit.record.of(inspector.name)
        lost = {p.identity for p in own} & opened
        if lost:
            done = {p.identity for p in commit_decided(inspector.participant(), [permit])}
            again |= lost & done
            if gone := len(own) - len(done):
                why = f"{gone} transactions of {permit.record.epoch}, which was committed, are gone"
                outcome.problems.append(_of_sink(inspector.name, f"{why} from it"))
    if again:  # a sink of the user's may list what is settled as well, and had lost nothing
        again -= {view.identity for view in inspector.list_open() if view.state.unsettled}
    outcome.committed_again += len(again)


def _refuse_gap(place: QueryPlace, end: TargetEnd | None) -> None:
    """A target that lacks more than waits is left to the person: behind a part of it, or a later
    batch, a start would see no loss any more.

    Raises:
        CheckpointRefused: it does.
    """
    if end is not None and end.has_lost:
        refuse_gaps(place.query_id, Ends(place.first_unfinished(), end.owes, None, (end,)))


def _refuse_elsewhere(
    participant: Participant, own: Sequence[PreparedTransaction], end: TargetEnd | None
) -> None:
    """The sinks that were given may lead elsewhere, as where a script takes its servers from the
    environment: to a copy, which has all the batches before, or to what has no trace of them.

    Raises:
        SettingRefused: ``own`` was staged for another place, or there is no trace.
    """
    if not participant.are_for_here(own):
        raise SettingRefused(
            "SINKS_OPTION",
            "its rows were staged for another place, and its target may be a copy of that. Give "
            "the sink by --sinks as the query has it. If it has moved, start the query instead",
        )
    if end is not None and end.owes is not None and end.has is None:
        raise SettingRefused(
            "SINKS_OPTION",
            f"its target has no trace of the query, which committed batch {end.owes} there. Give "
            "the sink by --sinks as the query has it. If the target was emptied on purpose, start "
            "the query instead",
        )


def _undecided(inspector: Inspector, over: Sequence[CommitPermit]) -> set[str]:
    """What is open where nothing is decided, and was not decided in the batches before."""
    decided = {p.identity for permit in over for p in permit.record.of(inspector.name)}
    return {v.identity for v in inspector.list_open() if v.state.unsettled} - decided


def _refuse_if_living(place: QueryPlace, take_over: bool, why: str) -> None:
    living = run_file.living(place.files)
    if living and not take_over:
        raise CheckpointRefused(
            "QUERY_RUNS",
            f"{living[0]} of this query lives. {why}: it is fenced and ends with an error, and "
            "nothing is lost or doubled. Stop it first, or say --take-over. Nothing was changed.",
        )


# ---- as facts of the history -------------------------------------------------------------------


def record_settled(
    place: QueryPlace, batches: Sequence[Finished], fence: Fence | None = None, aborted: int = 0
) -> str:
    """That ``batches`` stand whole, and that where a ``fence`` was set so many were ``aborted``.

    Returns:
        Why it could not be written; empty: it was, or there was nothing to write.
    """
    settled: list[tuple[str, Mapping[str, Any]]] = []
    if batches:
        finished = {
            "batch_ids": [batch.batch_id for batch in batches],
            "transactions": sum(batch.transactions for batch in batches),
            "rows": sum(batch.rows for batch in batches),
        }
        settled.append(("DecidedFinished", finished))
    if fence is not None:
        fenced = {"batch_id": fence.batch_id, "attempt": fence.attempt, "transactions": aborted}
        settled.append(("OperatorFenced", fenced))
    at_ms = now_ms()
    facts = [Fact(at_ms, name, {"query_id": place.query_id, **of}) for name, of in settled]
    try:
        HistoryWriter(place.files).write(facts)
    except (OSError, ExactumError) as error:
        return str(error)
    return ""
