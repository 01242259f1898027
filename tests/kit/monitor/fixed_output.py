"""What is printed is the same each time, wherever and whenever a test prints it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOW_MS = 1_800_000_000_000


@contextmanager
def same_everywhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """One moment, one time zone, one width; short paths, from this folder on."""
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1_000)
    monkeypatch.setattr(os, "getpid", lambda: 4_242)
    monkeypatch.setattr(socket, "gethostname", lambda: "host")
    for name, value in (("TZ", "UTC"), ("COLUMNS", "120"), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    time.tzset()
    monkeypatch.chdir(folder)
    yield
    monkeypatch.undo()
    time.tzset()
