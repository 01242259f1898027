"""Whether queries are ready: what a readiness probe asks."""

from __future__ import annotations

from collections.abc import Mapping

from exactum.monitor.query_stats import QueryStats
from exactum.monitor.script_stats import ProcessView
from exactum.monitor.verdict import verdict_of

SILENT_MAX_S = 15.0
"""A process that was not heard of for longer is taken for frozen."""


def unready(
    queries: Mapping[str, QueryStats], now_ms: int, process: ProcessView | None = None
) -> list[str]:
    """Why not every query is OK or SLOW, a sentence each; empty where all are.

    ``process``: where there is a supervisor, what it sees. A query that was stopped, or has read
    all that it was to read, does not count.
    """
    if process is not None:
        why = _process_unready(process)
        if why:
            return [why]
    if not queries:
        return ["No query has begun."]
    found = [(one, verdict_of(one, now_ms)) for one in queries.values() if not one.has_stopped]
    return [
        f"Query {one.label} is {own.verdict.value}. {own.reason}"
        for one, own in found
        if not own.verdict.is_working
    ]


def _process_unready(process: ProcessView) -> str:
    if process.pid is None:
        return "No process runs: the script has ended, or is about to be started again."
    if process.silent_s is not None and process.silent_s > SILENT_MAX_S:
        return f"Process {process.pid} has not been heard of for {process.silent_s:.0f} s."
    if not process.has_begun:
        return f"Process {process.pid} has not begun a query yet."
    return ""
