"""A schema registry for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactum.formats import registry as registry_client
from tests.kit.decoding.registry import Registry


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is asked in this process is believed sooner that it does not know a
    schema.
    """
    monkeypatch.setattr(registry_client, "TIMEOUT_S", 0.3)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.close()
