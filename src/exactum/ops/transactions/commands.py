"""The commands ``exactum transactions ...``. What a command needs is imported when it runs."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exactum.errors import SettingRefused
from exactum.ops.targets.options import (
    CANNOT_TELL,
    COMMAND_CONFIG,
    JSON,
    QueryOptions,
    could_not_tell,
    query_options,
)
from exactum.ops.transactions.places import ClusterPlace, DatabasePlace, LookPlace, look_options

if TYPE_CHECKING:
    from exactum.ops.transactions.finding import TransactionFinding
    from exactum.ops.transactions.query_look import Trouble

FINE, NEEDS_PERSON = 0, 1
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
@look_options
@JSON
@could_not_tell
def list_command(where: LookPlace, as_json: bool) -> None:
    """List open and unfinished transactions, and what to do with each."""
    from exactum.ops.transactions import report

    if isinstance(where, QueryOptions):
        from exactum.ops.transactions.query_look import look_at

        place = where.place()
        look = look_at(place, where.targets(place))
        if as_json:
            _print_json(report.look_value(look))
        else:
            report.show_look(look)
        sys.exit(look.status)
    findings, troubles = _elsewhere(where)
    if as_json:
        now_ms = int(time.time() * 1000)
        _print_json(
            {
                "transactions": [report.finding_value(f, now_ms) for f in findings],
                "troubles": [report.trouble_value(trouble) for trouble in troubles],
            }
        )
    else:
        report.show_findings(findings)
        report.show_troubles(troubles)
        if not findings:
            click.echo("nothing is open that this user may see")
    sys.exit(CANNOT_TELL if troubles else FINE)


@transactions.command()
@click.argument("identity")
@look_options
@JSON
@could_not_tell
def describe(identity: str, where: LookPlace, as_json: bool) -> None:
    """Tell everything known of one transaction."""
    from exactum.ops.transactions import report

    record = None
    if isinstance(where, QueryOptions):
        from exactum.ops.transactions.query_look import look_at

        place = where.place()
        look = look_at(place, where.targets(place))
        troubles = look.troubles
        report.show_troubles(troubles)
        found = [f for f in look.findings if f.view.identity == identity]
        if found:
            record = look.record_of(found[0])
    else:
        found, troubles = _elsewhere(where, identity)
    if not found and troubles:
        raise SettingRefused(
            f"Whether a transaction {identity!r} is open is not known: not everything could be "
            "looked at."
        )
    if not found:
        raise SettingRefused(
            f"Nothing is known of a transaction {identity!r}: it is not open, and no unfinished "
            "epoch names it."
        )
    if as_json:
        value = report.finding_value(found[0], int(time.time() * 1000))
        _print_json({**value, "record": None if record is None else record.to_json()})
    else:
        report.show_one(found[0], record)
    sys.exit(NEEDS_PERSON if found[0].needs_person else FINE)


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
    from exactum.ops.transactions import report
    from exactum.ops.transactions.settlement import finish_query
    from exactum.ops.transactions.settlement_facts import tell_finished

    place = options.place()
    outcome = finish_query(place, options.targets(place), take_over=take_over)
    _warn_not_told(tell_finished(place, outcome))
    if as_json:
        _print_json(
            {
                "batches": [
                    {
                        "batch_id": batch.batch_id,
                        "transactions": batch.transactions,
                        "rows": batch.rows,
                        "left": batch.left,
                    }
                    for batch in outcome.batches
                ],
                "committed_before": outcome.before,
                "committed_again": outcome.again,
                "open_undecided": outcome.open_undecided,
                "troubles": [report.trouble_value(trouble) for trouble in outcome.troubles],
                "status": outcome.status,
            }
        )
        sys.exit(outcome.status)
    for batch in outcome.batches:
        left = f"; {batch.left} are not" if batch.left else ""
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
    if outcome.left and not outcome.troubles:
        click.secho(
            "What is not was undone since: start the query, which makes it whole or says what is "
            "missing",
            fg="yellow",
        )
    report.show_troubles(outcome.troubles)
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
    from exactum.ops.transactions.settlement import SettlementRefused, abort_of_query
    from exactum.ops.transactions.settlement_facts import tell_aborted

    if bool(identities) == all_leftovers:
        raise click.UsageError("Name transactions, or say --all-leftovers.")
    place = options.place()
    wanted = None if all_leftovers else identities
    try:
        done = abort_of_query(place, options.targets(place), wanted, take_over=take_over)
    except SettlementRefused as error:
        click.secho(f"exactum: {error}", fg="red", err=True)
        sys.exit(NEEDS_PERSON)
    _warn_not_told(tell_aborted(place, done))
    refused = [s.identity for s in done.decided] if identities else []
    if as_json:
        fence = done.fence
        _print_json(
            {
                "fenced_at": None
                if fence is None
                else {"batch_id": fence.epoch.batch_id, "attempt": fence.attempt},
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
    sys.exit(NEEDS_PERSON if refused else FINE)


@transactions.command("find-hanging")
@click.option("--bootstrap-servers", metavar="SERVERS", help="Of the Kafka cluster.")
@COMMAND_CONFIG
@click.option("--topic", "topics", multiple=True, help="Only in these topics.")
@click.option(
    "--idle",
    default="15 min",
    show_default=True,
    metavar="DURATION",
    help="Leave alone what was written to since.",
)
@click.option("--abort", "abort_them", is_flag=True, help="End them by an abort marker.")
@click.option("--yes", is_flag=True, help="Do not ask before each marker.")
@JSON
@could_not_tell
def find_hanging_command(
    *,
    bootstrap_servers: str | None,
    command_config: Path | None,
    topics: tuple[str, ...],
    idle: str,
    abort_them: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Find transactions in Kafka that nobody will ever end.

    Partitions held by a producer that no coordinator accounts for, whoever's it is. Needs DESCRIBE
    and READ on the topics, and DESCRIBE on all transactional ids; --abort needs ALTER on the
    cluster.
    """
    from exactum.ops.run.duration import seconds
    from exactum.ops.targets.access import Access
    from exactum.ops.transactions.hanging_report import search

    access = Access.of(command_config)
    servers = bootstrap_servers or access.kafka_servers
    if servers is None:
        raise click.UsageError("Give --bootstrap-servers.")
    if as_json and abort_them and not yes:
        raise click.UsageError("--json with --abort needs --yes: there is nobody to ask.")
    ask = None if yes else click.confirm
    idle_ms_min = round(seconds(idle) * 1000)
    with closing(ClusterPlace(servers, access).admin()) as admin:
        value, status = search(
            admin,
            topics,
            idle_ms_min=idle_ms_min,
            abort_them=abort_them,
            ask=ask,
            quiet=as_json,
        )
    if as_json:
        _print_json(value)
    sys.exit(status)


def _elsewhere(
    where: ClusterPlace | DatabasePlace, identity: str = ""
) -> tuple[list[TransactionFinding], list[Trouble]]:
    from exactum.ops.transactions.finding import judged_elsewhere

    views, troubles = where.look([identity] if identity else [])
    return [judged_elsewhere(view) for view in views], troubles


def _warn_not_told(why: str) -> None:
    if why:
        click.secho(
            f"The query's history could not be written ({why}): 'exactum status' and the page do "
            "not know of this until the query is started.",
            fg="yellow",
            err=True,
        )


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1))
