"""A process that dies before its n-th change of a file system, without a process: every later
change fails as well, so nothing tidies up behind it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exactum.testing.faults import Crash

CHANGES = ("os.mkdir", "os.rename", "os.link", "os.remove", "shutil.rmtree", "open")


class _Plan:
    """``at`` 0: nothing is counted."""

    below = ""
    at = 0
    calls = 0


_plan = _Plan()


def _count(event: str, arguments: tuple[Any, ...]) -> None:
    if _plan.at == 0 or event not in CHANGES:
        return
    path, *more = arguments
    if event == "open" and not (more[1] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
        return
    if isinstance(path, int) or not os.fsdecode(path).startswith(_plan.below):
        return
    _plan.calls += 1
    if _plan.calls >= _plan.at:
        raise Crash(f"{event} {path}")


@contextlib.contextmanager
def killed_at(at: int, below: Path) -> Iterator[None]:
    """Its body dies before its change number ``at``, counted from 1, of what is in ``below``."""
    if not hasattr(sys, "_exactum_counts_changes"):
        sys.addaudithook(_count)  # for ever
        sys._exactum_counts_changes = True  # type: ignore[attr-defined]
    _plan.below, _plan.at, _plan.calls = str(below), at, 0
    try:
        yield
    finally:
        _plan.at = 0
