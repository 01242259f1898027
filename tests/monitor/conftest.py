"""A clock that no busy machine moves."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import pytest

from exactum.monitor import history


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays now, however long a test takes: what is so many seconds old stays so. The files of a
    history come one after another all the same.
    """
    now_ms = time.time_ns() // 1_000_000
    files_ns = itertools.count(now_ms * 1_000_000, 1_000_000)
    of_files = SimpleNamespace(time_ns=lambda: next(files_ns), monotonic=time.monotonic)
    monkeypatch.setattr(history, "time", of_files)
    monkeypatch.setattr(time, "time", lambda: now_ms / 1_000)
    monkeypatch.setattr(time, "time_ns", lambda: now_ms * 1_000_000)
