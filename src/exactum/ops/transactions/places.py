"""Where to look: a query by its checkpoint, or a whole Kafka cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from exactum.ops.problem import Problem, not_seen
from exactum.ops.targets.access import Access, with_password
from exactum.ops.targets.options import (
    COMMAND_CONFIG,
    DECISION_LOG,
    SINKS,
    URLS,
    QueryOptions,
)
from exactum.protocol.inspection import TransactionView

WHERE = "exactum transactions"


@dataclass(frozen=True)
class ClusterPlace:
    """A whole Kafka cluster."""

    servers: str
    access: Access

    def look(self, identities: Sequence[str] = ()) -> tuple[list[TransactionView], list[Problem]]:
        """What is open in it, or what it knows of these transactional ids; and what it hides.

        Raises:
            ExactumError: the brokers did not answer, or refused.
        """
        from exactum.kafka.inspection import cluster_transactions

        with closing(self.admin()) as admin:
            views = cluster_transactions(admin, [i.partition("@")[0] for i in identities])
            sees_all = identities or admin.may_describe_any_id()
        hidden = "this user may not see all transactional ids (DESCRIBE on '*')"
        return views, [] if sees_all else [not_seen(f"all of {self.servers}", hidden)]

    def admin(self) -> Any:
        """A ``BrokerRequests``. The caller closes it.

        Raises:
            ExactumError: the brokers did not answer, or refused.
        """
        from exactum.kafka.requests.broker_requests import BrokerRequests
        from exactum.kafka.settings import settings

        plain = settings.checked(self.access.kafka, WHERE)
        return BrokerRequests(
            self.servers, plain, WHERE, connect_timeout_ms=8_000, deadline_ms=20_000
        )


LookPlace = QueryOptions | ClusterPlace


def look_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets ``where: LookPlace``."""

    @functools.wraps(function)
    def gathered(
        *,
        checkpoint: str | None,
        bootstrap_servers: str | None,
        decision_log: str | None,
        command_config: Path | None,
        urls: tuple[str, ...],
        sinks: str | None,
        **others: Any,
    ) -> Any:
        access = Access.of(command_config, urls, sinks)
        where: LookPlace
        if checkpoint is not None and bootstrap_servers is None:
            place = None if decision_log is None else with_password(decision_log)
            where = QueryOptions(checkpoint, place, access)
        elif bootstrap_servers is not None and checkpoint is None:
            where = ClusterPlace(bootstrap_servers, access)
        else:
            raise click.UsageError("Give one of --checkpoint DIR and --bootstrap-servers SERVERS.")
        return function(where=where, **others)

    command: Callable[..., Any] = gathered
    for option in (
        SINKS,
        URLS,
        COMMAND_CONFIG,
        DECISION_LOG,
        click.option(
            "--bootstrap-servers", metavar="SERVERS", help="All of a Kafka cluster, whoever's."
        ),
        click.option("--checkpoint", metavar="DIR", help="All sinks of this query."),
    ):
        command = option(command)
    return command
