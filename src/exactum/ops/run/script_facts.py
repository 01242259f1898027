"""What the supervisor knows of its script, as facts: heard from the script, and seen by itself.

What the script has told is in the query's history already, for the script writes that; what the
supervisor saw (deaths, restarts, takeovers) is written by it, into the history of each query that
the script has told of.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from exactum.checkpoint.offset_log import local_folder
from exactum.monitor.fact import Fact
from exactum.monitor.history_outlet import HistoryOutlet
from exactum.monitor.recorder import Recorder
from exactum.monitor.script_stats import ScriptStats
from exactum.ops.run.ending import Ending


class ScriptFacts:
    """Used by the supervisor's thread; ``stats`` may be read by others."""

    def __init__(self, stats: ScriptStats | None = None) -> None:
        self.stats = stats if stats is not None else ScriptStats()
        self._history = HistoryOutlet(minutes=False)
        self._recorder = Recorder()
        self._disposition = ""  # of the error with which the last process ended

    def heard(self, name: str, fields: Mapping[str, Any]) -> None:
        """An event of a query, as the script has told it."""
        self.stats.hear(Fact(_now_ms(), name, fields))
        if name == "RunStarted":
            folder = local_folder(str(fields["checkpoint"]))
            if folder is not None and folder.is_dir():
                self._history.begin(str(fields["query_id"]), folder)
                self._recorder.add(self._history)

    def saw(self, name: str, query_id: str | None = None, **fields: Any) -> None:
        """One of ``SUPERVISOR_FACTS``, of one query or of all that the script has told of."""
        queries = [*self.stats.queries] if query_id is None else [query_id]
        for each in queries:
            fact = Fact(_now_ms(), name, {"query_id": each, **fields})
            self.stats.hear(fact)
            self._recorder.put(fact)

    def ended(self, pid: int, how: Ending) -> None:
        """The process that had the turn has ended."""
        self._disposition = how.disposition
        self.saw(
            "ProcessEnded",
            pid=pid,
            meaning=how.meaning.value,
            error=how.error,
            disposition=how.disposition,
            text=how.text,
        )

    def restarts(self, delay_s: float) -> None:
        self.saw("ProcessRestarts", delay_s=delay_s, disposition=self._disposition)

    def takes_over(self, pid: int) -> None:
        self.saw("ProcessTakesOver", pid=pid, disposition=self._disposition)

    def finished(self, fields: Mapping[str, Any]) -> None:
        """The commit worker's answer: what of a query's decided epochs stands now."""
        self.saw(
            "DecidedFinished",
            str(fields["query_id"]),
            batch_ids=fields["batches"],
            transactions=fields["transactions"],
            rows=fields["rows"],
            left=fields["left"],
            troubles=fields["troubles"],
        )

    def failed(self) -> None:
        """The script is to be started again."""
        self.stats.restarts += 1
        self.stats.state = "restarting"

    def close(self, state: str) -> None:
        """The supervisor ends so. What was seen last is written."""
        self.stats.state = state
        self.saw("SupervisorEnds", status=state)
        self._recorder.flush()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
