"""What pyproject.toml says of the package, and what is built by it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from tests.kit.environment import ROOT
from tests.kit.python import ran


def metadata() -> Any:
    """As the build reads it; Python 3.10 has no reader of TOML."""
    return ProjectMetadata(str(ROOT), PluginManager()).core


def built(folder: Path, kind: str = "wheel", **settings: str) -> Path:
    """``settings`` are the build's variables."""
    ran(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder], cwd=ROOT, **settings
    )
    (made,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


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
