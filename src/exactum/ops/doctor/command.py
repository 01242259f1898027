"""``exactum doctor``: the command and its options."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from exactum.ops.run.values import duration
from exactum.ops.targets.options import (
    COMMAND_CONFIG,
    DECISION_LOG,
    JSON,
    SINKS,
    with_password,
)


@click.command()
@click.option("--checkpoint", metavar="DIR", help="The query's checkpointLocation.")
@DECISION_LOG
@click.option(
    "--staging", metavar="PLACE", help="Where its rows wait, if the query is given staging=."
)
@click.option("--bootstrap-servers", metavar="HOSTS", help="The cluster that the query reads.")
@COMMAND_CONFIG
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="One that the query reads.")
@click.option("--group", metavar="NAME", help="The query's group_id.")
@SINKS
@click.option(
    "--longest-outage",
    type=duration,
    metavar="SPAN",
    help='How long the query may be down, like "30 min": compared with timeouts and retention.',
)
@JSON
def doctor(
    *,
    checkpoint: str | None,
    decision_log: str | None,
    staging: str | None,
    bootstrap_servers: str | None,
    command_config: Path | None,
    topics: tuple[str, ...],
    group: str | None,
    sinks: str | None,
    longest_outage: float | None,
    as_json: bool,
) -> None:
    """Look at everything that a query will need, before its first start.

    What is given is looked at: this machine always. Files, objects and records that are made for
    it are removed again, and nothing else is changed. Run it as the user who runs the query.

    Ends with status 0 where all is well but for warnings, 1 with an error, 2 where something could
    not be looked at.
    """
    from rich.console import Console

    from exactum.errors import ExactumError
    from exactum.ops import render
    from exactum.ops.doctor.examination import areas_of, examine
    from exactum.ops.targets.options import ClusterPlace

    signal.signal(signal.SIGTERM, _interrupt)  # what is made is removed
    try:
        areas = areas_of(
            checkpoint=checkpoint,
            decision_log=with_password(decision_log),
            staging=staging,
            source=ClusterPlace.of(bootstrap_servers, command_config),
            sinks=sinks or None,
            inputs=topics,
            group=group,
            longest_outage_s=longest_outage,
        )
    except ExactumError as refused:
        click.secho(f"exactum: {refused}", fg="red", err=True)
        sys.exit(render.ExitStatus.CANNOT_TELL)
    with Console(stderr=True).status("") as status:

        def tick(area: str) -> None:
            status.update(f"looking at {area}")

        found = list(examine(areas, tick))
    end = render.status_of(found)
    if as_json:
        render.show_json({"status": end, "findings": found})
    else:
        render.show_problems(found)
    sys.exit(end)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
