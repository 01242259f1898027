"""Certificates, users and grants of a local cluster whose clients log in over SASL_SSL."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from exactum.errors import LocalServerError
from exactum.java.program import java_program
from exactum.local.admin import settle
from exactum.local.broker import (
    CLIENTS,
    CONTROLLER,
    HOST,
    INTERNAL,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
# It protects nothing: the key store lies in a folder that only the owner can enter.
STORE_PASSWORD = "exactum-local"
VALIDITY_DAYS = 3650
TOOL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Security:
    """The key store and the users of one cluster."""

    folder: Path
    passwords: dict[str, str] = field(default_factory=dict)

    @classmethod
    def prepare(cls, folder: Path, users: Mapping[str, str]) -> Security:
        """Make the certificate in `folder` unless it is there, and return the cluster's security.

        One self-signed certificate is both the server's and the authority's. Idempotent.
        Raises LocalServerError.
        """
        security = cls(folder, dict(users))
        folder.mkdir(mode=0o700, exist_ok=True)
        store, alias = ("-keystore", str(security.key_store)), ("-alias", "server")
        password = ("-storepass", STORE_PASSWORD, "-storetype", "PKCS12")
        if not security.key_store.exists():
            making = folder / "making.p12"
            making.unlink(missing_ok=True)  # what a killed run left half-made
            _keytool(
                *("-genkeypair", "-keystore", str(making), *alias, *password),
                *("-keyalg", "EC", "-groupname", "secp256r1"),
                *("-dname", "CN=localhost", "-validity", str(VALIDITY_DAYS)),
                # A clock that was set back a little must not make it "not yet valid".
                *("-startdate", "-1d", "-ext", "bc:c=ca:true"),
                *("-ext", f"san=dns:localhost,ip:{HOST}"),
            )
            making.rename(security.key_store)
        _keytool("-exportcert", "-rfc", *store, *alias, *password, "-file", str(security.ca_file))
        return security

    @property
    def key_store(self) -> Path:
        """The broker's PKCS12 key store."""
        return self.folder / "server.p12"

    @property
    def ca_file(self) -> Path:
        """The certificate that clients are to trust, in PEM."""
        return self.folder / "ca.pem"

    def broker_properties(self) -> dict[str, str]:
        """Return the server properties of listeners, log-in and authorization.

        Clients log in; the brokers and the test's own administration use the internal listener,
        where whoever reaches it is ANONYMOUS and may do everything: this is a server for tests.
        """
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
            f"{listener}.ssl.keystore.location": str(self.key_store),
            f"{listener}.ssl.keystore.password": STORE_PASSWORD,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def client_settings(self, user: str, password: str | None) -> dict[str, str]:
        """Return librdkafka's settings to log in. Raises LocalServerError for an unknown user."""
        if password is None and user not in self.passwords:
            raise LocalServerError(f"there is no user {user}: {sorted(self.passwords)} exist.")
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self.passwords[user] if password is None else password,
            "ssl.ca.location": str(self.ca_file),
        }

    def add_user(self, admin: AdminClient, name: str, password: str) -> None:
        """Create the user or change the password. Idempotent."""
        from confluent_kafka.admin import (
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        settle(f"create user {name}", admin.alter_user_scram_credentials([change])[name])
        self.passwords[name] = password

    def grant(
        self,
        admin: AdminClient,
        user: str,
        resource: str,
        name: str,
        operations: Sequence[str],
        *,
        prefixed: bool,
    ) -> None:
        """Allow the operations on the resource, from any host. Idempotent."""
        from confluent_kafka.admin import (
            AclBinding,
            AclOperation,
            AclPermissionType,
            ResourcePatternType,
            ResourceType,
        )

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
        for binding, future in admin.create_acls(bindings).items():
            settle(f"grant {binding}", future)


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
