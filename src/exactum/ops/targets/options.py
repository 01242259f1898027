"""Options that commands on a query share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from exactum.checkpoint.query_place import QueryPlace
from exactum.errors import ExactumError
from exactum.ops.render import ExitStatus
from exactum.ops.targets.access import Access, with_password
from exactum.ops.targets.target import QueryTargets, targets_of

F = TypeVar("F", bound=Callable[..., Any])

CHECKPOINT = click.option(
    "--checkpoint", required=True, metavar="DIR", help="The query's checkpointLocation."
)
DECISION_LOG = click.option(
    "--decision-log",
    metavar="PLACE",
    help="Where the query's decisions are, if it was given decision_log=.",
)
COMMAND_CONFIG = click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A Kafka client's .properties: how to log in to the brokers.",
)
URLS = click.option(
    "--url",
    "urls",
    multiple=True,
    metavar="NAME=URL",
    help="How to log in to the database of sink NAME. Else PGPASSWORD, PGPASSFILE, MYSQL_PWD.",
)
SINKS = click.option(
    "--sinks",
    metavar="MODULE:NAME",
    help="The query's sinks, or FILE.py:NAME: for those of your own classes, and for settings "
    "that the checkpoint does not have on file.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on stdout.")


def could_not_tell(function: Callable[..., Any]) -> Callable[..., Any]:
    """An ExactumError is printed as its message, and the status is CANNOT_TELL."""

    @functools.wraps(function)
    def wrapped(**arguments: Any) -> Any:
        try:
            return function(**arguments)
        except ExactumError as error:
            click.secho(f"exactum: {error}", fg="red", err=True)
            sys.exit(ExitStatus.CANNOT_TELL)

    return wrapped


@dataclass(frozen=True)
class QueryOptions:
    """Which query, and how its targets are reached: as it was typed."""

    checkpoint: str
    decision_log: str | None
    access: Access

    def place(self) -> QueryPlace:
        """
        Raises:
            ExactumError: as ``QueryPlace.of``.
        """
        return QueryPlace.of(self.checkpoint, self.decision_log)

    def targets(self, place: QueryPlace) -> QueryTargets:
        """
        Raises:
            ExactumError: as ``QueryPlace.known_sinks`` and ``targets_of``.
        """
        return targets_of(place.known_sinks(), self.access)


def query_options(function: F) -> Callable[..., Any]:
    """The command gets ``options: QueryOptions`` for --checkpoint, --decision-log,
    --command-config, --url and --sinks.
    """

    @functools.wraps(function)
    def gathered(
        *,
        checkpoint: str,
        decision_log: str | None,
        command_config: Path | None,
        urls: tuple[str, ...],
        sinks: str | None,
        **others: Any,
    ) -> Any:
        place = None if decision_log is None else with_password(decision_log)
        access = Access.of(command_config, urls, sinks)
        return function(options=QueryOptions(checkpoint, place, access), **others)

    command: Callable[..., Any] = gathered
    for option in (SINKS, URLS, COMMAND_CONFIG, DECISION_LOG, CHECKPOINT):
        command = option(command)
    return command
