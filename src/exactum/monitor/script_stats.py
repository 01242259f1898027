"""All queries of one process or one supervised script, by their facts. Safe to use from threads."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from exactum.monitor.fact import Fact
from exactum.monitor.query_stats import QueryStats

logger = logging.getLogger("exactum")

SILENT_MAX_S = 15.0
"""A process that was not heard of for longer is taken for frozen."""
QUERIES_MAX = 200
"""Queries that are remembered; those heard of longest ago go, unless they run."""


class ScriptStats:
    """Fed by a ``Recorder``; a supervisor feeds it from its channel as well."""

    def __init__(self) -> None:
        self.queries: dict[str, QueryStats] = {}
        self._lock = threading.Lock()

    def observe(self, fact: Fact) -> None:
        """Take a fact; those without a query change nothing here."""
        if not fact.query_id:
            return
        with self._lock:
            query = self.queries.get(fact.query_id)
            if query is None:
                self._make_room()
                query = self.queries[fact.query_id] = QueryStats(fact.query_id)
            try:
                query.observe(fact)
            except (KeyError, TypeError, ValueError) as error:
                # It came from another process: a picture that lacks it is better than none.
                logger.warning("%s of query %s is not shown: %r", fact.name, fact.query_id, error)

    def known(self) -> list[str]:
        """The ids of the queries, oldest first."""
        with self._lock:
            return [*self.queries]

    def copy_of(self, query_id: str) -> QueryStats:
        """The query's numbers as they are now; those of a query that is not known are empty."""
        with self._lock:
            found = self.queries.get(query_id)
            return QueryStats(query_id) if found is None else found.copy()

    def _make_room(self) -> None:
        while len(self.queries) >= QUERIES_MAX:
            resting = [q for q in self.queries.values() if not q.is_running]
            oldest = min(resting or self.queries.values(), key=lambda q: q.observed_ms or 0)
            del self.queries[oldest.query_id]


@dataclass(frozen=True)
class ScriptState:
    """What ``exactum run`` does with its script, at one moment.

    ``pid`` is the process that runs the queries, None while there is none. ``silent_s``: for how
    long nothing was heard of it; it says something twice a second, once it has imported exactum,
    and is None before. ``has_begun``: a query of it has begun. ``has_standby``: whether a standby
    waits for its turn, None where none is asked for. ``dropped``: events that could not be told to
    the supervisor, of all processes until now.
    """

    restarts: int = 0
    pid: int | None = None
    silent_s: float | None = None
    has_begun: bool = False
    has_standby: bool | None = None
    dropped: int = 0

    @property
    def unready(self) -> str:
        """Why no query can be ready, or nothing."""
        if self.pid is None:
            return "No process runs: the script has ended, or is about to be started again."
        if self.silent_s is not None and self.silent_s > SILENT_MAX_S:
            return f"Process {self.pid} has not been heard of for {self.silent_s:.0f} s."
        if not self.has_begun:
            return f"Process {self.pid} has not begun a query yet."
        return ""
