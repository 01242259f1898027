"""A Kafka cluster of several nodes, or one whose clients log in."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from exactum.errors import LocalServerError
from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from tests.kit.servers.security import ADMIN, Security


class KafkaCluster(LocalKafka):
    """A KRaft cluster of this machine; each node is broker and controller in one process.

    Args:
        nodes: three give replication factor 3 and min in-sync replicas 2, fewer give 1.
        transaction_version: the feature ``transaction.version`` the cluster is formatted with;
            None takes the broker's default (2).
        security: ``"SASL_SSL"`` makes clients log in by SCRAM-SHA-512 and denies what no ACL
            allows; the user ``admin`` may do everything.
        users: names and passwords of a secure cluster. ``admin`` gets a random password if none
            is given.
        settings: those of `LocalKafka`; by default several nodes have 400 MB each.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        transaction_version: Literal[1, 2] | None = None,
        security: Literal["SASL_SSL"] | None = None,
        users: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self._shape = {
            "nodes": nodes,
            "transaction_version": transaction_version,
            "security": security,
        }
        self._security: Security | None = None
        admin = {ADMIN: secrets.token_urlsafe(16)} if security else {}
        self._users = {**admin, **(users or {})}
        several = {"heap_mb": 400, "jvm_options": SMALL_OPTIONS} if nodes > 1 else {}
        super().__init__(**{**several, **settings})

    def start(self) -> None:
        """Start every node that does not run, with its users. Idempotent."""
        super().start()
        for name, password in self._users.items():
            self.add_user(name, password)

    def add_user(self, name: str, password: str) -> None:
        """Create a user of a secure cluster, who may do nothing yet, or change the password."""
        self._secured().add_user(self.admin(), name, password)

    def grant(
        self, user: str, resource: str, name: str, *operations: str, prefixed: bool = False
    ) -> None:
        """Allow `user` the `operations` on a resource of a secure cluster.

        `resource` is ``"topic"``, ``"group"``, ``"transactional_id"`` or ``"cluster"`` (whose name
        is ``"kafka-cluster"``); operations are Kafka's names: ``"READ"``, ``"DESCRIBE"``...
        `prefixed` makes `name` a prefix.
        """
        self._secured().grant(self.admin(), user, resource, name, operations, prefixed=prefixed)

    def client_settings(self, user: str = ADMIN, password: str | None = None) -> dict[str, str]:
        """Return what a client of a secure cluster needs besides `bootstrap_servers`.

        The names are librdkafka's. Without `password` it is the one that the user was created with.
        """
        return self._secured().client_settings(user, password)

    def _listener_properties(self, folder: Path) -> Mapping[str, str]:
        if self._shape["security"] is None:
            return {}
        self._security = Security.prepare(folder / "security", self._users)
        return self._security.broker_properties()

    def _secured(self) -> Security:
        if self._security is None:
            raise LocalServerError('this cluster knows no users: make it with security="SASL_SSL".')
        return self._security
