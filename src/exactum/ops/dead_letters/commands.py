"""``exactum dead-letters``: list, show, replay; in groups, in lines, and whole."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exactum.ops import render
from exactum.ops.targets.options import JSON, QueryOptions, query_options
from exactum.protocol.dead_letter import DeadLetter

if TYPE_CHECKING:
    from exactum.ops.dead_letters.view import QueryDeadLetters

_OWN = re.compile(r"'[^']*'|\"[^\"]*\"|\b\d[\d.,]*")
"""What makes two reasons of one kind differ."""
REASON_MAX = 160
GROUPS_MAX = 1_000
OTHERS = "(further reasons)"
SHOWN_MAX = 2_000


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
def list_dead_letters(
    *, options: QueryOptions, sink: str | None, error: str | None, each: bool, as_json: bool
) -> None:
    """Count dead letters by who refused them and why.

    Numbers and quoted values in reasons are left out, so that reasons of one kind are one line.
    """
    from exactum.ops.dead_letters.view import Choice, QueryDeadLetters

    found = QueryDeadLetters(options)
    _note(found)
    dead_letters = found.chosen(Choice(None, sink, error))
    if each:
        show_dead_letters(dead_letters, found.replays.sent, as_json=as_json)
    else:
        show_groups(groups(dead_letters, found.replays.sent), as_json=as_json)
    if found.replays.unfinished:
        count = sum(mark.startswith("letter ") for mark in found.replays.unfinished)
        click.echo(
            f"{count:,} more are decided and not known to be visible: a replay is at work, or was "
            "killed. If none is, type 'exactum dead-letters replay' again: it finishes them first.",
            err=True,
        )
        sys.exit(1)


@dead_letters.command()
@query_options
@click.argument("identity")
@JSON
def show(*, options: QueryOptions, identity: str, as_json: bool) -> None:
    """Show one dead letter whole. IDENTITY is as 'list --each' names it."""
    from exactum.errors import SettingRefused
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
    Exit status 0: all were sent. 1: some cannot be sent; they are named. 2: it was refused.
    """
    from exactum.ops.dead_letters.replay import refuse_loop
    from exactum.ops.dead_letters.view import Choice, QueryDeadLetters
    from exactum.ops.targets.properties_file import SERVERS

    if (topic is None) == (not to_source):
        raise click.UsageError("Give either --to TOPIC or --to-source.")
    found = QueryDeadLetters(options)
    _note(found)
    choice = Choice(frozenset(identities) or None, sink, error)
    settings = found.cluster(replay_config)
    where = "the topics that they came from"
    if topic is not None:
        where = f"topic {topic!r}"
        refuse_loop(topic, getattr(found.target.sink, "topic", None))
    found.refuse_unknown(identities)
    count = sum(1 for _ in found.waiting(choice))
    if found.replays.unfinished:
        note = "An earlier replay is at work, or was killed: it is fenced, and what it had decided"
        click.echo(f"{note} is finished first.", err=True)
    servers = settings[SERVERS]
    click.echo(f"{count:,} dead letters are to be sent to {where}, at {servers}.", err=True)
    if not count:
        if found.replays.unfinished:
            found.replay(choice, topic, settings, lambda count: None)
            click.echo("What the earlier replay had decided is visible.")
        return
    if not yes:
        click.confirm("Send them?", abort=True, err=True)
    with click.progressbar(length=count, file=sys.stderr, label="sending") as bar:
        done = found.replay(choice, topic, settings, bar.update)
    click.echo(f"{done.sent:,} records are sent.")
    for identity, reason in done.refused.items():
        click.echo(f"not sent: {identity}: {reason}")
    sys.exit(1 if done.refused else 0)


def _note(found: QueryDeadLetters) -> None:
    if found.note:
        click.echo(found.note, err=True)


# ---- what is shown ---------------------------------------------------------------------------


