"""The commands ``exactum transactions ...``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from exactum.monitor.words import count, millis, now_ms
from exactum.ops import render
from exactum.ops.targets.options import JSON, QueryOptions, query_options
from exactum.ops.transactions.settlement import abort_of_query, finish_query, record_settled
from exactum.ops.transactions.state import JudgedTransaction, read_transactions
from exactum.protocol.finish import finished

SHOWN_MAX = 5
"""How many transactions of one group are named."""
TAKE_OVER = click.option(
    "--take-over",
    is_flag=True,
    help="Although a run of the query lives: it is fenced and stops with an error.",
)


@click.group()
def transactions() -> None:
    """What is open or in doubt in the targets, and how to settle it.

    Exit status: 0 nothing needs you, 1 something does, 2 it could not be found out.
    """


@transactions.command("list")
@query_options
@JSON
def list_command(options: QueryOptions, as_json: bool) -> None:
    """List open and unfinished transactions, and what to do with each."""
    place = options.place()
    query = read_transactions(place, options.targets(place))
    if as_json:
        render.show_json(
            {
                "query_id": place.query_id,
                "checkpoint": place.checkpoint,
                "living_runs": [run.incarnation for run in query.living],
                "former_sinks": [sink.name for sink in query.former],
                "transactions": [_plain(each) for each in query.each],
                "problems": query.problems,
                "status": query.status,
            }
        )
        sys.exit(query.status)
    click.echo(str(place))
    for run in query.living:
        click.echo(f"lives: {run}")
    if not query.living:
        click.echo("no run of it lives here")
    for sink in query.former:
        click.echo(f"former sink, not looked into: {sink.name} ({sink.place})")
    _show_groups(query.each)
    render.show_not_seen(query.problems)
    if not query.each and not query.problems:
        click.echo("nothing is open, and nothing that is decided is unfinished")
    sys.exit(query.status)


@transactions.command()
@query_options
@TAKE_OVER
@JSON
def finish(options: QueryOptions, take_over: bool, as_json: bool) -> None:
    """Commit what is decided and not committed, without Spark.

    Safe beside a driver that lives. It decides nothing itself: what no COMMIT on record names
    stays as it is.
    """
    place = options.place()
    outcome = finish_query(place, options.targets(place), take_over=take_over)
    _warn_not_recorded(record_settled(place, outcome.settled))
    if as_json:
        render.show_json({**render.plain(outcome), "status": outcome.status})
        sys.exit(outcome.status)
    for batch in outcome.batches:
        known = " known to be" if outcome.problems else ""
        left = f"; {batch.left} are not{known}" if batch.left else ""
        click.echo(
            f"micro-batch {batch.batch_id}: {batch.transactions} transactions with {batch.rows:,} "
            f"rows are committed{left}"
        )
    if outcome.committed_again:
        click.secho(
            f"{outcome.committed_again} transactions of micro-batches that were done are committed "
            "again: their target had lost the commit. It has gone back in time (a failover, a "
            "restored copy, a power cut): see by 'exactum verify' whether it lost more",
            fg="yellow",
        )
    if not outcome.batches:
        click.echo("nothing is decided that Spark has not logged as done")
    if not outcome.batches and outcome.open_undecided:
        click.echo(
            f"{outcome.open_undecided} transactions are open and undecided: 'finish' leaves them. "
            "Start the query, or abort them"
        )
    if outcome.left and not outcome.problems:
        click.secho(
            "What is not was undone since: "
            + ("the run that lives" if outcome.living else "start the query, which")
            + " makes it whole or says what is missing",
            fg="yellow",
        )
    render.show_not_seen(outcome.problems)
    sys.exit(outcome.status)


@transactions.command()
@query_options
@TAKE_OVER
@JSON
def abort(options: QueryOptions, take_over: bool, as_json: bool) -> None:
    """Abort what is open and undecided.

    Where something is, it fences the query first, as a start does: a driver that lives can decide
    nothing more, and stops. Then it aborts. Else it changes nothing. What a COMMIT on record names
    is committed on the way, never aborted.
    """
    place = options.place()
    done = abort_of_query(place, options.targets(place), take_over=take_over)
    fence = done.fence
    whole = finished(done.finished, [p for record in done.finished for p in record.prepared])
    _warn_not_recorded(record_settled(place, whole, fence, len(done.aborted)))
    if as_json:
        render.show_json(
            {
                "fenced_at": fence and {"batch_id": fence.batch_id, "attempt": fence.attempt},
                "aborted": [s.identity for s in done.aborted],
                "finished_batches": [record.epoch.batch_id for record in done.finished],
            }
        )
        return
    for record in done.finished:
        click.echo(f"micro-batch {record.epoch.batch_id} is decided; it is committed now")
    if fence is None:
        click.echo("nothing is open and undecided; nobody was fenced")
        return
    click.echo(
        f"fenced with ABORT for micro-batch {fence.batch_id}, attempt {fence.attempt}; "
        f"aborted {len(done.aborted)}:"
    )
    for sighting in done.aborted:
        click.echo(f"  {sighting.identity}")


def _warn_not_recorded(why: str) -> None:
    if why:
        click.secho(
            f"The query's history could not be written ({why}): 'exactum status' and the page do "
            "not know of this until the query is started.",
            fg="yellow",
            err=True,
        )


# ---- what is shown ---------------------------------------------------------------------------


def _plain(found: JudgedTransaction) -> dict[str, Any]:
    """For JSON."""
    view, now = found.view, now_ms()
    values = render.plain(view)
    return {
        "sink": values.pop("participant"),
        **values,
        "age_ms": view.age_ms(now),
        "left_ms": view.left_ms(now),
        "on_record": found.on_record.value,
        "owner": found.owner.value,
        "do": found.problem.do,
        "needs_person": found.needs_person,
    }


def _show_groups(findings: Sequence[JudgedTransaction]) -> None:
    """Groups of what is alike: where it stands, its names, what to do."""
    groups: dict[object, list[JudgedTransaction]] = {}
    for each in findings:
        view = each.view
        key = each.problem, each.owner, view.incarnation, view.batch_id, view.attempt
        groups.setdefault(key, []).append(each)
    for group in groups.values():
        click.echo("")
        click.secho(_heading(group), bold=True)
        for each in group[:SHOWN_MAX]:
            click.echo(f"  {each.view.identity}")
        if len(group) > SHOWN_MAX:
            click.echo(f"  and {len(group) - SHOWN_MAX} more (--json has all)")
        do, colour = group[0].problem.do, render.YELLOW if group[0].needs_person else None
        click.secho(f"  -> {do}", fg=colour)


def _heading(group: Sequence[JudgedTransaction]) -> str:
    first, now = group[0], now_ms()
    view = first.view
    ages = [age for each in group if (age := each.view.age_ms(now)) is not None]
    left = [ms for each in group if (ms := each.view.left_ms(now)) is not None]
    rows = [each.view.rows for each in group if each.view.rows is not None]
    attempt = "" if view.attempt is None else f", attempt {view.attempt}"
    parts = [
        first.problem.where,
        f"{len(group)} {first.problem.what}",
        f"for {millis(max(ages))}" if ages else "",
        (f"{millis(min(left))} left" if min(left) > 0 else "past its timeout") if left else "",
        count(sum(rows), "row") if rows else "",
        "" if view.batch_id is None else f"micro-batch {view.batch_id}{attempt}",
        first.on_record.value,
        f"of {first.owner.value}" + (f" ({view.incarnation})" if view.incarnation else ""),
    ]
    return "; ".join(part for part in parts if part)
