"""Long tests take turns in ``make test``: an eighth of them with each commit."""

from __future__ import annotations

import os
import zlib

import pytest

TURN_VARIABLE = "EXACTUM_TURN"
TURNS = 8


def turn_now() -> int | None:
    """The eighth that is played, 0 to 7; None, where all are."""
    text = os.environ.get(TURN_VARIABLE)
    if text is None:
        return None
    if not text.isdecimal() or int(text) >= TURNS:
        raise pytest.UsageError(f"{TURN_VARIABLE} is one of 0 to {TURNS - 1}, and not {text!r}")
    return int(text)


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests marked ``in_turn``, leave those whose turn it is. A test's turn is fixed by its
    name: a commit that fails fails again.
    """
    turn = turn_now()
    if turn is None:
        return
    others = [
        item
        for item in items
        if item.get_closest_marker("in_turn") and zlib.crc32(item.nodeid.encode()) % TURNS != turn
    ]
    left_out = set(others)
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=others)
