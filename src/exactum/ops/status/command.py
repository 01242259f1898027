"""``exactum status``: the command."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from exactum.monitor.verdict import FRESH_MS, Verdict
from exactum.monitor.words import clock, duration, millis
from exactum.ops import render
from exactum.ops.render import Cell, ExitStatus
from exactum.ops.status.query_status import QueryStatus, checkpoints_below, status_of
from exactum.ops.targets.options import JSON

POLL_S = 0.25
COLOURS = {
    Verdict.OK: render.GREEN,
    Verdict.SLOW: render.YELLOW,
    Verdict.HELD_UPSTREAM: render.YELLOW,
    Verdict.STALLED: render.RED,
    Verdict.IN_DOUBT: render.RED,
    Verdict.DOWN: render.RED,
}
IN_TABLE = ("micro-batches", "lag", "run by")


@click.command()
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR",
    help="A query's checkpointLocation; may be given several times. By default those in this "
    "folder.",
)
@click.option(
    "--decision-log",
    metavar="PLACE",
    help="Where the queries' decisions are, if they were given decision_log=.",
)
@click.option(
    "--wait-ready",
    "wait_ready_s",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Wait for so long until every query is OK or SLOW, and has completed a micro-batch or "
    "found nothing to read.",
)
@JSON
def status(
    *,
    checkpoints: tuple[str, ...],
    decision_log: str | None,
    wait_ready_s: float | None,
    as_json: bool,
) -> None:
    """Say how queries are: OK, SLOW, STALLED, HELD UPSTREAM, IN DOUBT or DOWN; why; what to do.

    Everything is read from the checkpoints, without Spark, servers or passwords. The drivers may be
    dead. Nothing is changed.

    Exit status 0: every query is OK or SLOW. 1: one is not, or not ready in time. 2: of one it
    cannot be told.
    """
    chosen = checkpoints or tuple(checkpoints_below(Path.cwd()))
    if not chosen:
        click.echo(
            "exactum: there is no checkpoint in this folder. Say which one: --checkpoint DIR.",
            err=True,
        )
        sys.exit(ExitStatus.CANNOT_TELL)
    deadline_s = time.monotonic() + (wait_ready_s or 0.0)
    found = _look(chosen, decision_log)
    while not all(one.is_ready for one in found) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        found = _look(chosen, decision_log)
    exit_status = render.worst(one.exit_status for one in found)
    if wait_ready_s is not None and not all(one.is_ready for one in found):
        click.echo(f"exactum: not ready within {wait_ready_s:g} s.", err=True)
        exit_status = exit_status or ExitStatus.NEEDS_PERSON
    if as_json:
        render.show_json({"status": exit_status, "queries": [one.to_json() for one in found]})
    else:
        _show(found)
    sys.exit(exit_status)


def _look(checkpoints: tuple[str, ...], decision_log: str | None) -> list[QueryStatus]:
    return [status_of(checkpoint, decision_log) for checkpoint in checkpoints]


# ---- what is shown ---------------------------------------------------------------------------


def _show(found: list[QueryStatus]) -> None:
    """On a terminal a table first; then of each query a line with its verdict, and what belongs to
    it.
    """
    has_table = render.is_terminal()
    if has_table:
        rows = [
            (each.name, Cell(_word(each), _colour(each)), _batches(each), _lag(each), _runs(each))
            for each in found
        ]
        render.show_table(("query", "verdict", *IN_TABLE), rows)
    for each in found:
        reason = each.trouble if each.judgement is None else each.judgement.reason
        click.secho(f"{each.name}: {_word(each)}. {reason}", bold=True)
        for name, value in _details(each):
            if not has_table or name not in IN_TABLE:
                click.echo(f"  {name}: {value}")


def _details(status: QueryStatus) -> Iterator[tuple[str, str]]:
    if status.judgement is not None and status.judgement.todo:
        yield "what to do", status.judgement.todo
    state = status.state
    if state is not None:
        yield "micro-batches", _batches(status)
        if status.lag is not None:
            yield "lag", _lag(status)
        yield "run by", _runs(status)
        failure = state.stats.last_failure
        if failure is not None:
            text = " ".join((failure.reason or failure.error).split())
            yield "last failure", f"{clock(failure.at_ms)}, {text}"
        said = state.undecided_why if state.planned != state.completed else ""
        yield from (("not known", each) for each in state.troubles if each != said)
    yield "checkpoint", status.checkpoint


def _word(status: QueryStatus) -> str:
    return "UNKNOWN" if status.judgement is None else status.judgement.verdict.value


def _colour(status: QueryStatus) -> str:
    return render.MAGENTA if status.judgement is None else COLOURS[status.judgement.verdict]


def _batches(status: QueryStatus) -> str:
    state = status.state
    if state is None:
        return "-"
    text = "none complete" if state.completed is None else f"last complete {state.completed}"
    if state.planned is None or state.planned == state.completed:
        return text
    if state.undecided_why:
        why = f"whether it is decided is not known: {state.undecided_why}"
        return f"{text}; {state.planned} begun, {why}"
    how = "decided" if state.decided == state.planned else "begun, not decided"
    return f"{text}; {state.planned} {how}"


def _lag(status: QueryStatus) -> str:
    lag = status.lag
    if lag is None:
        return "-"
    age = "" if lag.seconds is None or not lag.records else f", {duration(lag.seconds)}"
    seen_ms = status.at_ms - lag.at_ms
    seen = f", as of {millis(seen_ms)} ago" if seen_ms > FRESH_MS else ""
    return f"{lag.records:,} offsets{age}{seen}"


def _runs(status: QueryStatus) -> str:
    living = () if status.state is None else status.state.living
    found = [f"process {run.pid} on {run.host} since {clock(run.started_ms)}" for run in living]
    return ", ".join(found) or "nobody"
