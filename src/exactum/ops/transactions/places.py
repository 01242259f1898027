"""Where to look: a query by its checkpoint, a whole Kafka cluster, or a whole database."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from exactum.checkpoint.decision_place import MYSQL_SCHEMES, POSTGRES_SCHEMES
from exactum.errors import SettingRefused
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
        """A ``OperatorRequests``. The caller closes it.

        Raises:
            ExactumError: the brokers did not answer, or refused.
        """
        from exactum.kafka.requests.operator_requests import OperatorRequests
        from exactum.kafka.settings import settings

        plain = settings.checked(self.access.kafka, WHERE)
        return OperatorRequests(
            self.servers, plain, WHERE, connect_timeout_ms=8_000, deadline_ms=20_000
        )


@dataclass(frozen=True)
class DatabasePlace:
    """A whole database. ``repr`` does not show its URL, which may hold a password."""

    url: str = field(repr=False)

    def look(self, identities: Sequence[str] = ()) -> tuple[list[TransactionView], list[Problem]]:
        """What waits in it, or those of these names; and what it hides, which is nothing.

        Raises:
            ExactumError: the server did not answer, or refused.
        """
        from exactum.sql.inspection import database_transactions

        scheme = urlsplit(self.url).scheme
        if scheme in POSTGRES_SCHEMES:
            from exactum.sql.postgres.dialect import PostgresDialect
            from exactum.sql.postgres.session import address_of

            found = database_transactions(PostgresDialect(), address_of(self.url, None, WHERE))
        elif scheme in MYSQL_SCHEMES:
            from exactum.sql.mysql.dialect import MySQLDialect
            from exactum.sql.mysql.sink import address_of as mysql_address_of

            found = database_transactions(MySQLDialect(), mysql_address_of(self.url, None, WHERE))
        else:
            raise SettingRefused(
                "COMMAND_ARGUMENT", "--database must be postgresql://... or mysql://..."
            )
        return [view for view in found if not identities or view.identity in identities], []


LookPlace = QueryOptions | ClusterPlace | DatabasePlace


def look_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The command gets ``where: LookPlace``."""

    @functools.wraps(function)
    def gathered(
        *,
        checkpoint: str | None,
        bootstrap_servers: str | None,
        database: str | None,
        decision_log: str | None,
        command_config: Path | None,
        urls: tuple[str, ...],
        sinks: str | None,
        **others: Any,
    ) -> Any:
        given = [each for each in (checkpoint, bootstrap_servers, database) if each is not None]
        if len(given) != 1:
            raise click.UsageError(
                "Give one of --checkpoint DIR, --bootstrap-servers SERVERS and --database URL."
            )
        access = Access.of(command_config, urls, sinks)
        where: LookPlace
        if checkpoint is not None:
            place = None if decision_log is None else with_password(decision_log)
            where = QueryOptions(checkpoint, place, access)
        elif bootstrap_servers is not None:
            where = ClusterPlace(bootstrap_servers, access)
        else:
            where = DatabasePlace(with_password(database or ""))
        return function(where=where, **others)

    command: Callable[..., Any] = gathered
    for option in (
        SINKS,
        URLS,
        COMMAND_CONFIG,
        DECISION_LOG,
        click.option("--database", metavar="URL", help="All of a database, whoever's."),
        click.option(
            "--bootstrap-servers", metavar="SERVERS", help="All of a Kafka cluster, whoever's."
        ),
        click.option("--checkpoint", metavar="DIR", help="All sinks of this query."),
    ):
        command = option(command)
    return command
