"""``exactum transactions find-hanging``: what nobody will ever end, found and, if asked, ended."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from exactum.ops import render
from exactum.ops.render import ExitStatus
from exactum.ops.run.values import duration
from exactum.ops.targets.options import COMMAND_CONFIG, JSON, ClusterPlace, could_not_tell

if TYPE_CHECKING:
    from exactum.kafka.inspection import BlockedPartitions, HangingTransaction
    from exactum.kafka.requests import BrokerRequests

WHOSE = "exactum transactions"
"""Whose the connection to the cluster is, in messages."""


@click.command("find-hanging")
@click.option("--bootstrap-servers", metavar="SERVERS", help="Of the Kafka cluster.")
@COMMAND_CONFIG
@click.option("--topic", "topics", multiple=True, help="Only in these topics.")
@click.option(
    "--idle",
    "idle_s",
    type=duration,
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
    idle_s: float,
    abort_them: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Find transactions in Kafka that nobody will ever end.

    Partitions held by a producer that no coordinator accounts for, whoever's it is. Needs DESCRIBE
    and READ on the topics, and DESCRIBE on all transactional ids; --abort needs ALTER on the
    cluster.
    """
    place = ClusterPlace.of(bootstrap_servers, command_config)
    if place is None:
        raise click.UsageError("Give --bootstrap-servers.")
    if as_json and abort_them and not yes:
        raise click.UsageError("--json with --abort needs --yes: there is nobody to ask.")
    from exactum.kafka.inspection import find_hanging
    from exactum.kafka.log_requests import MarkerRefused

    idle_ms_min = round(idle_s * 1000)
    aborted: list[HangingTransaction] = []
    refused: list[str] = []
    with closing(_admin(place)) as admin:
        found = find_hanging(admin, topics, idle_ms_min=idle_ms_min)
        if not as_json:
            show(found)
        for each in found.hanging if abort_them else ():
            if not yes and not click.confirm(f"Write an abort marker into {_named(each)}?"):
                continue
            try:
                admin.write_abort_marker(each.partition, each.producer)
                aborted.append(each)
            except MarkerRefused as error:
                refused.append(str(error))
        left = [each for each in found.hanging if each not in aborted]
        if aborted:
            theirs = sorted({each.partition[0] for each in aborted})
            again = find_hanging(admin, theirs, idle_ms_min=idle_ms_min)
            still = {each.partition for each in again.hanging}
            left += [each for each in aborted if each.partition in still]
    if as_json:
        names = [_named(each) for each in aborted]
        render.show_json({**render.plain(found), "aborted": names, "refused": refused})
    else:
        for each in aborted:
            click.echo(f"aborted: {_named(each)}")
        for text in refused:
            click.secho(text, fg=render.RED, err=True)
    unseen = ExitStatus.CANNOT_TELL if found.unseen else ExitStatus.FINE
    sys.exit(ExitStatus.NEEDS_PERSON if left else unseen)


def _admin(place: ClusterPlace) -> BrokerRequests:
    """
    Raises:
        ExactumError: the brokers did not answer, or refused.
    """
    from exactum.kafka import settings
    from exactum.kafka.requests import BrokerRequests

    plain = settings.checked_producer(place.settings, WHOSE)
    return BrokerRequests(place.servers, plain, WHOSE, connect_timeout_ms=8_000, deadline_ms=20_000)


def show(found: BlockedPartitions) -> None:
    click.echo(
        f"{found.looked_at} partitions looked at; {len(found.blocked)} have an open transaction; "
        f"{len(found.hanging)} of these transactions are nobody's"
    )
    for each in found.hanging:
        hidden = each.high_watermark - each.last_stable_offset
        click.secho(f"\n{_named(each)}", bold=True)
        render.show_values(
            [
                ("the coordinator", each.coordinator_says),
                ("transactional id", each.transactional_id or "not known"),
                ("hides", f"{hidden:,} offsets, from {each.last_stable_offset:,} on, from readers"),
            ]
        )
        click.secho(
            "  -> nobody will end it: look who wrote there, then 'find-hanging --abort'",
            fg=render.YELLOW,
        )
    if found.young:
        click.echo(f"{found.young} more look like it, and were written to a short time ago: wait")
    for text in found.unseen:
        click.secho(f"could not be looked at: {text}", fg=render.RED, err=True)


def _named(each: HangingTransaction) -> str:
    topic, index = each.partition
    return (
        f"{topic}-{index} from offset {each.producer.transaction_start_offset}: producer "
        f"{each.producer.producer_id}, epoch {each.producer.producer_epoch}"
    )
