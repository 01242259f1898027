"""``exactum savepoint``: user-ordered, verified copies of a query's checkpoint at one complete
epoch, and starting from them. What a command needs is imported when it runs.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from exactum.errors import CheckpointRefused
from exactum.monitor.words import size
from exactum.ops import render
from exactum.ops.render import ExitStatus
from exactum.ops.targets.options import CHECKPOINT

if TYPE_CHECKING:
    from exactum.checkpoint.savepoint.manifest import Manifest

SAVEPOINT = click.argument("savepoint", metavar="PATH")


@click.group()
def savepoint() -> None:
    """Verified copies of a query's checkpoint, and starting from them."""


@savepoint.command()
@CHECKPOINT
@click.option("--to", required=True, metavar="PATH", help="The new savepoint; must not exist.")
@click.option(
    "--stop", "stop_query", is_flag=True, help="First stop the query, after the epoch at hand."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long that epoch may take.",
)
def create(checkpoint: str, to: str, stop_query: bool, timeout_s: float) -> None:
    """Make a savepoint of a query that runs, or of one that is stopped."""
    from exactum.checkpoint.query_place import place_of
    from exactum.checkpoint.run_file import living
    from exactum.checkpoint.savepoint.create import create

    made = create(checkpoint, to, stop_query=stop_query, timeout_s=timeout_s)
    stopped = "; the query was stopped" if stop_query else ""
    if stop_query and (again := living(place_of(checkpoint))):
        stopped += f", and it runs again: {again[0]}"
    click.echo(
        f"savepoint {to}: epoch {made.batch_id}, {len(made.files)} files, {made.size_bytes:,} "
        f"bytes{stopped}"
    )


@savepoint.command()
@SAVEPOINT
def inspect(savepoint: str) -> None:
    """Show what a savepoint holds."""
    from exactum.checkpoint.query_place import place_of
    from exactum.checkpoint.savepoint.manifest import read_manifest

    _show(read_manifest(place_of(savepoint)))


@savepoint.command()
@SAVEPOINT
def verify(savepoint: str) -> None:
    """Check every byte of a savepoint; status 1 and what is wrong if it is damaged."""
    from exactum.checkpoint.query_place import place_of
    from exactum.checkpoint.savepoint.manifest import verify

    try:
        manifest = verify(place_of(savepoint))
    except CheckpointRefused as error:
        render.show_refusal(error)
        sys.exit(ExitStatus.NEEDS_PERSON)
    click.echo(f"{savepoint} is whole: epoch {manifest.batch_id}, {len(manifest.files)} files")


@savepoint.command()
@SAVEPOINT
def delete(savepoint: str) -> None:
    """Delete a savepoint."""
    from exactum.checkpoint.savepoint.create import delete

    delete(savepoint)
    click.echo(f"{savepoint} is deleted")


@savepoint.command()
@SAVEPOINT
@CHECKPOINT
@click.option(
    "--as",
    "identity",
    type=click.Choice(["fork", "same"]),
    default="fork",
    show_default=True,
    help="A new query with an identity of its own, or the query itself, moved: then the original "
    "is retired.",
)
@click.option(
    "--original-is-gone",
    is_flag=True,
    help="With --as same: the original checkpoint is lost, and no driver of it lives.",
)
def restore(savepoint: str, checkpoint: str, identity: str, original_is_gone: bool) -> None:
    """Make a checkpoint of a savepoint: a query that is started on DIR goes on after the
    savepoint's epoch.
    """
    from exactum.checkpoint.savepoint.restore import Identity, restore

    done = restore(savepoint, checkpoint, Identity(identity), original_is_gone=original_is_gone)
    how = "was made of this savepoint before" if done.already else "is ready"
    click.echo(
        f"{done.checkpoint} {how}: query {done.query_id} goes on with epoch {done.batch_id + 1}"
    )


# ---- what is shown ---------------------------------------------------------------------------


def _show(manifest: Manifest) -> None:
    """What it is, where each source continues, and what state it has."""
    is_inside = manifest.decision_log == "checkpoint"
    render.show_values(
        [
            ("savepoint", manifest.id),
            ("made", f"{manifest.created_at} on {manifest.host}"),
            ("by", f"exactum {manifest.exactum}, Spark {manifest.spark or 'of unknown version'}"),
            ("query", manifest.query_id),
            ("epoch", f"{manifest.batch_id:,}"),
            ("checkpoint", manifest.checkpoint),
            ("decision log", "in the checkpoint" if is_inside else "elsewhere"),
            ("files", f"{len(manifest.files):,}, {size(manifest.size_bytes)}"),
        ]
    )
    sources = [
        (number, partition, offset)
        for number, text in enumerate(manifest.sources)
        for partition, offset in _offsets(text)
    ]
    render.show_table(("source", "partition", "goes on at"), sources)
    if manifest.operators:
        render.show_table(
            ("operator", "name", "partitions", "stores", "size of state"),
            [
                (each.number, each.name, each.partitions, each.stores, size(each.size_bytes))
                for each in manifest.operators
            ],
        )


def _offsets(text: str | None) -> list[tuple[str, str]]:
    """(partition, offset) of a Kafka source; of another one, its offset as it is."""
    if text is None:
        return [("", "(nothing read yet)")]
    value = json.loads(text) if text.startswith("{") else text
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        return [
            (f"{topic}-{p}", f"{offset:,}")
            for topic in sorted(value)
            for p, offset in sorted(value[topic].items())
        ]
    return [("", text)]
