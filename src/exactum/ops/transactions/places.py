"""Where to look: a query by its checkpoint, or a whole Kafka cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from exactum.ops.targets.options import COMMAND_CONFIG, DECISION_LOG, SINKS, QueryOptions
from exactum.ops.targets.properties_file import SERVERS, client_settings_of
from exactum.problem import Problem, not_seen
from exactum.protocol.inspection import TransactionView

WHERE = "exactum transactions"


@dataclass(frozen=True)
class ClusterPlace:
    """A whole Kafka cluster. ``settings`` are librdkafka's, to log in."""

    servers: str
    settings: Mapping[str, str] = field(repr=False)

    @staticmethod
    def of(servers: str | None, command_config: Path | None) -> ClusterPlace | None:
        """None where neither the option nor the file names servers.

        Raises:
            SettingRefused: the file cannot be read or used.
        """
        settings = {} if command_config is None else client_settings_of(command_config)
        in_file = settings.pop(SERVERS, "")
        named = servers or in_file
        return ClusterPlace(named, settings) if named else None

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
        from exactum.kafka import settings
        from exactum.kafka.requests import BrokerRequests

        plain = settings.checked_producer(self.settings, WHERE)
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
        sinks: str | None,
        **others: Any,
    ) -> Any:
        where: LookPlace | None = None
        if checkpoint is None and bootstrap_servers is not None:
            where = ClusterPlace.of(bootstrap_servers, command_config)
        elif checkpoint is not None and bootstrap_servers is None and command_config is None:
            where = QueryOptions.of(checkpoint, decision_log, sinks)
        if where is None:
            raise click.UsageError(
                "Give --checkpoint DIR (with --sinks), or --bootstrap-servers SERVERS (with "
                "--command-config where the brokers want a login)."
            )
        return function(where=where, **others)

    command: Callable[..., Any] = gathered
    for option in (
        SINKS,
        COMMAND_CONFIG,
        DECISION_LOG,
        click.option(
            "--bootstrap-servers", metavar="SERVERS", help="All of a Kafka cluster, whoever's."
        ),
        click.option("--checkpoint", metavar="DIR", help="All sinks of this query."),
    ):
        command = option(command)
    return command
