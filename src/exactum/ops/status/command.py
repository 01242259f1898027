"""``exactum status``: the command."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from exactum.ops.status.query_status import (
    NOT_WORKING,
    UNKNOWN,
    QueryStatus,
    checkpoints_below,
    exit_status_of,
    status_of,
)
from exactum.ops.targets.options import JSON

POLL_S = 0.25


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
    from exactum.ops.status.show import show

    chosen = checkpoints or tuple(checkpoints_below(Path.cwd()))
    if not chosen:
        click.echo(
            "exactum: there is no checkpoint in this folder. Say which one: --checkpoint DIR.",
            err=True,
        )
        sys.exit(UNKNOWN)
    deadline_s = time.monotonic() + (wait_ready_s or 0.0)
    found = _look(chosen, decision_log)
    while not all(one.is_ready for one in found) and time.monotonic() < deadline_s:
        time.sleep(POLL_S)
        found = _look(chosen, decision_log)
    exit_status = exit_status_of(found)
    if wait_ready_s is not None and not all(one.is_ready for one in found):
        click.echo(f"exactum: not ready within {wait_ready_s:g} s.", err=True)
        exit_status = exit_status or NOT_WORKING
    if as_json:
        click.echo(
            json.dumps(
                {"status": exit_status, "queries": [one.to_json() for one in found]}, indent=1
            )
        )
    else:
        show(found, click.echo)
    sys.exit(exit_status)


def _look(checkpoints: tuple[str, ...], decision_log: str | None) -> list[QueryStatus]:
    return [status_of(checkpoint, decision_log) for checkpoint in checkpoints]
