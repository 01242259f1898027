"""Targets that cannot say which batch they have."""

from __future__ import annotations

from collections.abc import Sequence

from exactum.protocol.model import PreparedTransaction
from exactum.sinks.staged import Published, StagedEpoch, StagedTarget
from exactum.sinks.staging import Staging


class NotedTarget(StagedTarget):
    """A target that keeps no marker of its own: the marker is the staging's note, which ``publish``
    makes when all rows are in.
    """

    def __init__(self, staging: Staging) -> None:
        self.staging = staging

    def last_batch(self, committed: Sequence[PreparedTransaction] = ()) -> int | None:
        return self.staging.published()

    def forget_batches(self, first: int = 0) -> None:
        self.staging.forget_published()

    def published(self, epoch: StagedEpoch) -> Published:
        noted = self.staging.published()
        is_there = noted is not None and noted >= epoch.batch_id
        return Published.BEFORE if is_there else Published.MISSING
