"""A Kafka whose clients log in or which knows old transactions only, and one of several nodes."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from exactum.java.program import SMALL_OPTIONS
from exactum.local import LocalKafka
from exactum.local.admin import admin_client, not_serving, settle
from exactum.local.broker import (
    CLIENTS,
    CONTROLLER,
    HOST,
    INTERNAL,
    Ports,
    choose_ports,
    format_node,
    new_cluster_id,
)
from tests.kit.sql.certificates import make_certificate
from tests.kit.waiting import WAIT_MAX_S, await_true

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"


class KafkaCluster(LocalKafka):
    """A node of another kind.

    Args:
        transaction_version: the feature ``transaction.version`` the data are formatted with; None
            takes the broker's default (2).
        security: ``"SASL_SSL"`` makes clients log in by SCRAM-SHA-512 and denies what no ACL
            allows; the user ``admin`` may do everything.
        settings: those of `LocalKafka`.
    """

    def __init__(
        self,
        *,
        transaction_version: Literal[1, 2] | None = None,
        security: Literal["SASL_SSL"] | None = None,
        **settings: Any,
    ) -> None:
        self._version = transaction_version
        self._is_secure = security is not None
        self._ca_file = ""
        self._users = {ADMIN: secrets.token_urlsafe(16)} if security else {}
        super().__init__(**settings)

    def start(self) -> None:
        """Start it with its users. Idempotent."""
        super().start()
        for name, password in self._users.items():
            self.add_user(name, password)

    def add_user(self, name: str, password: str) -> None:
        """Create a user of a secure node, who may do nothing yet, or change the password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        admin = self.admin()  # what it is asked is dropped with it
        settle(f"create user {name}", admin.alter_user_scram_credentials([change])[name])
        self._users[name] = password

    def grant(
        self, user: str, resource: str, name: str, *operations: str, prefixed: bool = False
    ) -> None:
        """Allow `user` the `operations` on a resource of a secure node, from any host.
        Idempotent.

        `resource` is ``"topic"``, ``"group"``, ``"transactional_id"`` or ``"cluster"`` (whose name
        is ``"kafka-cluster"``); operations are Kafka's names: ``"READ"``, ``"DESCRIBE"``...
        `prefixed` makes `name` a prefix.
        """
        kind = ResourceType["BROKER" if resource == "cluster" else resource.upper()]
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        bindings = [
            AclBinding(
                *(kind, name, pattern, f"User:{user}", "*"),
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        admin = self.admin()
        for binding, future in admin.create_acls(bindings).items():
            settle(f"grant {binding}", future)

    def client_settings(self, user: str = ADMIN, password: str | None = None) -> dict[str, str]:
        """What a client of a secure node needs besides `bootstrap_servers`, in librdkafka's
        words. Without `password` it is the one that the user was created with.
        """
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._users[user] if password is None else password,
            "ssl.ca.location": self._ca_file,
        }

    def _own_properties(self, folder: Path) -> Mapping[str, str]:
        """Clients log in; the brokers and the test's own administration use the internal listener,
        where whoever reaches it is ANONYMOUS and may do everything: this is a server for tests.
        """
        if not self._is_secure:
            return {}
        key_store = self._certified(folder / "security")
        listener = f"listener.name.{CLIENTS.lower()}"
        return {
            "listener.security.protocol.map": (
                f"{CLIENTS}:SASL_SSL,{INTERNAL}:PLAINTEXT,{CONTROLLER}:PLAINTEXT"
            ),
            f"{listener}.sasl.enabled.mechanisms": MECHANISM,
            f"{listener}.{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            f"{listener}.ssl.keystore.type": "PEM",
            f"{listener}.ssl.keystore.location": str(key_store),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def _certified(self, folder: Path) -> Path:
        """A key store whose one self-signed certificate is both the server's and the authority's."""
        folder.mkdir(mode=0o700)
        certificate, key = make_certificate(folder)
        store = folder / "server.pem"
        store.write_text(key.read_text() + certificate.read_text())
        self._ca_file = str(certificate)
        return store

    def _format(self, folder: Path) -> None:
        version = self._version
        options = () if version is None else ("--feature", f"transaction.version={version}")
        format_node(folder, new_cluster_id(), *options)


class _Node(LocalKafka):
    """The one of this number, from 1, of several."""

    def __init__(self, number: int, ports: Sequence[Ports], folder: Path, cluster_id: str) -> None:
        super().__init__(data_dir=folder / str(number), heap_mb=400, jvm_options=SMALL_OPTIONS)
        self._ports = ports[number - 1]
        self._cluster_id = cluster_id
        voters = (f"{n}@{HOST}:{each.controller}" for n, each in enumerate(ports, 1))
        replicas, in_sync = str(len(ports)), str(len(ports) - 1)
        self._extra = {
            "node.id": str(number),
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }

    def _format(self, folder: Path) -> None:
        format_node(folder, self._cluster_id)


class KafkaNodes:
    """A KRaft cluster of three nodes of this machine, each broker and controller in one process:
    replication factor 3, min in-sync replicas 2.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._nodes: dict[int, _Node] = {}

    def __enter__(self) -> KafkaNodes:
        with ExitStack() as undo:
            folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
            ports, cluster_id = [choose_ports() for _ in range(3)], new_cluster_id()
            self._nodes = {n: _Node(n, ports, folder, cluster_id) for n in (1, 2, 3)}
            undo.callback(self._stop)
            for node in self._nodes.values():
                node._launch()
            self._await_all()
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.bootstrap_servers for node in self._nodes.values())

    @property
    def nodes(self) -> list[int]:
        """From 1, running or not."""
        return list(self._nodes)

    def admin(self) -> AdminClient:
        """One that asks a node that runs first."""
        return next(node for node in self._nodes.values() if node.is_running()).admin()

    def create_topic(self, name: str, partitions: int) -> None:
        self._nodes[1].create_topic(name, partitions)
        self._await_all()

    def kill(self, node: int | None = None) -> None:
        """One or all of them."""
        for each in self._nodes.values() if node is None else [self._nodes[node]]:
            each.kill()

    def restart(self, node: int) -> None:
        """One, when all others run."""
        self._nodes[node].restart()
        self._await_all()

    def _await_all(self) -> None:
        """Each knows all, and a leader of each partition."""

        def serve() -> bool:
            for node in self._nodes.values():
                own = node._ports
                if not_serving(own) is not None:
                    return False
                admin = admin_client(f"{HOST}:{own.internal}")
                if self._nodes.keys() - admin.list_topics(timeout=WAIT_MAX_S).brokers:
                    return False
            return True

        await_true(serve, "all nodes serve")

    def _stop(self) -> None:
        running = [node._made() for node in self._nodes.values() if node.is_running()]
        for process in running:  # a node that waits for another's answer would wait in vain
            process.ask_to_stop()
        for node in self._nodes.values():
            node.stop()
