"""A batch load as who keeps decisions knows it: a query of one batch, without a checkpoint."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BATCH = 0
"""Its only one."""


@dataclass(frozen=True)
class BatchLoad:
    """The load that a user calls ``id``. As ``decision_place.HasCheckpoint`` has it, of none."""

    id: str
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)
    checkpoint: str = ""
    folder: Path | None = None

    @property
    def query_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"exactum:load:{self.id}"))

    def __str__(self) -> str:
        return f"load {self.id!r}"
