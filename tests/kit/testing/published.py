"""The entry point of pyproject.toml, as an install of exactum publishes it."""

from __future__ import annotations

from pathlib import Path

from tests.kit.packaging.metadata import metadata


def entry_point(folder: Path) -> Path:
    """A folder for the path, in which pytest finds exactum's fixtures. It adds nothing where
    exactum is installed: the first entry of a name counts.
    """
    named = metadata().config["entry-points"]["pytest11"]
    info = folder / "exactum-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: exactum\nVersion: 0\n")
    lines = [f"{name} = {module}\n" for name, module in named.items()]
    (info / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    return folder
