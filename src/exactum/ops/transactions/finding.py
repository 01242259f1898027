"""From one transaction to whose it is, what the decision log says of it, and what to do: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from exactum.problem import Level, Problem
from exactum.protocol import resolve
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import Decision, DecisionRecord, Incarnation

FINISH = "exactum transactions finish"
ABORT = "exactum transactions abort"


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
    OTHER_QUERY = "another query"
    REPLAY = "a replay of this query's dead letters"
    FOREIGN = "no query of exactum's"


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

    @staticmethod
    def of(
        view: TransactionView, says: OnRecord, owner: Owner, do: str, needs_person: bool = False
    ) -> JudgedTransaction:
        level = Level.WARNING if needs_person else Level.OK
        where = view.participant or "unknown sink"
        return JudgedTransaction(
            view, says, owner, Problem(level, where, view.state.value, says.value, do)
        )

    @property
    def needs_person(self) -> bool:
        return self.problem.level is Level.WARNING


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


def judged(
    view: TransactionView, says: OnRecord, owner: Owner, *, lives: bool
) -> JudgedTransaction:
    """``lives``: whether any run of the query does, as far as locks on files tell."""
    return JudgedTransaction.of(view, says, owner, *_advice(view.state, says, owner, lives))


def judged_elsewhere(view: TransactionView) -> JudgedTransaction:
    """Of a whole Kafka cluster: without a checkpoint nobody knows what is decided."""
    owner = Owner.OTHER_QUERY
    if view.query_id:
        do = f"ask by the checkpoint of query {view.query_id}: --checkpoint says what is decided"
    elif view.incarnation is not None:
        do = "ask by its query's checkpoint: --checkpoint says what is decided"
    else:
        owner, do = Owner.FOREIGN, "nothing: it is not exactum's. Ask its owner"
    return JudgedTransaction.of(view, OnRecord.UNKNOWN, owner, do)


def _advice(state: TransactionState, says: OnRecord, owner: Owner, lives: bool) -> tuple[str, bool]:
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
