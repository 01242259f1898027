"""What belongs to one sink of one query in its target. Each kind of target makes names of its own
of it: transactional ids, gids, table names, folders.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Scope:
    """Everything that one participant of one query may open, over all incarnations. Two scopes
    never share a name in a target.
    """

    query_id: str
    participant: str

    @property
    def digest(self) -> str:
        """SHA-256 of both, 64 hexadecimal digits. Names in targets are made of it: it never
        changes.
        """
        return hashlib.sha256(json.dumps([self.query_id, self.participant]).encode()).hexdigest()
