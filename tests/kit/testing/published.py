"""pytest where exactum is installed, by the entry point of pyproject.toml."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.kit.environment import python_path
from tests.kit.packaging.metadata import metadata
from tests.kit.python import ran


def pytest_of_a_user(folder: Path, *arguments: str) -> str:
    """What pytest prints in this folder, where it finds exactum's fixtures."""
    path = f"{_entry_point(folder / 'installed')}:{python_path()}"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = ran(command, status=None, cwd=folder, PYTHONPATH=path)
    return done.stdout + done.stderr


def _entry_point(folder: Path) -> Path:
    """A folder for the path. It adds nothing where exactum is installed: the first entry of a name
    counts.
    """
    named = metadata().config["entry-points"]["pytest11"]
    info = folder / "exactum-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: exactum\nVersion: 0\n")
    lines = [f"{name} = {module}\n" for name, module in named.items()]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    return folder
