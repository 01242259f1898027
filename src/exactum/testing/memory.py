"""A decision log in memory, and the permits that it grants. Storage outlives an incarnation; a log
belongs to one.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import RLock

from exactum.errors import CheckpointRefused, Fenced
from exactum.protocol.decision_log import PermitLog
from exactum.protocol.model import CommitPermit, DecisionRecord

# ---- decision log --------------------------------------------------------------------------------


@dataclass
class MemoryStorage:
    """What every incarnation's ``MemoryDecisionLog`` shares. ``floor``: batches below it are
    pruned.
    """

    records: dict[tuple[str, int, int], DecisionRecord] = field(default_factory=dict)
    floor: int = 0
    log_id: str | None = None
    lock: RLock = field(default_factory=RLock, repr=False)


class MemoryDecisionLog:
    """The decision log of one query over a shared ``MemoryStorage``."""

    def __init__(self, storage: MemoryStorage, query_id: str) -> None:
        self._storage = storage
        self._query_id = query_id

    def read(self, batch_id: int) -> Sequence[DecisionRecord]:
        """See the port. Raises ``CheckpointRefused`` for a pruned batch."""
        with self._storage.lock:
            if batch_id < self._storage.floor:
                raise CheckpointRefused(
                    "LOG_PRUNED", f"Batch {batch_id} is pruned; the floor is {self._storage.floor}."
                )
            records: list[DecisionRecord] = []
            while recorded := self._storage.records.get((self._query_id, batch_id, len(records))):
                records.append(recorded)
            return tuple(records)

    def decide(self, record: DecisionRecord) -> DecisionRecord:
        """See the port."""
        slot = (record.epoch.query_id, record.epoch.batch_id, record.attempt)
        with self._storage.lock:
            if record.epoch.batch_id < self._storage.floor:
                raise Fenced(f"{record.epoch} is pruned; the floor is {self._storage.floor}.")
            self._storage.log_id = self._storage.log_id or secrets.token_hex(8)
            return self._storage.records.setdefault(slot, record)

    def log_id(self) -> str | None:
        """See ``Identified``."""
        return self._storage.log_id

    def prune(self, below_batch_id: int) -> int:
        """See the port. Works at once, on every call."""
        with self._storage.lock:
            self._storage.floor = max(self._storage.floor, below_batch_id)
            doomed = [
                s for s in self._storage.records if s[0] == self._query_id and s[1] < below_batch_id
            ]
            for slot in doomed:
                del self._storage.records[slot]
            return len(doomed)

    def close(self) -> None:
        """Nothing to let go of."""


def permit_of(record: DecisionRecord) -> CommitPermit:
    """The permit for a record that stands in a log of its own, read back from its text as another
    process would.

    Raises:
        InvariantBroken: it is an ABORT.
    """
    text = json.dumps(record.to_json())
    in_force = PermitLog(MemoryDecisionLog(MemoryStorage(), record.epoch.query_id))
    return in_force.permit(in_force.decide(DecisionRecord.from_json(json.loads(text), "memory")))
