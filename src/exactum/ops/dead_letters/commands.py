"""``exactum dead-letters``: list, show, replay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exactum.ops.targets.options import JSON, QueryOptions, could_not_tell, query_options

if TYPE_CHECKING:
    from exactum.ops.dead_letters.view import QueryDeadLetters


@click.group("dead-letters")
def dead_letters() -> None:
    """What a query put aside: list it, show it, and send it on again, once."""


def choice_options(command: Any) -> Any:
    """--sink and --error: which letters are meant."""
    command = click.option("--error", metavar="TEXT", help="Whose reason has this text.")(command)
    return click.option("--sink", metavar="NAME", help="Which this sink refused.")(command)


@dead_letters.command("list")
@query_options
@choice_options
@click.option("--each", is_flag=True, help="A line for each letter, not for each reason.")
@JSON
@could_not_tell
def list_dead_letters(
    *, options: QueryOptions, sink: str | None, error: str | None, each: bool, as_json: bool
) -> None:
    """Count dead letters by who refused them and why.

    Numbers and quoted values in reasons are left out, so that reasons of one kind are one line.
    """
    from exactum.ops.dead_letters.report import groups, show_dead_letters, show_groups
    from exactum.ops.dead_letters.view import Choice, QueryDeadLetters

    found = QueryDeadLetters(options)
    _note(found)
    dead_letters = (
        dead_letter for dead_letter in found.each() if Choice(None, sink, error).takes(dead_letter)
    )
    if each:
        show_dead_letters(dead_letters, found.replays.sent, as_json=as_json)
    else:
        show_groups(groups(dead_letters, found.replays.sent), as_json=as_json)
    if found.replays.unfinished:
        count = sum(mark.startswith("letter ") for mark in found.replays.unfinished)
        click.echo(
            f"{count:,} more are decided and not known to be visible: a replay was killed. Type "
            "'exactum dead-letters replay' again: it finishes them first.",
            err=True,
        )
        sys.exit(1)


@dead_letters.command()
@query_options
@click.argument("identity")
@JSON
@could_not_tell
def show(*, options: QueryOptions, identity: str, as_json: bool) -> None:
    """Show one dead letter whole. IDENTITY is as 'list --each' names it."""
    from exactum.errors import SettingRefused
    from exactum.ops.dead_letters.report import show_dead_letter
    from exactum.ops.dead_letters.view import QueryDeadLetters

    found = QueryDeadLetters(options)
    _note(found)
    dead_letter = next((each for each in found.each() if each.identity == identity), None)
    if dead_letter is None:
        raise SettingRefused(
            "NOTHING_OF_THAT_NAME",
            f"There is no dead letter {identity!r}. 'exactum dead-letters list --each' names them.",
        )
    show_dead_letter(dead_letter, dead_letter.sent_to(found.replays.sent), as_json=as_json)


@dead_letters.command()
@query_options
@choice_options
@click.option("--id", "identities", multiple=True, metavar="IDENTITY", help="This one; repeatable.")
@click.option("--to", "topic", metavar="TOPIC", help="Key and value of the letter, to this topic.")
@click.option(
    "--to-source",
    is_flag=True,
    help="The record that it was, back to the topic it came from: the query reads it again.",
)
@click.option(
    "--replay-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Kafka client .properties of that cluster; by default that of the query's Kafka sinks.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def replay(
    *,
    options: QueryOptions,
    sink: str | None,
    error: str | None,
    identities: tuple[str, ...],
    topic: str | None,
    to_source: bool,
    replay_config: Path | None,
    yes: bool,
) -> None:
    """Send dead letters on again, each once, after what they failed for was mended.

    All that were not sent before, or those that you choose. They go in transactions under decisions
    of their own, so a replay that is killed may be started again: nothing is sent twice. What was
    sent is marked in 'list'.

    Everybody who reads the topic gets the record again, not this query alone.
    Exit status 0: all were sent. 1: some cannot be sent; they are named.
    """
    from exactum.ops.dead_letters.view import Choice, QueryDeadLetters, ReplayPlan

    if (topic is None) == (not to_source):
        raise click.UsageError("Give either --to TOPIC or --to-source.")
    found = QueryDeadLetters(options)
    _note(found)
    choice = Choice(frozenset(identities) or None, sink, error)
    plan = ReplayPlan(found, choice, topic, replay_config)
    plan.refuse_unknown()
    count = sum(1 for _ in plan.dead_letters())
    where = f"topic {topic!r}" if topic is not None else "the topics that they came from"
    if found.replays.unfinished:
        click.echo("An earlier replay was killed: what it had decided is finished first.", err=True)
    click.echo(f"{count:,} dead letters are to be sent to {where}, at {plan.servers}.", err=True)
    if not count:
        if found.replays.unfinished:
            plan.run(lambda count: None)
            click.echo("What the earlier replay had decided is visible.")
        return
    if not yes:
        click.confirm("Send them?", abort=True, err=True)
    with click.progressbar(length=count, file=sys.stderr, label="sending") as bar:
        done = plan.run(bar.update)
    click.echo(f"{done.sent:,} records are sent.")
    for identity, reason in [*done.refused.items(), *plan.lost().items()]:
        click.echo(f"not sent: {identity}: {reason}")
    sys.exit(1 if done.refused or plan.lost() else 0)


def _note(found: QueryDeadLetters) -> None:
    if found.note:
        click.echo(found.note, err=True)
