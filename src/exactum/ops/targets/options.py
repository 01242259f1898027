"""Options that commands on a query share."""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click

from exactum.checkpoint.query_place import MYSQL_SCHEMES, QueryPlace
from exactum.checkpoint.retirement import refuse_retired
from exactum.ops.targets.sinks import QueryTargets, given_sinks, targets_of

F = TypeVar("F", bound=Callable[..., Any])

MYSQL_PASSWORD = "MYSQL_PWD"
"""Environment variable of MySQL's own tools."""
SINKS_VARIABLE = "EXACTUM_SINKS"

CHECKPOINT = click.option(
    "--checkpoint", required=True, metavar="DIR", help="The query's checkpointLocation."
)
DECISION_LOG = click.option(
    "--decision-log",
    metavar="PLACE",
    help="Where the query's decisions are, if it was given decision_log=.",
)
SINKS = click.option(
    "--sinks",
    envvar=SINKS_VARIABLE,
    show_envvar=True,
    metavar="FILE.py:NAME",
    help="The query's sinks: what FILE.py has as NAME. Or MODULE:NAME.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="For programs: JSON on stdout.")


@dataclass(frozen=True)
class QueryOptions:
    """Which query, and where its sinks are, as it was typed. ``decision_log`` may hold a
    password.
    """

    checkpoint: str
    decision_log: str | None = field(default=None, repr=False)
    sinks: str | None = None

    @staticmethod
    def of(checkpoint: str, decision_log: str | None, sinks: str | None) -> QueryOptions:
        return QueryOptions(checkpoint, with_password(decision_log), sinks or None)

    def place(self) -> QueryPlace:
        """
        Raises:
            CheckpointRefused: the checkpoint is retired: the query, and its records, are elsewhere.
            ExactumError: as ``QueryPlace.of``.
        """
        place = QueryPlace.of(self.checkpoint, self.decision_log)
        refuse_retired(place.files)
        return place

    def targets(self, place: QueryPlace) -> QueryTargets:
        """
        Raises:
            ExactumError: as ``QueryPlace.record``, ``given_sinks`` and ``targets_of``.
        """
        context = click.get_current_context()
        own = [
            f"{each.opts[0]} {shlex.quote(str(context.params[each.name]))}"
            for each in context.command.params
            if each.name in ("checkpoint", "batch_id") and context.params[each.name] is not None
        ]
        command = " ".join([context.command_path, *own])
        given = {} if self.sinks is None else given_sinks(self.sinks)
        return targets_of(place.record(), given, command)


def query_options(function: F) -> Callable[..., Any]:
    """The command gets ``options: QueryOptions`` for --checkpoint, --decision-log and --sinks."""

    @functools.wraps(function)
    def gathered(
        *, checkpoint: str, decision_log: str | None, sinks: str | None, **others: Any
    ) -> Any:
        return function(options=QueryOptions.of(checkpoint, decision_log, sinks), **others)

    command: Callable[..., Any] = gathered
    for option in (SINKS, DECISION_LOG, CHECKPOINT):
        command = option(command)
    return command


def with_password(place: str | None) -> str | None:
    """The URL of a MySQL database with the password that MYSQL_PWD holds, where it has none of its
    own; anything else as it is.
    """
    password = os.environ.get(MYSQL_PASSWORD)
    try:
        parts = urlsplit(place or "")
        has_password = parts.password is not None
    except ValueError:  # whoever connects says what is wrong with it
        return place
    if not password or has_password or parts.scheme not in MYSQL_SCHEMES:
        return place
    user, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{host}").geturl()
