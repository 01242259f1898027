"""What the supervisor knows of its script, as facts: heard from the script, and seen by itself.

What the script has told is in the query's history already, for the script writes that; what the
supervisor saw (deaths, restarts, takeovers) is written by it, into the history of each query that
the script has told of.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from exactum.checkpoint.offset_log import local_folder
from exactum.monitor.fact import Fact
from exactum.monitor.recorder import Recorder
from exactum.monitor.script_stats import ScriptState
from exactum.monitor.words import now_ms
from exactum.ops.run.child import Child
from exactum.ops.run.ending import Ending
from exactum.storage.folder import Folder


class ScriptFacts:
    """Used by the supervisor's thread; ``stats``, ``state`` and ``silent_s`` by others, too.
    ``standby``: one is asked for.
    """

    def __init__(self, *, standby: bool) -> None:
        self._standby = standby
        self._state = ScriptState(has_standby=False if standby else None)
        self._observed_s: float | None = None
        self._looked_s = time.monotonic()
        self._dropped: dict[int, int] = {0: 0}  # of the last process, and of all before it
        self._recorder = Recorder()
        self.stats = self._recorder.stats
        self._disposition = ""  # of the error with which the last process ended

    def looked(self, active: Child | None, standby: Child | None) -> None:
        """The supervisor has looked at its processes, as it does several times a second."""
        if active is not None:
            if active.pid not in self._dropped:
                self._dropped = {0: sum(self._dropped.values())}
            self._dropped[active.pid] = active.dropped
        is_ready = standby is not None and standby.ready
        self._observed_s = active.observed_s if active is not None and active.joined else None
        self._state = replace(
            self._state,
            pid=None if active is None else active.pid,
            has_begun=active is not None and active.began,
            has_standby=is_ready if self._standby else None,
            dropped=sum(self._dropped.values()),
        )
        self._looked_s = time.monotonic()

    def state(self) -> ScriptState:
        """What the supervisor sees of its processes."""
        observed_s = self._observed_s
        silent_s = None if observed_s is None else max(0.0, time.monotonic() - observed_s)
        return replace(self._state, silent_s=silent_s)

    def silent_s(self) -> float:
        """For how long the supervisor has not looked at its processes."""
        return time.monotonic() - self._looked_s

    def observed(self, name: str, fields: Mapping[str, Any]) -> None:
        """An event of a query, as the script has told it."""
        self.stats.observe(Fact(now_ms(), name, fields))
        if name in ("RunStarted", "QueryWaits"):
            folder = local_folder(str(fields["checkpoint"]))
            if folder is not None and folder.is_dir():
                self._recorder.begin(str(fields["query_id"]), Folder(folder))

    def saw(self, name: str, query_id: str | None = None, **fields: Any) -> None:
        """One of ``SUPERVISOR_FACTS``, of one query or of all that the script has told of."""
        queries = [*self.stats.queries] if query_id is None else [query_id]
        for each in queries:
            self._recorder.put(Fact(now_ms(), name, {"query_id": each, **fields}))

    def ended(self, pid: int, how: Ending) -> None:
        """The process that had the turn has ended."""
        self._disposition = how.disposition
        for query_id in self.stats.known():
            self.saw(
                "ProcessEnded",
                query_id,
                pid=pid,
                meaning=how.meaning.value,
                error=how.error,
                disposition=how.disposition,
                text=how.text,
                is_own=how.of is None or query_id in how.of,
            )

    def restarts(self, delay_s: float) -> None:
        self.saw("ProcessRestarts", delay_s=delay_s, disposition=self._disposition)

    def takes_over(self, pid: int) -> None:
        self.saw("ProcessTakesOver", pid=pid, disposition=self._disposition)

    def failed(self) -> None:
        """The script is to be started again."""
        self._state = replace(self._state, restarts=self._state.restarts + 1)

    def close(self, state: str) -> None:
        """The supervisor ends so. What was seen last is written."""
        self.saw("SupervisorEnds", status=state)
        self._recorder.flush()
