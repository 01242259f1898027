"""Which code is played: a verdict holds for that."""

from __future__ import annotations

import subprocess

from chaos import ROOT


def commit() -> str:
    """The commit of the work tree, short, with a ``+`` where files differ from it; empty outside a
    repository.
    """
    asked = subprocess.run(
        ["git", "describe", "--always", "--exclude=*", "--dirty=+"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return asked.stdout.strip()


COMMIT = commit()
"""When this process began."""
