"""What an operator sees of the transactions of targets of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from exactum.custom.transaction_name import TransactionName, TransactionScope
from exactum.custom.two_phase import TwoPhaseCommitSink
from exactum.custom.two_phase_participant import TwoPhaseParticipant
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import PreparedTransaction, new_incarnation
from exactum.protocol.sink import Guarantee, QueryRun


class TwoPhaseInspector:
    """Of one ``TwoPhaseCommitSink``; see ``protocol.inspection.Inspector``. What its target does
    not list, nobody but the target knows.
    """

    def __init__(self, template: TwoPhaseCommitSink[Any], scope: TransactionScope) -> None:
        run = QueryRun(scope.query_id, new_incarnation(), Guarantee.AT_LEAST_ONCE)
        self._scope = scope
        self._lists = type(template).list_transactions is not TwoPhaseCommitSink.list_transactions
        # The guarantee is what the participant warns by, and nothing else here.
        self._participant = TwoPhaseParticipant(template, run, scope)

    @property
    def name(self) -> str:
        return self._scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        return [
            _view(self._scope, s.identity, TransactionState.OPEN, (s.payload,))
            for s in self._participant.list_open()
        ]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """Listed, or not: then it may be committed, and the next commit of it tells."""
        listed = {s.identity for s in self._participant.list_open()}
        views: list[TransactionView] = []
        for p in prepared:
            here = p.identity in listed
            text = (
                "its target lists it"
                if here
                else "its target does not list it any more: it is committed, or lost"
                if self._lists
                else "nobody can tell: the sink has no list_transactions()"
            )
            state = TransactionState.PREPARED if here else TransactionState.UNKNOWN
            views.append(_view(self._scope, p.identity, state, (text, p.payload)))
        return views

    def participant(self) -> TwoPhaseParticipant:
        return self._participant

    def close(self) -> None:
        self._participant.close()


def _view(
    scope: TransactionScope,
    identity: str,
    state: TransactionState,
    details: tuple[str, ...],
    began_ms: int | None = None,
) -> TransactionView:
    name = TransactionName.parse(identity)
    return TransactionView(
        scope.participant,
        identity,
        scope.query_id,
        None if name is None else name.incarnation,
        state,
        began_ms,
        batch_id=None if name is None else name.batch_id,
        attempt=None if name is None else name.attempt,
        details=details,
    )