@dataclass
class DeadLetterGroup:
    """Letters of one kind. ``example`` is the identity of the first."""

    sink: str
    reason: str
    count: int = 0
    replayed: int = 0
    first: str | None = None
    last: str | None = None
    example: str = ""


def reason_of(error: str) -> str:
    """The reason without what is of one row alone."""
    text = " ".join(_OWN.sub("…", error).split())
    return text if len(text) <= REASON_MAX else f"{text[:REASON_MAX]}…"


def groups(
    dead_letters: Iterable[DeadLetter], replayed: Mapping[str, str]
) -> list[DeadLetterGroup]:
    """By sink and reason, the largest first."""
    found: dict[tuple[str, str], DeadLetterGroup] = {}
    for dead_letter in dead_letters:
        key = dead_letter.sink, reason_of(dead_letter.error)
        if key not in found and len(found) >= GROUPS_MAX:
            key = dead_letter.sink, OTHERS
        group = found.setdefault(key, DeadLetterGroup(*key, example=dead_letter.identity))
        group.count += 1
        group.replayed += dead_letter.sent_to(replayed) is not None
        if dead_letter.timestamp is not None:
            group.first = min(group.first or dead_letter.timestamp, dead_letter.timestamp)
            group.last = max(group.last or dead_letter.timestamp, dead_letter.timestamp)
    return sorted(found.values(), key=lambda group: -group.count)


def show_groups(found: list[DeadLetterGroup], *, as_json: bool) -> None:
    if as_json:
        render.show_json(found)
        return
    render.show_table(
        ("count", "replayed", "refused by", "reason", "records from", "to", "example"),
        [
            (
                group.count,
                group.replayed,
                group.sink,
                group.reason,
                (group.first or "-")[:19],
                (group.last or "-")[:19],
                group.example,
            )
            for group in found
        ],
    )
    total = sum(group.count for group in found)
    click.echo(f"{total:,} dead letters, {sum(g.replayed for g in found):,} sent again.")


def show_dead_letters(
    dead_letters: Iterable[DeadLetter], replayed: Mapping[str, str], *, as_json: bool
) -> None:
    """A line for each: as JSON lines, or identity, origin, who and why, with tabs between."""
    for dead_letter in dead_letters:
        to = dead_letter.sent_to(replayed)
        if as_json:
            render.show_json(values_of(dead_letter, to), indent=None)
            continue
        parts = (
            dead_letter.identity,
            origin_of(dead_letter),
            dead_letter.sink,
            dead_letter.error,
            to or "-",
        )
        click.echo("\t".join(" ".join(part.split()) for part in parts))


def show_dead_letter(dead_letter: DeadLetter, to: str | None, *, as_json: bool) -> None:
    if as_json:
        render.show_json(values_of(dead_letter, to))
        return
    render.show_values(
        [
            ("letter", dead_letter.identity),
            ("record", origin_of(dead_letter)),
            ("of", dead_letter.timestamp or "-"),
            ("refused by", dead_letter.sink),
            ("reason", dead_letter.error),
            ("sent again", f"to {to}" if to is not None else "no"),
            ("key", shown(dead_letter.key)),
            ("value", shown(dead_letter.value)),
            ("row", dead_letter.row_json or "-"),
        ]
    )


def origin_of(dead_letter: DeadLetter) -> str:
    if dead_letter.origin is None:
        return "-"
    topic, index, offset = dead_letter.origin
    return f"{topic}-{index}@{offset}"


def values_of(dead_letter: DeadLetter, to: str | None) -> dict[str, object]:
    """For JSON: key and value as hexadecimal digits, and the topic that it was sent to again."""
    values: dict[str, object] = asdict(dead_letter)
    for name in ("key", "value"):
        data = getattr(dead_letter, name)
        values[name] = None if data is None else data.hex()
    return {**values, "replayed_to": to}


def shown(data: bytes | None) -> str:
    """Bytes as text where they are UTF-8, else as hexadecimal digits; long ones are cut."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"(hex) {data.hex()}"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}… ({len(data):,} bytes)"
