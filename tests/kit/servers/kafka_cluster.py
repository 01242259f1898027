"""A Kafka cluster of several nodes, or one whose clients log in over SASL_SSL."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

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

from exactum.errors import LocalServerError
from exactum.java.program import SMALL_OPTIONS, java_program
from exactum.local import LocalKafka
from exactum.local.admin import settle
from exactum.local.broker import CLIENTS, CONTROLLER, HOST, INTERNAL

ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
# It protects nothing: the key store lies in a folder that only the owner can enter.
STORE_PASSWORD = "exactum-local"
VALIDITY_DAYS = 3650
TOOL_TIMEOUT_S = 120.0


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
        admin = {ADMIN: secrets.token_urlsafe(16)} if security else {}
        self._users = {**admin, **(users or {})}
        self._ca_file = ""
        several = {"heap_mb": 400, "jvm_options": SMALL_OPTIONS} if nodes > 1 else {}
        super().__init__(**{**several, **settings})

    def start(self) -> None:
        """Start every node that does not run, with its users. Idempotent."""
        super().start()
        for name, password in self._users.items():
            self.add_user(name, password)

    def add_user(self, name: str, password: str) -> None:
        """Create a user of a secure cluster, who may do nothing yet, or change the password."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        admin = self.admin()  # what it is asked is dropped with it
        settle(f"create user {name}", admin.alter_user_scram_credentials([change])[name])
        self._users[name] = password

    def grant(
        self, user: str, resource: str, name: str, *operations: str, prefixed: bool = False
    ) -> None:
        """Allow `user` the `operations` on a resource of a secure cluster, from any host.
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
        """What a client of a secure cluster needs besides `bootstrap_servers`, in librdkafka's
        words. Without `password` it is the one that the user was created with.
        """
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._users[user] if password is None else password,
            "ssl.ca.location": self._ca_file,
        }

    def _listener_properties(self, folder: Path) -> Mapping[str, str]:
        """Clients log in; the brokers and the test's own administration use the internal listener,
        where whoever reaches it is ANONYMOUS and may do everything: this is a server for tests.
        """
        if self._shape["security"] is None:
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
            f"{listener}.ssl.keystore.type": "PKCS12",
            f"{listener}.ssl.keystore.location": str(key_store),
            f"{listener}.ssl.keystore.password": STORE_PASSWORD,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def _certified(self, folder: Path) -> Path:
        """The key store, made unless it is there: its one self-signed certificate is both the
        server's and the authority's.
        """
        folder.mkdir(mode=0o700, exist_ok=True)
        store, ca_file = folder / "server.p12", folder / "ca.pem"
        alias = ("-alias", "server", "-storepass", STORE_PASSWORD, "-storetype", "PKCS12")
        if not store.exists():
            making = folder / "making.p12"
            making.unlink(missing_ok=True)  # what a killed run left half-made
            _keytool(
                *("-genkeypair", "-keystore", str(making), *alias),
                *("-keyalg", "EC", "-groupname", "secp256r1"),
                *("-dname", "CN=localhost", "-validity", str(VALIDITY_DAYS)),
                # A clock that was set back a little must not make it "not yet valid".
                *("-startdate", "-1d", "-ext", "bc:c=ca:true"),
                *("-ext", f"san=dns:localhost,ip:{HOST}"),
            )
            making.rename(store)
        _keytool("-exportcert", "-rfc", "-keystore", str(store), *alias, "-file", str(ca_file))
        self._ca_file = str(ca_file)
        return store


def _keytool(*arguments: str) -> None:
    command = [java_program("keytool"), *arguments]
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if result.returncode != 0:
        raise LocalServerError(f"keytool {arguments[0]} failed:\n{result.stdout}")
