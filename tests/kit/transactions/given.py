"""Sinks as ``--sinks MODULE:NAME`` brings them to a command that a test types in its own process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_GIVEN: dict[str, Any] = {}
_OF_QUERY: dict[str, str] = {}


def given(sinks: Any) -> tuple[str, str]:
    """``--sinks`` for anything that a module may hold."""
    name = f"number_{len(_GIVEN)}"
    _GIVEN[name] = sinks
    return "--sinks", f"{__name__}:{name}"


def give_always(query_id: str, sinks: Any) -> None:
    """What a command on any checkpoint of this query is given, unless its test says otherwise."""
    _OF_QUERY[query_id] = given(sinks)[1]


def of_checkpoint(folder: Path) -> str | None:
    """What ``EXACTUM_SINKS`` is for a command on this checkpoint."""
    try:
        return _OF_QUERY.get(json.loads((folder / "metadata").read_bytes())["id"])
    except (OSError, ValueError):
        return None


def __getattr__(name: str) -> Any:
    if name not in _GIVEN:
        raise AttributeError(name)
    return _GIVEN[name]
