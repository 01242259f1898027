"""What an operator sees of a file sink's transactions: stagings, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.files.participant import FileParticipant
from exactum.files.place import FilePlace, StagedFolder
from exactum.files.transaction import MANIFEST, FileTransaction, read_manifest
from exactum.protocol.inspection import TransactionState, TransactionView
from exactum.protocol.model import Incarnation, PreparedTransaction


class FileInspector:
    """Of one sink of one query; see ``protocol.inspection.Inspector``."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place

    @property
    def name(self) -> str:
        return self._place.scope.participant

    def list_open(self) -> Sequence[TransactionView]:
        return [
            self._view(
                staging.identity, staging.incarnation, TransactionState.OPEN, self._at_hand(staging)
            )
            for staging in self._place.stagings()
        ]

    def describe(self, prepared: Sequence[PreparedTransaction]) -> Sequence[TransactionView]:
        """Staged first, published second: a file moves only that way."""
        return [self._of_record(p, FileTransaction.of(p)) for p in prepared]

    def participant(self) -> FileParticipant:
        return FileParticipant(self._place)

    def close(self) -> None:
        """Nothing is held open between calls."""

    def _of_record(
        self, prepared: PreparedTransaction, transaction: FileTransaction
    ) -> TransactionView:
        staged = [n for n in self._place.staged(transaction.staging) if n != MANIFEST]
        files = transaction.files
        if files is None:
            content = self._place.storage.read(self._place.path(transaction.staging, MANIFEST))
            files = None if content is None else read_manifest(content, transaction.where)
        targets = [] if files is None else [m.target for m in transaction.moves(files)]
        published = self._place.storage.existing(targets)
        highest = self._place.highest_mark()
        if staged:
            state = TransactionState.PREPARED
        elif targets and len(published) == len(targets):
            state = TransactionState.COMMITTED
        elif highest is not None and highest >= transaction.batch_id:
            state = TransactionState.COMMITTED  # published, and taken away by somebody since
        else:
            state = TransactionState.GONE
        details = (
            f"{len(staged)} of {transaction.count} files staged, {len(published)} published",
            f"the highest batch that is marked as published is {highest}",
            f"at {self._place.where}",
        )
        identity, incarnation = prepared.identity, transaction.staging.incarnation
        return self._view(
            identity, incarnation, state, (self._place.written_ms(transaction.staging), details)
        )

    def _at_hand(self, staging: StagedFolder) -> tuple[int | None, tuple[str, ...]]:
        sizes = self._place.staged(staging)
        folder = f"{self._place.where}/{self._place.path(staging)}"
        text = f"{len(sizes)} files, {sum(sizes.values()):,} bytes in {folder}"
        return self._place.written_ms(staging), (text,)

    def _view(
        self,
        identity: str,
        incarnation: Incarnation,
        state: TransactionState,
        at_hand: tuple[int | None, tuple[str, ...]],
    ) -> TransactionView:
        written_ms, details = at_hand
        return TransactionView(
            self.name,
            identity,
            self._place.scope.query_id,
            incarnation,
            state,
            written_ms,
            details=details,
        )
