"""How an object store is reached: obstore's settings, given as they are or in Hadoop's words."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from exactum.errors import Unavailable

CLIENT_SETTINGS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_headers",
        "proxy_url",
        "proxy_ca_certificate",
        "proxy_excludes",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
"""Settings of obstore's HTTP client, which may stand among those of the store."""
_S3 = {
    "access.key": "access_key_id",
    "secret.key": "secret_access_key",
    "session.token": "session_token",
    "endpoint": "endpoint",
    "endpoint.region": "region",
}
_AZURE = {
    "account.key": "account_key",
    "sas.fixed.token": "sas_key",
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
}
_KEYFILE = "auth.service.account.json.keyfile"
_REGION = re.compile(r"s3[.-]([a-z]+-[a-z-]+-\d)\.amazonaws\.com")

_OWN = frozenset(
    {
        "access_key_id",
        "container_credentials_full_uri",
        "container_credentials_relative_uri",
        "credential_provider",
        "skip_signature",
        "web_identity_token_file",
    }
)
"""Whoever has one of these does not ask the machine who it is."""
_METADATA = "metadata_endpoint"
METADATA = "http://169.254.169.254"
METADATA_TIMEOUT_S = 2.0


def store_settings(
    url: str, store: Mapping[str, Any] | None, hadoop: Mapping[str, str]
) -> dict[str, Any]:
    """What obstore takes for the URL: ``store``, or what ``hadoop`` says where it is None.

    ``hadoop``: settings of Hadoop's file systems, ``fs.s3a.endpoint`` and the like, with or without
    ``spark.hadoop.`` before them. What says nothing of this store is left out.
    """
    settings = dict(hadoop_settings(url, hadoop) if store is None else store)
    client = {name: settings.pop(name) for name in CLIENT_SETTINGS & settings.keys()}
    if client:
        settings["client_options"] = {**client, **settings.get("client_options", {})}
    return settings


def hadoop_settings(url: str, hadoop: Mapping[str, str]) -> dict[str, Any]:
    """Hadoop's settings for the store of ``url``, in obstore's words; of a bucket or an account
    before those of all.
    """
    given = {name.removeprefix("spark.hadoop."): value for name, value in hadoop.items()}
    parts = urlsplit(url)
    if parts.scheme.startswith("s3"):
        return _of_s3(parts.netloc, given)
    if parts.scheme in ("gs", "gcs"):
        names = {f"{above}.{_KEYFILE}": "service_account" for above in ("fs.gs", "google.cloud")}
        return {name: given[key] for key, name in names.items() if key in given}
    account = parts.netloc.rpartition("@")[2]
    names = {
        f"fs.azure.{key}{end}": name for key, name in _AZURE.items() for end in ("", f".{account}")
    }
    return {name: given[key] for key, name in names.items() if key in given}


def _of_s3(bucket: str, given: Mapping[str, str]) -> dict[str, Any]:
    def value(key: str) -> str | None:
        return given.get(f"fs.s3a.bucket.{bucket}.{key}", given.get(f"fs.s3a.{key}"))

    settings: dict[str, Any] = {name: found for key, name in _S3.items() if (found := value(key))}
    endpoint = settings.get("endpoint", "")
    if endpoint and "://" not in endpoint:
        plain = value("connection.ssl.enabled") == "false"
        settings["endpoint"] = endpoint = f"{'http' if plain else 'https'}://{endpoint}"
    if endpoint.startswith("http://"):
        settings["allow_http"] = True
    region = _REGION.search(endpoint)
    if region is not None:
        settings.setdefault("region", region[1])
    return settings


def lacks_credentials(url: str, settings: Mapping[str, Any]) -> bool:
    """Whether an S3 store would be asked without credentials, as neither ``settings`` nor the
    environment have any and this machine has no role of its own. obstore would ask the machine
    again and again, for minutes, before each request.

    Raises:
        Unavailable: nobody answers whether it has a role.
    """
    if not urlsplit(url).scheme.startswith("s3"):
        return False
    given = {**{k: v for k, v in os.environ.items() if k.startswith("AWS_")}, **settings}
    known = {name.lower().removeprefix("aws_"): value for name, value in given.items()}
    if _OWN & known.keys():
        return False
    at = urlsplit(str(known.get(_METADATA, METADATA)))
    try:
        socket.create_connection((at.hostname, at.port or 80), METADATA_TIMEOUT_S).close()
    except TimeoutError as error:
        raise Unavailable(
            f"There are no credentials for {url}, and whether this machine has a role is not "
            f"known: {at.netloc} does not answer. Set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or start again. Nothing was asked of the store."
        ) from error
    except OSError:
        return True
    return False
