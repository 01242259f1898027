"""Writes what a process hears of its queries into their histories."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exactum.monitor.fact import Fact
from exactum.monitor.history import HistoryWriter

logger = logging.getLogger("exactum")

NOT_KEPT = frozenset({"EpochBegan", "EpochDecided"})
"""Facts of each epoch that say nothing once it is completed; the decision log has the decision."""
PROGRESS_EVERY_MS = 10_000
"""Reports of a fast query come twice in five seconds; one of them in this time is kept."""
LETTERS_MAX = 2_000
"""Longest text of a fact that is kept."""


class HistoryOutlet:
    """An outlet of a ``Recorder``. Queries that it was not told of by ``begin`` are not written."""

    def __init__(self) -> None:
        self._queries: dict[str, _QueryHistory] = {}

    def __str__(self) -> str:
        return "the history could not be written"

    def begin(self, query_id: str, checkpoint: Path) -> None:
        """From now on the query's facts go beside this checkpoint."""
        known = self._queries.get(query_id)
        if known is None or known.checkpoint != checkpoint:
            self._queries = {
                **self._queries,
                query_id: _QueryHistory(checkpoint),
            }

    def take(self, facts: Sequence[Fact]) -> None:
        """See ``recorder.Outlet``.

        Raises:
            OSError: of the first query that could not be written; the others are.
        """
        troubles: list[OSError] = []
        for query_id, history in self._queries.items():
            try:
                history.take([fact for fact in facts if fact.query_id == query_id])
            except OSError as error:
                troubles.append(error)
        if troubles:
            raise troubles[0]


class _QueryHistory:
    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._writer = HistoryWriter(checkpoint)
        self._progress_ms = 0

    def take(self, facts: Sequence[Fact]) -> None:
        kept: list[Fact] = []
        for fact in facts:
            if fact.name == "Progress":
                if fact.at_ms - self._progress_ms < PROGRESS_EVERY_MS:
                    continue
                self._progress_ms = fact.at_ms
            if fact.name not in NOT_KEPT:
                kept.append(Fact(fact.at_ms, fact.name, _short(fact.fields)))
        self._writer.write(kept)


def _short(value: Any) -> Any:
    """A value of JSON without texts that fill a file."""
    if isinstance(value, str) and len(value) > LETTERS_MAX:
        return f"{value[:LETTERS_MAX]} [cut: {len(value) - LETTERS_MAX:,} more characters]"
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    return value


HISTORY = HistoryOutlet()
"""Of this process."""
