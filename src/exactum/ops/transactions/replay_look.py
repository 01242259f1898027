"""What replays of dead letters left open: ``exactum dead-letters replay`` sends them under
decisions of its own, so none of the query's records names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from exactum.checkpoint.layout import REPLAYS
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError
from exactum.ops.targets.target import QueryTargets, Target
from exactum.ops.transactions.finding import JudgedTransaction, OnRecord, Owner, on_record
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import DecisionRecord, PreparedTransaction
from exactum.protocol.resolve import commit_in_force

AGAIN = "run 'exactum dead-letters replay' again"


@dataclass
class ReplayLook:
    """``records`` are those from the first one on that is not known to be visible. ``troubles``:
    why something could not be looked at.
    """

    records: tuple[DecisionRecord, ...] = ()
    findings: list[JudgedTransaction] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def look_at_replays(place: QueryPlace, targets: QueryTargets) -> ReplayLook:
    """In the clusters of the query's Kafka sinks: whether a replay that was sent elsewhere, by
    --replay-config, has decided anything is told, and what it left open besides is not known.
    """
    look = ReplayLook()
    if not (place.folder / REPLAYS).is_dir():
        return look
    from exactum.ops.dead_letters.replay import unfinished_records

    try:
        look.records = unfinished_records(place.folder, place.query_id)
    except ExactumError as error:
        look.troubles.append(f"their decisions: {error}")
        return look
    left = {p.identity: (p, record) for record in _in_force(look.records) for p in record.prepared}
    found: dict[str, TransactionView] = {}
    for target in targets.each:
        try:
            for view in _views(target, place.query_id, [p for p, _ in left.values()]):
                if view.identity in left:
                    prepared, of = left.pop(view.identity)
                    found[view.identity] = view.of_record(prepared, of.epoch.batch_id, of.attempt)
                else:
                    found.setdefault(view.identity, view)
        except ExactumError as error:
            if target.present or left:
                look.troubles.append(str(error))
    look.findings = [_finding(view, look.records) for view in found.values()]
    if left and not look.troubles:
        look.troubles.append(
            f"{len(left)} transactions are decided, in a Kafka cluster that no sink given by "
            f"--sinks leads to: {AGAIN}, with the --replay-config of last time"
        )
    return look


def _in_force(records: Sequence[DecisionRecord]) -> Iterator[DecisionRecord]:
    for epoch in dict.fromkeys(record.epoch for record in records):
        in_force = commit_in_force([r for r in records if r.epoch == epoch])
        if in_force is not None:
            yield in_force


def _views(
    target: Target, query_id: str, decided: Sequence[PreparedTransaction]
) -> list[TransactionView]:
    """What is open in the cluster of a Kafka sink, and those of ``decided`` that are in it."""
    from exactum.kafka.sink import KafkaSink
    from exactum.kafka.transaction import KafkaTransaction
    from exactum.ops.dead_letters.replay import PARTICIPANT, replays_of, sink_of

    if not isinstance(target.sink, KafkaSink):
        return []
    sink = sink_of(None, target.sink.client_settings)
    with closing(sink.inspector(replays_of(query_id), PARTICIPANT)) as inspector:
        cluster = inspector.cluster_id()
        own = [p for p in decided if KafkaTransaction.of(p).cluster_id in ("", cluster)]
        opened = {view.identity: view for view in inspector.list_open()}
        described = inspector.describe(own) if own else ()
        return [*(opened | {view.identity: view for view in described}).values()]


def _finding(view: TransactionView, records: Sequence[DecisionRecord]) -> JudgedTransaction:
    says, _ = on_record(view, records)
    return JudgedTransaction.of(view, says, Owner.REPLAY, *_advice(view.state, says))


def _advice(state: TransactionState, says: OnRecord) -> tuple[str, bool]:
    if says is OnRecord.COMMIT and state is TransactionState.COMMITTED:
        return "nothing: it is committed", False
    if says is OnRecord.COMMIT:
        return f"decided, not known to be visible: {AGAIN}, which finishes it first", True
    if not state.unsettled:
        return "nothing: it is settled", False
    return f"undecided: where no replay is at work, {AGAIN}, which aborts it", True
