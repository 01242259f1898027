"""What ``exactum status`` prints for people: a table on a terminal, lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from exactum.monitor.verdict import FRESH_MS, Verdict, span
from exactum.ops.status.query_status import QueryStatus

UNKNOWN = "UNKNOWN"
COLOURS = {
    Verdict.OK: "green",
    Verdict.SLOW: "yellow",
    Verdict.HELD_UPSTREAM: "yellow",
    Verdict.STALLED: "red",
    Verdict.IN_DOUBT: "red",
    Verdict.DOWN: "red",
}


def show(statuses: Sequence[QueryStatus], echo: Callable[[str], None]) -> None:
    """Print them. Only a terminal gets a table, which takes a moment to import."""
    if sys.stdout.isatty():
        _table(statuses)
        return
    for status in statuses:
        for line in lines(status):
            echo(line)


def lines(status: QueryStatus) -> list[str]:
    """One query: a line that begins with its name and its verdict, and what belongs to it."""
    found = [f"{status.name}: {_word(status)}. {_reason(status)}"]
    if status.judgement is not None and status.judgement.todo:
        found.append(f"  what to do: {status.judgement.todo}")
    state = status.state
    if state is not None:
        found.append(f"  micro-batches: {_batches(status)}")
        if status.lag is not None:
            found.append(f"  lag: {_lag(status)}")
        found.append(f"  run by: {_runs(status)}")
        failure = state.stats.last_failure
        if failure is not None:
            text = " ".join((failure.reason or failure.error).split())
            found.append(f"  last failure: {_when(failure.at_ms)}, {text}")
        told = {state.undecided_why} if state.planned != state.completed else set()
        found += [f"  not known: {each}" for each in state.troubles if each not in told]
    found.append(f"  checkpoint: {status.checkpoint}")
    return found


def _table(statuses: Sequence[QueryStatus]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table()
    for heading in ("query", "verdict", "micro-batches", "lag", "run by"):
        table.add_column(heading)
    for status in statuses:
        verdict = None if status.judgement is None else status.judgement.verdict
        colour = "" if verdict is None else COLOURS[verdict]
        word = Text(_word(status), f"bold {colour}".strip())
        table.add_row(Text(status.name), word, _batches(status), _lag(status), _runs(status))
    console.print(table)
    for status in statuses:
        name, *rest = lines(status)
        console.print(Text(name, "bold"))
        for line in rest:
            if not line.startswith(("  micro-batches:", "  lag:", "  run by:")):
                console.print(Text(line))


def _word(status: QueryStatus) -> str:
    return UNKNOWN if status.judgement is None else status.judgement.verdict.value


def _reason(status: QueryStatus) -> str:
    return status.trouble if status.judgement is None else status.judgement.reason


def _batches(status: QueryStatus) -> str:
    state = status.state
    if state is None:
        return "-"
    parts = ["none complete" if state.completed is None else f"last complete {state.completed}"]
    if state.planned is not None and state.planned != state.completed:
        if state.undecided_why:
            parts.append(
                f"{state.planned} begun, whether it is decided is not known: {state.undecided_why}"
            )
        else:
            is_decided = state.decided == state.planned
            parts.append(f"{state.planned} {'decided' if is_decided else 'begun, not decided'}")
    return "; ".join(parts)


def _lag(status: QueryStatus) -> str:
    if status.lag is None:
        return "-"
    records, seconds = status.lag
    age = "" if seconds is None or not records else f", {span(round(seconds * 1000))}"
    seen_ms = status.at_ms - (status.lag_at_ms or status.at_ms)
    seen = f", as of {span(seen_ms)} ago" if seen_ms > FRESH_MS else ""
    return f"{records:,} offsets{age}{seen}"


def _runs(status: QueryStatus) -> str:
    living = () if status.state is None else status.state.living
    found = [f"process {run.pid} on {run.host} since {_when(run.started_ms)}" for run in living]
    return ", ".join(found) or "nobody"


def _when(at_ms: int) -> str:
    """As the clock here shows it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))
