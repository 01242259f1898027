"""What an operator sees of the transactions of a staged sink; see ``protocol.inspection``."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import PreparedTransaction
from exactum.sinks.staged import Published, StagedEpoch, StagedParticipant, StagedTarget
from exactum.sinks.staging import StagedName, Staging

SAYS = {
    Published.BEFORE: (TransactionState.COMMITTED, "the target has its batch"),
    Published.OVERTAKEN: (TransactionState.COMMITTED, "the target has a later batch"),
    Published.OTHER: (TransactionState.GONE, "the target has its batch from other files"),
    Published.MISSING: (TransactionState.GONE, "neither the target nor the staging has it"),
}


class StagedInspector:
    """Of one sink of one query; see ``protocol.inspection.Inspector``. Changes nothing."""

    def __init__(self, staging: Staging, target: StagedTarget) -> None:
        self._staging = staging
        self._participant = StagedParticipant(staging, target)

    @property
    def name(self) -> str:
        return self._staging.scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        return [self._waiting(name, size) for name, size in self._waits().items()]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """By the files first: they go after the target has their rows."""
        if not prepared:
            return []
        epoch = StagedEpoch.of(prepared)
        there = self._waits()
        state, text = SAYS[self._participant.target.published(epoch)]
        views = {
            part.name.identity: self._waiting(part.name, there[part.name])
            if part.name in there
            else self._view(part.name, state, text)
            for part in epoch.parts
        }
        return [views[p.identity].of_record(p, epoch.batch_id, epoch.attempt) for p in prepared]

    def participant(self) -> StagedParticipant:
        return self._participant

    def close(self) -> None:
        self._participant.close()

    def _waits(self) -> dict[StagedName, int]:
        """Files that are not visible yet, or not any more; others are kept for a while."""
        open_ = {sighting.identity for sighting in self._participant.list_open()}
        return {n: size for n, size in self._staging.sizes().items() if n.identity in open_}

    def _waiting(self, name: StagedName, size_bytes: int) -> TransactionView:
        further = self._participant.target.waiting(name)
        text = f"staged in {self._staging.path(name.identity)}, {size_bytes:,} bytes"
        return self._view(name, TransactionState.PREPARED, *filter(None, (text, further)))

    def _view(self, name: StagedName, state: TransactionState, *texts: str) -> TransactionView:
        return TransactionView(
            self.name,
            name.identity,
            self._staging.scope.query_id,
            name.incarnation,
            state,
            batch_id=name.batch_id,
            attempt=name.attempt,
            details=texts,
        )
