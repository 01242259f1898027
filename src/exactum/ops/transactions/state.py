"""The transactions of a query at one moment: where each stands in its target, whose it is, what the
decision log says of it, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum

from exactum.checkpoint import run_file
from exactum.checkpoint.query_place import QueryPlace
from exactum.checkpoint.query_record import KnownSink
from exactum.errors import ExactumError
from exactum.monitor.decisions import read_around
from exactum.ops.render import ExitStatus
from exactum.ops.targets.sinks import QueryTargets, inspector_of, views_of
from exactum.problem import Level, Problem, not_seen
from exactum.protocol import resolve
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import (
    Decision,
    DecisionRecord,
    Incarnation,
)

FINISH = "exactum transactions finish"
ABORT = "exactum transactions abort"
LOG = "the decision log"


class OnRecord(Enum):
    """What the decision log says of a transaction."""

    COMMIT = "COMMIT on record"
    SUPERSEDED = "a COMMIT that salvage replaced"
    WITHOUT_IT = "COMMIT on record, without this one"
    ABORT = "ABORT on record"
    NOTHING = "nothing on record"
    UNKNOWN = "the decision log cannot be asked"


class Owner(Enum):
    """Whose a transaction is."""

    LIVING_RUN = "this query's living run"
    DEAD_RUN = "a dead run of this query"
    FORMER_INCARNATION = "a former incarnation of this query"


@dataclass(frozen=True)
class Runs:
    """The incarnations of a query that left a file beside its checkpoint."""

    living: frozenset[Incarnation] = frozenset()
    dead: frozenset[Incarnation] = frozenset()

    def owner(self, incarnation: Incarnation | None) -> Owner:
        if incarnation in self.living:
            return Owner.LIVING_RUN
        return Owner.DEAD_RUN if incarnation in self.dead else Owner.FORMER_INCARNATION


@dataclass(frozen=True)
class JudgedTransaction:
    """One transaction, and what is to be done with it: ``problem`` is a warning where somebody has
    to do something.
    """

    view: TransactionView
    on_record: OnRecord
    owner: Owner
    problem: Problem

    @property
    def needs_person(self) -> bool:
        return self.problem.level is Level.WARNING


@dataclass(frozen=True)
class QueryTransactions:
    """Those of a query: what is open, and where what is decided and unfinished stands. ``former``:
    sinks that it had, of which something may be open.
    """

    place: QueryPlace
    living: tuple[run_file.RecordedRun, ...]
    each: tuple[JudgedTransaction, ...]
    problems: tuple[Problem, ...]
    former: tuple[KnownSink, ...] = ()

    @property
    def status(self) -> ExitStatus:
        if any(each.needs_person for each in self.each):
            return ExitStatus.NEEDS_PERSON
        return ExitStatus.CANNOT_TELL if self.problems else ExitStatus.FINE


def read_transactions(place: QueryPlace, targets: QueryTargets) -> QueryTransactions:
    """What cannot be read or reached is among ``problems``."""
    first = place.first_unfinished()
    problems = targets.unseen()
    records: tuple[DecisionRecord, ...] | None = None
    decided: list[DecisionRecord] = []
    try:
        before, onwards = read_around(place, first)
        records = (*filter(place.record().noted.covers, before.records), *onwards.records)
        decided = [permit.record for permit in onwards.commits]
    except ExactumError as error:
        problems.append(not_seen(LOG, str(error)))
    views = [view for name in targets.left_out for view in _unseen(name, place, decided)]
    for target in targets.each:
        try:
            with closing(inspector_of(target, place)) as inspector:
                views += views_of(inspector, decided)
        except ExactumError as error:
            if target.present or any(record.of(target.name) for record in decided):
                problems.append(not_seen(f"sink {target.name!r}", str(error)))
    known = {*targets.left_out, *(target.name for target in targets.each)}
    problems += [
        not_seen(f"sink {name!r}", "a decided epoch names it, and the query has it no longer")
        for name in sorted({p.participant for r in decided for p in r.prepared} - known)
    ]
    recorded = run_file.runs(place.files)
    living = tuple(run for run, alive in recorded if alive)
    runs = Runs(
        frozenset(Incarnation(run.incarnation) for run in living),
        frozenset(Incarnation(run.incarnation) for run, alive in recorded if not alive),
    )
    judged = tuple(_judged_by(view, records, runs) for view in views)
    return QueryTransactions(place, living, judged, tuple(problems), targets.former)


def _unseen(
    name: str, place: QueryPlace, decided: Sequence[DecisionRecord]
) -> Iterator[TransactionView]:
    """What unfinished records name of a sink that cannot be looked into."""
    for record in decided:
        for p in record.of(name):
            view = TransactionView(
                name, p.identity, place.query_id, record.incarnation, TransactionState.UNKNOWN
            )
            yield view.of_record(p, record.epoch.batch_id, record.attempt)


def _judged_by(
    view: TransactionView, records: Sequence[DecisionRecord] | None, runs: Runs
) -> JudgedTransaction:
    """``records`` None: the log does not answer."""
    says, record = OnRecord.UNKNOWN, None
    if records is not None:
        says, record = on_record(view, records)
    if record is not None and view.batch_id is None:
        own = [p for p in record.of(view.participant or "") if p.identity == view.identity]
        if own:
            view = view.of_record(own[0], record.epoch.batch_id, record.attempt)
    owner = runs.owner(view.incarnation)
    do, needs_person = advice_of(view.state, says, owner, lives=bool(runs.living))
    level = Level.WARNING if needs_person else Level.OK
    where = view.participant or "unknown sink"
    problem = Problem(level, where, view.state.value, says.value, do)
    return JudgedTransaction(view, says, owner, problem)


def on_record(
    view: TransactionView, records: Sequence[DecisionRecord]
) -> tuple[OnRecord, DecisionRecord | None]:
    """What ``records`` (of several batches, each batch's by attempt) say of it, and which one says
    it.
    """
    named = [
        r
        for r in records
        if r.decision is Decision.COMMIT
        and any(
            p.participant == view.participant and p.identity == view.identity for p in r.prepared
        )
    ]
    for record in named:
        of_batch = [r for r in records if r.epoch == record.epoch]
        if resolve.commit_in_force(of_batch) is record:
            return OnRecord.COMMIT, record
    if named:
        return OnRecord.SUPERSEDED, named[-1]
    for record in records:
        if (record.epoch.batch_id, record.attempt) == (view.batch_id, view.attempt):
            is_commit = record.decision is Decision.COMMIT
            return (OnRecord.WITHOUT_IT if is_commit else OnRecord.ABORT), record
    return OnRecord.NOTHING, None


def advice_of(
    state: TransactionState, says: OnRecord, owner: Owner, *, lives: bool
) -> tuple[str, bool]:
    """What to do, and whether a person has to. ``lives``: whether any run of the query does, as far
    as locks on files tell.
    """
    if says is OnRecord.UNKNOWN:
        return "look again when the decision log answers: nobody knows whether it is decided", False
    if says is OnRecord.COMMIT:
        return _of_decided(state, lives)
    if not state.unsettled:
        return "nothing: it is settled", False
    if owner is Owner.LIVING_RUN and says in (OnRecord.NOTHING, OnRecord.WITHOUT_IT):
        return "nothing: the living run is at work on it", False
    if lives:
        return "nothing: a leftover; the living run aborts it with its next epoch", False
    return (
        f"a leftover, undecided: '{ABORT}' aborts it, or the next start of the query does",
        True,
    )


def _of_decided(state: TransactionState, lives: bool) -> tuple[str, bool]:
    if state is TransactionState.COMMITTED:
        return "nothing: it is committed", False
    if state.unsettled:
        if lives:
            return "nothing: decided; the living run commits it", False
        return f"decided, not committed: run '{FINISH}', or start the query", True
    if state is TransactionState.UNKNOWN:
        text = f"decided, and whether it is committed is not known: '{FINISH}' asks its target"
        return (f"{text}; the living run does as well", False) if lives else (text, True)
    if lives:
        return "nothing: decided, and undone since; the living run makes it whole", False
    return (
        "decided, and undone since: start the query, which makes it whole or says what is missing",
        True,
    )
