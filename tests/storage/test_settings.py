"""Hadoop's settings for object stores, in obstore's words. (A store that is reached by them:
tests/spark/test_staging_store.py.)
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from exactum.errors import SettingRefused
from exactum.storage.objects import ObjectStore
from exactum.storage.settings import lacks_credentials, store_settings
from tests.kit.errors import raised

KEYS = {"fs.s3a.access.key": "a", "fs.s3a.secret.key": "b"}
TAKEN = {"access_key_id": "a", "secret_access_key": "b"}


@pytest.mark.parametrize(
    ("url", "hadoop", "settings"),
    [
        ("s3://lake/x", {}, {}),
        ("s3a://lake/x", KEYS, TAKEN),
        ("s3://lake/x", {f"spark.hadoop.{k}": v for k, v in KEYS.items()}, TAKEN),
        (
            "s3://lake/x",
            {**KEYS, "fs.s3a.bucket.lake.access.key": "c"},
            {**TAKEN, "access_key_id": "c"},
        ),
        ("s3://sea/x", {**KEYS, "fs.s3a.bucket.lake.access.key": "c"}, TAKEN),
        (
            "s3://lake/x",
            {"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"},
            {"endpoint": "http://minio:9000", "client_options": {"allow_http": True}},
        ),
        (
            "s3://lake/x",
            {"fs.s3a.endpoint": "http://minio:9000", "fs.s3a.endpoint.region": "x"},
            {
                "endpoint": "http://minio:9000",
                "region": "x",
                "client_options": {"allow_http": True},
            },
        ),
        (
            "s3://lake/x",
            {"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com", "fs.s3a.session.token": "t"},
            {
                "endpoint": "https://s3.eu-central-1.amazonaws.com",
                "region": "eu-central-1",
                "session_token": "t",
            },
        ),
        ("gs://lake/x", KEYS, {}),
        (
            "gs://lake/x",
            {"google.cloud.auth.service.account.json.keyfile": "/key.json"},
            {"service_account": "/key.json"},
        ),
        (
            "abfss://files@me.dfs.core.windows.net/x",
            {
                "fs.azure.account.key.me.dfs.core.windows.net": "k",
                "fs.azure.account.key.you.dfs.core.windows.net": "l",
            },
            {"account_key": "k"},
        ),
        ("az://files/x", {"fs.azure.sas.fixed.token": "s"}, {"sas_key": "s"}),
    ],
)
def test_what_hadoop_says(url: str, hadoop: dict[str, str], settings: dict[str, Any]) -> None:
    assert store_settings(url, None, hadoop) == settings


def test_what_is_given_as_store_counts() -> None:
    given = {"region": "x", "timeout": "5s", "client_options": {"user_agent": "me"}}
    assert store_settings("s3://lake/x", given, KEYS) == {
        "region": "x",
        "client_options": {"timeout": "5s", "user_agent": "me"},
    }


@pytest.mark.parametrize(
    ("url", "environment", "lacks"),
    [
        ("s3a://lake/x", {}, True),
        ("s3://lake/x", {"AWS_ACCESS_KEY_ID": "a"}, False),
        ("s3://lake/x", {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}, False),
        ("gs://lake/x", {}, False),
    ],
)
def test_a_store_without_credentials_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], lacks: bool
) -> None:
    """obstore asks the machine for its role for minutes, before each request."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert lacks_credentials(url, {}) is lacks
    if lacks:
        with raised(SettingRefused, "STORE_ACCESS", url, "AWS_ACCESS_KEY_ID"):
            ObjectStore.of(url)
