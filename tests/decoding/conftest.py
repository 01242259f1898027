"""A schema registry for each test of this folder. Its helpers, and the Kafka sink's, are
imported by name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kafka"))
sys.path.insert(0, str(Path(__file__).parent))

from registry import Registry

from exactum.formats import registry as registry_client


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry that is asked in this process is believed sooner that it does not know a
    schema.
    """
    monkeypatch.setattr(registry_client, "PATIENCE_S", 0.3)


@pytest.fixture
def registry() -> Iterator[Registry]:
    server = Registry()
    yield server
    server.close()
