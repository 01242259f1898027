"""Makes requirements/demo.lock of requirements/dev.lock: what ``make demo`` installs.

python -m tests.kit.packaging.demo_lock
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.kit.environment import ROOT

DEV = ROOT / "requirements" / "dev.lock"
DEMO = ROOT / "requirements" / "demo.lock"
NEEDED = ("exactum", "pyspark", "hatchling")
"""The last one builds the wheel."""


def entries(text: str) -> Iterator[tuple[str, str]]:
    """Each pin of a lock with its hashes, and the name of its package."""
    lines: list[str] = []
    for line in [*text.splitlines(keepends=True), ""]:
        if not line.startswith(" ") and lines:
            yield canonicalize_name(Requirement(lines[0].rstrip(" \\\n")).name), "".join(lines)
            lines = []
        lines.append(line)


def needed() -> set[str]:
    """What the demo imports or is built with, whatever the Python and the system: what these
    packages ask for, without their extras.
    """
    found: set[str] = set()
    left = list(NEEDED)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of another Python: it brings nothing more
            continue
        each = (Requirement(text) for text in asked)
        left += (canonicalize_name(r.name) for r in each if "extra" not in str(r.marker or ""))
    return found


def text() -> str:
    names = needed()
    return "".join(entry for name, entry in entries(DEV.read_text()) if name in names)


if __name__ == "__main__":
    DEMO.write_text(text())
