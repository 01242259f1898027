"""The commands ``exactum transactions ...``. What a command needs is imported when it runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from exactum.errors import SettingRefused
from exactum.monitor.words import count, millis, now_ms
from exactum.ops import render
from exactum.ops.render import ExitStatus
from exactum.ops.targets.options import (
    JSON,
    ClusterPlace,
    QueryOptions,
    StatePlace,
    could_not_tell,
    place_options,
    query_options,
)
from exactum.ops.transactions.hanging import find_hanging_command
from exactum.problem import Problem

if TYPE_CHECKING:
    from exactum.ops.transactions.state import JudgedTransaction, QueryTransactions

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


transactions.add_command(find_hanging_command)


@transactions.command("list")
@place_options
@JSON
@could_not_tell
def list_command(where: StatePlace, as_json: bool) -> None:
    """List open and unfinished transactions, and what to do with each."""
    query = None
    if isinstance(where, QueryOptions):
        query = _read(where)
        found, problems, status = query.each, query.problems, query.status
    else:
        found, problems = _elsewhere(where)
        status = ExitStatus.CANNOT_TELL if problems else ExitStatus.FINE
    if as_json:
        value: dict[str, Any] = {
            "transactions": [_plain(each) for each in found],
            "troubles": _plain_of(problems),
        }
        if query is not None:
            value |= {
                "query_id": query.place.query_id,
                "checkpoint": str(query.place.folder),
                "living_runs": [run.incarnation for run in query.living],
                "former_sinks": [sink.name for sink in query.former],
                "status": status,
            }
        render.show_json(value)
        sys.exit(status)
    if query is not None:
        click.echo(str(query.place))
        for run in query.living:
            click.echo(f"lives: {run}")
        if not query.living:
            click.echo("no run of it lives here")
        for sink in query.former:
            click.echo(f"former sink, not looked into: {sink.name} ({sink.place})")
    _show_groups(found)
    render.show_not_seen(problems)
    if query is None and not found:
        click.echo("nothing is open that this user may see")
    elif not found and not problems:
        click.echo("nothing is open, and nothing that is decided is unfinished")
    sys.exit(status)


@transactions.command()
@click.argument("identity")
@place_options
@JSON
@could_not_tell
def describe(identity: str, where: StatePlace, as_json: bool) -> None:
    """Tell everything known of one transaction."""
    if isinstance(where, QueryOptions):
        query = _read(where)
        problems = query.problems
        render.show_not_seen(problems)
        found = tuple(each for each in query.each if each.view.identity == identity)
    else:
        found, problems = _elsewhere(where, identity)
    if not found and problems:
        raise SettingRefused(
            "NOTHING_OF_THAT_NAME",
            f"Whether a transaction {identity!r} is open is not known: not everything could be "
            "looked at.",
        )
    if not found:
        raise SettingRefused(
            "NOTHING_OF_THAT_NAME",
            f"Nothing is known of a transaction {identity!r}: it is not open, and no unfinished "
            "epoch names it.",
        )
    if as_json:
        record = found[0].record
        render.show_json(
            {**_plain(found[0]), "record": None if record is None else record.to_json()}
        )
    else:
        _show_one(found[0])
    sys.exit(ExitStatus.NEEDS_PERSON if found[0].needs_person else ExitStatus.FINE)


@transactions.command()
@query_options
@TAKE_OVER
@JSON
@could_not_tell
def finish(options: QueryOptions, take_over: bool, as_json: bool) -> None:
    """Commit what is decided and not committed, without Spark.

    Safe beside a driver that lives. It decides nothing itself: what no COMMIT on record names
    stays as it is.
    """
    from exactum.ops.transactions.settlement import finish_query, record_finished

    place = options.place()
    outcome = finish_query(place, options.targets(place), take_over=take_over)
    _warn_not_recorded(record_finished(place, outcome))
    if as_json:
        render.show_json(
            {
                "batches": outcome.batches,
                "committed_before": outcome.before,
                "committed_again": outcome.again,
                "open_undecided": outcome.open_undecided,
                "troubles": _plain_of(outcome.problems),
                "status": outcome.status,
            }
        )
        sys.exit(outcome.status)
    for batch in outcome.batches:
        known = " known to be" if outcome.problems else ""
        left = f"; {batch.left} are not{known}" if batch.left else ""
        click.echo(
            f"micro-batch {batch.batch_id}: {batch.transactions} transactions with {batch.rows:,} "
            f"rows are committed{left}"
        )
    if outcome.before:
        click.echo(f"{outcome.before} of them were committed before")
    if outcome.again:
        click.secho(
            f"{outcome.again} transactions of micro-batches that were done are committed again: "
            "their target had lost the commit. It has gone back in time (a failover, a restored "
            "copy, a power cut): see by 'exactum verify' whether it lost more",
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
            "What is not was undone since: start the query, which makes it whole or says what is "
            "missing",
            fg="yellow",
        )
    render.show_not_seen(outcome.problems)
    sys.exit(outcome.status)


@transactions.command()
@click.argument("identities", nargs=-1, metavar="[IDENTITY]...")
@query_options
@click.option("--all-leftovers", is_flag=True, help="All that is open and undecided.")
@TAKE_OVER
@JSON
@could_not_tell
def abort(
    *,
    identities: tuple[str, ...],
    options: QueryOptions,
    all_leftovers: bool,
    take_over: bool,
    as_json: bool,
) -> None:
    """Abort what is open and undecided.

    It fences the query first, as a start does: a driver that lives can decide nothing more, and
    stops. Then it aborts. What a COMMIT on record names is refused.
    """
    from exactum.ops.transactions.settlement import (
        SettlementRefused,
        abort_of_query,
        record_aborted,
    )

    if bool(identities) == all_leftovers:
        raise click.UsageError("Name transactions, or say --all-leftovers.")
    place = options.place()
    wanted = None if all_leftovers else identities
    try:
        done = abort_of_query(place, options.targets(place), wanted, take_over=take_over)
    except SettlementRefused as error:
        click.secho(f"exactum: {error}", fg="red", err=True)
        sys.exit(ExitStatus.NEEDS_PERSON)
    _warn_not_recorded(record_aborted(place, done))
    refused = [s.identity for s in done.decided] if identities else []
    if as_json:
        fence = done.fence
        at = fence and {"batch_id": fence.epoch.batch_id, "attempt": fence.attempt}
        render.show_json(
            {
                "fenced_at": at,
                "aborted": [s.identity for s in done.aborted],
                "refused": refused,
                "finished_batches": [record.epoch.batch_id for record in done.finished],
            }
        )
    else:
        for record in done.finished:
            click.echo(f"micro-batch {record.epoch.batch_id} is decided; it is committed now")
        if done.fence is not None:
            click.echo(
                f"fenced with ABORT for micro-batch {done.fence.epoch.batch_id}, attempt "
                f"{done.fence.attempt}; aborted {len(done.aborted)}:"
            )
            for sighting in done.aborted:
                click.echo(f"  {sighting.identity}")
        elif not refused:
            click.echo("nothing is open and undecided; nobody was fenced")
        for identity in refused:
            click.secho(f"refused, a COMMIT on record names it: {identity}", fg="red", err=True)
    sys.exit(ExitStatus.NEEDS_PERSON if refused else ExitStatus.FINE)


def _read(where: QueryOptions) -> QueryTransactions:
    from exactum.ops.transactions.state import read_transactions

    place = where.place()
    return read_transactions(place, where.targets(place))


def _elsewhere(
    where: ClusterPlace, identity: str = ""
) -> tuple[tuple[JudgedTransaction, ...], tuple[Problem, ...]]:
    from exactum.ops.transactions.state import judged_elsewhere

    views, problems = where.transactions([identity] if identity else [])
    return tuple(map(judged_elsewhere, views)), tuple(problems)


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


def _plain_of(problems: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"place": each.where, "why": each.why} for each in problems]


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
        _show_do(group[0])


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


def _show_one(found: JudgedTransaction) -> None:
    """Everything that is known of it."""
    view, record, now = found.view, found.record, now_ms()
    age, left = view.age_ms(now), view.left_ms(now)
    click.secho(view.identity, bold=True)
    by = record and (
        f"{record.decision.value} of {record.epoch}, attempt {record.attempt}, by incarnation "
        f"{record.incarnation}"
    )
    ends = [] if record is None else record.offsets.end
    render.show_values(
        [
            ("sink", view.participant),
            ("query", view.query_id),
            ("whose", found.owner.value),
            ("incarnation", view.incarnation),
            ("state", view.state.value),
            ("age", None if age is None else millis(age)),
            ("time left", None if left is None else millis(left)),
            ("micro-batch", view.batch_id),
            ("attempt", view.attempt),
            ("rows", view.rows),
            ("decision log", found.on_record.value),
            ("details", "\n".join(view.details) or None),
            ("record", by),
            *((f"source {number}", f"up to {end}") for number, end in enumerate(ends)),
        ]
    )
    _show_do(found)


def _show_do(found: JudgedTransaction) -> None:
    click.secho(f"  -> {found.problem.do}", fg=render.YELLOW if found.needs_person else None)
