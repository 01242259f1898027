"""What other Python processes need on their PYTHONPATH to import this very exactum."""

from __future__ import annotations

import os
import site
from pathlib import Path

import exactum


def package_path() -> str | None:
    """Its folder and what this process was given, as absolute paths; None where it is installed."""
    folder = str(Path(exactum.__file__).resolve().parent.parent)
    installed = [
        str(Path(p).resolve()) for p in [*site.getsitepackages(), site.getusersitepackages()]
    ]
    if folder in installed:
        return None
    return os.pathsep.join([folder, *given_path()])


def given_path() -> list[str]:
    """The folders of PYTHONPATH, absolute: another process may begin in another folder."""
    return [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
