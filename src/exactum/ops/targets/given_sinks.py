"""Sinks that the user gives by ``--sinks MODULE:NAME`` or ``--sinks FILE.py:NAME``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exactum.errors import ExactumError, SettingRefused
from exactum.protocol.sink import Sink, participant_names

_NEEDED = ("name", "check_columns", "open")


def given_sinks(place: str) -> dict[str, Sink]:
    """By the name of its participant each sink that ``place`` holds: a sink, a list or tuple of
    sinks in the query's order, a mapping of names to sinks, or a function without arguments that
    returns one of these.

    The module is imported, so what it does at import is done.

    Raises:
        SettingRefused: it cannot be imported, or holds something else.
    """
    where = f"--sinks {place}"
    module_name, colon, name = place.rpartition(":")
    if not colon or not module_name or not name:
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where} must be MODULE:NAME or FILE.py:NAME, like --sinks my_job:sinks.",
        )
    try:
        module = _module(module_name)
    except Exception as error:
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where}: {module_name} cannot be imported: {type(error).__name__}: {error}",
        ) from error
    if not hasattr(module, name):
        raise SettingRefused(
            "SINKS_OPTION",
            f"{where}: {module_name} has no {name!r}. Give the query's sinks that name "
            "in it: one sink, a list of them, or a function that returns them.",
        )
    value = getattr(module, name)
    if callable(value) and not _is_sink(value):
        try:
            value = value()
        except ExactumError:
            raise
        except Exception as error:
            raise SettingRefused(
                "SINKS_OPTION", f"{where}: {name}() raised {type(error).__name__}: {error}"
            ) from error
    return _named(value, where)


def _named(value: Any, where: str) -> dict[str, Sink]:
    if isinstance(value, Mapping):
        found = dict(value)
    else:
        sinks = [value] if _is_sink(value) else value
        if not isinstance(sinks, list | tuple) or not all(map(_is_sink, sinks)):
            raise SettingRefused(
                "SINKS_OPTION",
                f"{where} is a {type(value).__name__}: give a sink, a list of sinks, a mapping of "
                "participants' names to sinks, or a function that returns one of these.",
            )
        found = dict(zip(participant_names(sinks), sinks, strict=True))
    strange = [name for name, sink in found.items() if not _is_sink(sink)]
    if strange:
        raise SettingRefused(
            "SINKS_OPTION", f"{where}: what it has under {strange[0]!r} is no sink."
        )
    return found


def _is_sink(value: Any) -> bool:
    # A class has these names as well, and is a function that makes a sink.
    return not isinstance(value, type) and all(hasattr(value, each) for each in _NEEDED)


def _module(name: str) -> Any:
    if not name.endswith(".py"):
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(name)
    path = Path(name).resolve(strict=True)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Sinks' classes are found again by their module's name when they are copied.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module
