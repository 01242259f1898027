"""``exactum init``: the command."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Make a project in FOLDER: a query from Kafka to Kafka, its test, a Makefile.

    FOLDER is new or empty. Needs no server: "make servers" in the project starts one.
    """
    from exactum.ops.project.project import FILES, make_project

    made = make_project(folder)
    click.echo(f"{made} has a query that works: {', '.join(FILES)}.")
    click.echo("Next:")
    dashes = "-- " if os.fspath(folder).startswith("-") else ""
    click.echo(f"    cd {dashes}{shlex.quote(os.fspath(folder))}")
    click.echo("    make install    # pytest, and exactum with Spark")
    click.echo("    make test       # the query on a Kafka of its own")
    click.echo("    make servers    # a Kafka on this machine; README.md says how to go on")
