"""A clock that no busy machine moves."""

from __future__ import annotations

import time

import pytest


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays now, however long a test takes: what is so many seconds old stays so."""
    now_ms = time.time_ns() // 1_000_000
    monkeypatch.setattr(time, "time", lambda: now_ms / 1_000)
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)
