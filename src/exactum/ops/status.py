"""``exactum status``: how queries are, by their checkpoints alone, whether their drivers live or
not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from exactum.checkpoint.savepoint.manifest import MANIFEST
from exactum.monitor.job import JobState, read_job
from exactum.monitor.verdict import Judgement, Verdict, judge
from exactum.monitor.words import clock, duration, millis
from exactum.ops import render
from exactum.ops.render import Cell, ExitStatus
from exactum.ops.targets.options import DECISION_LOG, JSON, with_password

FOUND_MAX = 200
POLL_S = 0.25
ERROR_SHOWN_AT_LEAST = 100
"""An error that begins like one that was shown is not shown again."""
COLOURS = {
    Verdict.OK: render.GREEN,
    Verdict.SLOW: render.YELLOW,
    Verdict.HELD_UPSTREAM: render.YELLOW,
    Verdict.STALLED: render.RED,
    Verdict.IN_DOUBT: render.RED,
    Verdict.DOWN: render.RED,
    Verdict.UNKNOWN: render.MAGENTA,
}
IN_TABLE = ("micro-batches", "lag", "run by")
JudgedJob = tuple[JobState, Judgement]


@click.command()
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    metavar="DIR",
    help="A query's checkpointLocation; may be given several times. By default those in this "
    "folder.",
)
@DECISION_LOG
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
    decision_log = with_password(decision_log)
    found = _read(chosen, decision_log)
    while not all(map(_is_ready, found)) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        found = _read(chosen, decision_log)
    exit_status = render.worst(render.status_of_job(own) for _, own in found)
    if wait_ready_s is not None and not all(map(_is_ready, found)):
        click.echo(f"exactum: not ready within {wait_ready_s:g} s.", err=True)
        exit_status = exit_status or ExitStatus.NEEDS_PERSON
    if as_json:
        queries = [render.job_value(job) for job, _ in found]
        render.show_json({"status": exit_status, "queries": queries})
    else:
        _show(found)
    sys.exit(exit_status)


def _read(checkpoints: tuple[str, ...], decision_log: str | None) -> list[JudgedJob]:
    jobs = [read_job(checkpoint, decision_log) for checkpoint in checkpoints]
    return [(job, judge(job)) for job in jobs]


def _is_ready(found: JudgedJob) -> bool:
    """It works, and has shown that since its start."""
    job, judgement = found
    return judgement.verdict.is_working and job.has_begun


def checkpoints_below(folder: Path) -> list[str]:
    """The checkpoints that are this folder or lie in it, or in a folder of it."""
    found = [
        metadata.parent
        for pattern in ("metadata", "*/metadata", "*/*/metadata")
        for metadata in sorted(folder.glob(pattern))
        if (metadata.parent / "offsets").is_dir()
        and not (metadata.absolute().parents[1] / MANIFEST).exists()  # a savepoint's
    ]
    return [str(path) for path in found[:FOUND_MAX]]


# ---- what is shown ---------------------------------------------------------------------------


def _show(found: list[JudgedJob]) -> None:
    """On a terminal a table first; then of each query a line with its verdict, and what belongs to
    it.
    """
    has_table = render.is_terminal()
    if has_table:
        rows = [
            (
                job.name,
                Cell(own.verdict.value, COLOURS[own.verdict]),
                _batches(job),
                _lag(job),
                _runs(job),
            )
            for job, own in found
        ]
        render.show_table(("query", "verdict", *IN_TABLE), rows)
    for job, own in found:
        click.secho(f"{job.name}: {own.verdict.value}. {own.reason}", bold=True)
        for name, value in _details(job, own):
            if not has_table or name not in IN_TABLE:
                click.echo(f"  {name}: {value}")


def _details(job: JobState, own: Judgement) -> Iterator[tuple[str, str]]:
    if own.todo:
        yield "what to do", own.todo
    if job.stats.query_id:
        yield "micro-batches", _batches(job)
        if job.stats.lags:
            yield "lag", _lag(job)
        yield "run by", _runs(job)
    failure = job.stats.last_failure
    if failure is not None:
        text = " ".join((failure.reason or failure.error).split())
        is_said = text[:ERROR_SHOWN_AT_LEAST] in own.reason
        since = " and it has worked since:" if job.stats.has_recovered else ""
        text = "as above" if is_said else text
        yield "last failure", f"{clock(failure.at_ms)},{since} {text}"
    said = f"{own.reason} {own.todo}"
    yield from (("not known", each) for each in job.problems if each not in said)
    yield "checkpoint", job.checkpoint


def _batches(job: JobState) -> str:
    if not job.stats.query_id:
        return "-"
    text = "none complete" if job.completed is None else f"last complete {job.completed}"
    if job.planned is None or job.planned == job.completed:
        return text
    if job.undecided_why:
        return f"{text}; {job.planned} begun, whether it is decided is not known"
    how = "decided" if job.decided == job.planned else "begun, not decided"
    return f"{text}; {job.planned} {how}"


def _lag(job: JobState) -> str:
    if not job.stats.lags:
        return "-"
    lag = job.stats.lags[-1]
    age = "" if lag.seconds is None or not lag.records else f", {duration(lag.seconds)}"
    is_past = job.stats.is_past(lag.at_ms, job.at_ms)
    seen = f", as of {millis(max(0, job.at_ms - lag.at_ms))} ago" if is_past else ""
    rest = f"; not counted: {', '.join(job.stats.not_counted)}" if job.stats.not_counted else ""
    return f"{lag.records:,} offsets{age}{seen}{rest}"


def _runs(job: JobState) -> str:
    found = [f"process {run.pid} on {run.host} since {clock(run.started_ms)}" for run in job.runs]
    return ", ".join(found) or "nobody"
