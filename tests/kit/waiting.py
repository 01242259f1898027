"""How long the tests wait, and for what."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_MAX_S = 400.0
"""Longest that a test waits for what must come. Nothing takes a tenth of it on a quiet machine; one
that others share has stood still for two minutes.
"""


def await_true(condition: Callable[[], bool], what: str, timeout_s: float = WAIT_MAX_S) -> None:
    """
    Raises:
        AssertionError: it did not become true; ``what`` says what that is.
    """
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.02)
