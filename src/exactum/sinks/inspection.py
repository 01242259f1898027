"""What an operator sees of the transactions of a staged sink; see ``protocol.inspection``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from exactum.protocol.inspection import (
    Evidence,
    Inspector,
    Promise,
    TransactionState,
    TransactionView,
)
from exactum.protocol.model import PreparedTransaction
from exactum.sinks.staged import Published, StagedEpoch, StagedParticipant, StagedTarget
from exactum.sinks.staging import StagedName
from exactum.storage.storage import UNFINISHED, Entry

SAYS = {
    Published.BEFORE: (TransactionState.COMMITTED, "the target has its batch"),
    Published.OVERTAKEN: (TransactionState.COMMITTED, "the target has a later batch"),
    Published.OTHER: (TransactionState.GONE, "the target has its batch from other files"),
    Published.MISSING: (TransactionState.GONE, "neither the target nor the staging has it"),
}


EvidenceOf = Callable[["StagedInspector", Sequence[Promise]], Sequence[Evidence]]


class StagedInspector(Inspector):
    """Of one sink of one query; see ``protocol.inspection.Inspector``. Changes nothing.
    ``evidence_of``: what the target has of epochs, see ``StagedSink``.
    """

    def __init__(self, target: StagedTarget, evidence_of: EvidenceOf) -> None:
        self.staging = target.staging
        self._participant = StagedParticipant(target)
        self._evidence_of = evidence_of

    def list_open(self) -> Sequence[TransactionView]:
        return [self._waiting(name, files) for name, files in self._open().items()]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """By the files first: they go after the target has their rows, or into it."""
        if not prepared:
            return []
        epoch = StagedEpoch.of(prepared)
        there = self._open()
        state, text = SAYS[self._participant.target.published(epoch)]
        views = {
            part.name.identity: self._waiting(part.name, there[part.name])
            if part.name in there
            else self._view(part.name, state, text)
            for part in epoch.parts
        }
        return [views[p.identity].of_record(p, epoch.batch_id, epoch.attempt) for p in prepared]

    def evidence(
        self, promises: Sequence[Promise], onwards: Callable[[], Sequence[Promise]]
    ) -> Sequence[Evidence]:
        return self._evidence_of(self, promises)

    def participant(self) -> StagedParticipant:
        return self._participant

    def _open(self) -> Mapping[StagedName, Sequence[Entry]]:
        """Of batches that are not visible yet, or not any more; others are kept for a while."""
        return self.staging.listing().staged(self._participant.settled_to())

    def _waiting(self, name: StagedName, files: Sequence[Entry]) -> TransactionView:
        is_half = any(file.name.endswith(UNFINISHED) for file in files)
        size = sum(file.size for file in files)
        first = self.staging.shown(min(file.name for file in files))
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        further = self._participant.target.waiting(name)
        return self._view(
            name,
            TransactionState.OPEN if is_half else TransactionState.PREPARED,
            *filter(None, (f"staged in {first}{more}, {size:,} bytes", further)),
            began_ms=max(file.modified_ms for file in files),
        )

    def _view(
        self, name: StagedName, state: TransactionState, *texts: str, began_ms: int | None = None
    ) -> TransactionView:
        return TransactionView(
            self.name,
            name.identity,
            self.staging.scope.query_id,
            name.incarnation,
            state,
            began_ms,
            batch_id=name.batch_id,
            attempt=name.attempt,
            details=texts,
        )
