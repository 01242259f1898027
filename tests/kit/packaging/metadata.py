"""What pyproject.toml says of the package."""

from __future__ import annotations

import re
from typing import Any

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from tests.kit.environment import ROOT


def metadata() -> Any:
    """As the build reads it; Python 3.10 has no reader of TOML."""
    return ProjectMetadata(str(ROOT), PluginManager()).core


def extras() -> dict[str, list[str]]:
    """Each extra with its requirements."""
    return dict(metadata().config["optional-dependencies"])


def named_extras(text: str) -> set[str]:
    """Every extra that a text names, of exactum[...]."""
    return {
        extra.strip()
        for found in re.findall(r"\bexactum\[([\w, -]+)\]", text)
        for extra in found.split(",")
    }
