"""What a published build says of itself: where the project is, and a README whose links lead there.

A package index shows README.md alone, so links that are relative in the repository lead nowhere on
it. ``EXACTUM_HOME`` is the project's address (``https://host/owner/exactum``), which the release
workflow knows. Without it, as in a build on a laptop, links stay as they are and there are no URLs.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

HOME = "EXACTUM_HOME"
_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")


class Home(MetadataHookInterface):
    """Called by hatchling at each build."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme`` and ``urls``, which pyproject.toml calls dynamic."""
        home = os.environ.get(HOME, "").rstrip("/")
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        if home:
            text = absolute(text, home, f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(home) if home else {}


def absolute(text: str, home: str, tag: str) -> str:
    """The Markdown with its links into the repository at ``tag``, pictures by their content."""

    def link(found: re.Match[str]) -> str:
        shown, words, target = found.groups()
        kind = "raw" if shown else "blob"
        return f"{shown}{words}({home}/{kind}/{tag}/{target})"

    return _LINK.sub(link, text)


def urls(home: str) -> dict[str, str]:
    """The project's links beside its description."""
    return {
        "Homepage": home,
        "Documentation": f"{home}/tree/main/docs",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
