"""One look at all transactions of a query: its records, its runs, and each of its targets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.query_record import KnownSink
from exactum.checkpoint.retirement import refuse_retired
from exactum.errors import CheckpointRefused, ExactumError, InvariantBroken
from exactum.ops.render import ExitStatus
from exactum.ops.targets.inspection import in_force, inspector_of, views_of
from exactum.ops.targets.target import QueryTargets
from exactum.ops.transactions.finding import (
    JudgedTransaction,
    OnRecord,
    Owner,
    Runs,
    judged,
    on_record,
)
from exactum.ops.transactions.replay_look import read_replays
from exactum.problem import Problem, not_seen
from exactum.protocol import resolve
from exactum.protocol.ends import RECENT_BATCHES
from exactum.protocol.finish import BATCHES_MAX
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import DecisionRecord, Incarnation

LOG = "the decision log"
REPLAYS = "the replays of dead letters"


@dataclass
class QueryLook:
    """``records`` are those of batches from some before ``first_batch`` on; ``first_batch`` is the
    first one that Spark has not logged as done. ``log_answers``: they could be read.
    ``replay_records``: of replays of its dead letters, which have decisions of their own.
    ``former``: sinks that it had, of which something may be open.
    """

    place: QueryPlace
    first_batch: int
    records: tuple[DecisionRecord, ...]
    log_answers: bool
    living: tuple[run_file.RecordedRun, ...]
    findings: list[JudgedTransaction] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    replay_records: tuple[DecisionRecord, ...] = ()
    former: tuple[KnownSink, ...] = ()

    def record_of(self, finding: JudgedTransaction) -> DecisionRecord | None:
        """What says something of it."""
        is_replay = finding.owner is Owner.REPLAY
        return on_record(finding.view, self.replay_records if is_replay else self.records)[1]

    @property
    def status(self) -> ExitStatus:
        if any(finding.needs_person for finding in self.findings):
            return ExitStatus.NEEDS_PERSON
        return ExitStatus.CANNOT_TELL if self.problems else ExitStatus.FINE


def look_at(place: QueryPlace, targets: QueryTargets) -> QueryLook:
    """What of the query is open, and what of its unfinished decided epochs stands where.

    Raises:
        CheckpointRefused: the checkpoint is retired: the query's records are elsewhere.
    """
    refuse_retired(place.folder)
    first = place.first_unfinished()
    problems = targets.unseen()
    records: list[DecisionRecord] = []
    try:
        records = _records(place, first)
        answers = True
    except ExactumError as error:
        problems.append(not_seen(LOG, str(error)))
        answers = False
    known = run_file.runs(place.folder)
    living = tuple(run for run, alive in known if alive)
    look = QueryLook(place, first, tuple(records), answers, living, problems=problems)
    look.former = targets.former
    runs = Runs(
        frozenset(Incarnation(run.incarnation) for run in living),
        frozenset(Incarnation(run.incarnation) for run, alive in known if not alive),
    )
    views = _unseen_views(targets.left_out, look)
    for target in targets.each:
        try:
            with closing(inspector_of(target, place)) as inspector:
                views += views_of(inspector, _unfinished(look))
        except ExactumError as error:
            if target.present or _is_named(target.name, look):
                look.problems.append(not_seen(f"sink {target.name!r}", str(error)))
    look.findings += [_finding(view, look, runs) for view in views]
    strangers = {p.participant for r in _unfinished(look) for p in r.prepared} - {
        *(target.name for target in targets.each),
        *targets.left_out,
    }
    look.problems += [
        not_seen(f"sink {name!r}", "a decided epoch names it, and the query has it no longer")
        for name in sorted(strangers)
    ]
    replays = read_replays(place, targets)
    look.replay_records = replays.records
    look.findings += replays.findings
    look.problems += [not_seen(REPLAYS, why) for why in replays.troubles]
    return look


def _records(place: QueryPlace, first: int) -> list[DecisionRecord]:
    """From a few batches before ``first`` up to the first one without any."""
    found: list[DecisionRecord] = []
    with closing(place.open_log()) as log:
        for batch_id in range(max(0, first - RECENT_BATCHES), first):
            # Pruned, or damaged and long done: nobody needs it.
            with suppress(CheckpointRefused, InvariantBroken):
                found += log.read(batch_id)
        for batch_id in range(first, first + BATCHES_MAX):
            records = log.read(batch_id)
            found += records
            if resolve.commit_in_force(records) is None:
                break
    return found


def _unfinished(look: QueryLook) -> list[DecisionRecord]:
    """What is decided and Spark has not logged as done."""
    return in_force(look.records, look.first_batch)


def _is_named(name: str, look: QueryLook) -> bool:
    return any(record.of(name) for record in _unfinished(look))


def _unseen_views(names: Sequence[str], look: QueryLook) -> list[TransactionView]:
    """What unfinished records name of sinks that cannot be looked into."""
    return [
        TransactionView(
            name, p.identity, look.place.query_id, record.incarnation, TransactionState.UNKNOWN
        ).of_record(p, record.epoch.batch_id, record.attempt)
        for name in names
        for record in _unfinished(look)
        for p in record.of(name)
    ]


def _finding(view: TransactionView, look: QueryLook, runs: Runs) -> JudgedTransaction:
    if look.log_answers:
        says, record = on_record(view, look.records)
        if record is not None and view.batch_id is None:
            own = [p for p in record.of(view.participant or "") if p.identity == view.identity]
            if own:
                view = view.of_record(own[0], record.epoch.batch_id, record.attempt)
    else:
        says = OnRecord.UNKNOWN
    return judged(view, says, runs.owner(view.incarnation), lives=bool(look.living))
