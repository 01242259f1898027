"""What replays of dead letters left open: ``exactum dead-letters replay`` sends them under
decisions of its own, so none of the query's records names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from exactum.checkpoint.layout import REPLAYS
from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError
from exactum.ops.targets.inspection import in_force, views_of
from exactum.ops.targets.target import QueryTargets
from exactum.ops.transactions.finding import JudgedTransaction, OnRecord, Owner, on_record
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import DecisionRecord, PreparedTransaction

AGAIN = "run 'exactum dead-letters replay' again"


@dataclass(frozen=True)
class OpenReplays:
    """``records`` are those from the first one on that is not known to be visible. ``troubles``:
    why something could not be looked at.
    """

    records: tuple[DecisionRecord, ...] = ()
    findings: Sequence[JudgedTransaction] = ()
    troubles: Sequence[str] = ()


def read_replays(place: QueryPlace, targets: QueryTargets) -> OpenReplays:
    """In the clusters of the query's Kafka sinks: of a replay that was sent elsewhere, by
    --replay-config, it is known what it has decided, and not what it left open besides.
    """
    if not (place.folder / REPLAYS).is_dir():
        return OpenReplays()
    from exactum.kafka.transaction import KafkaTransaction
    from exactum.ops.dead_letters.replay import (
        PARTICIPANT,
        replays_of,
        sink_of,
        unfinished_records,
    )

    try:
        records = unfinished_records(place.folder, place.query_id)
    except ExactumError as error:
        return OpenReplays(troubles=[f"their decisions: {error}"])
    decided = in_force(records)
    left = {prepared.identity for record in decided for prepared in record.prepared}
    views: dict[str, TransactionView] = {}
    troubles: list[str] = []
    for target in (each for each in targets.each if each.client_settings is not None):
        try:
            sink = sink_of(None, target.client_settings or {})
            with closing(sink.inspector(replays_of(place.query_id), PARTICIPANT)) as inspector:
                cluster = inspector.cluster_id()

                def is_there(prepared: PreparedTransaction, cluster: str = cluster) -> bool:
                    return KafkaTransaction.of(prepared).cluster_id in ("", cluster)

                views |= {v.identity: v for v in views_of(inspector, decided, is_there)}
        except ExactumError as error:
            if target.present or left:
                troubles.append(str(error))
    if (gone := left - views.keys()) and not troubles:
        troubles.append(
            f"{len(gone)} transactions are decided, in a Kafka cluster that no sink given by "
            f"--sinks leads to: {AGAIN}, with the --replay-config of last time"
        )
    return OpenReplays(records, [_judged(view, records) for view in views.values()], troubles)


def _judged(view: TransactionView, records: Sequence[DecisionRecord]) -> JudgedTransaction:
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
